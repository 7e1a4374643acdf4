import { execFile, execFileSync, spawnSync } from 'node:child_process';
import { randomBytes, randomInt } from 'node:crypto';
import {
  chmodSync,
  cpSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readFileSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { ROOT } from '../../scripts/command.ts';

export interface Said {
  readonly code: number;
  /** Standard output and standard error. */
  readonly out: string;
  readonly seconds: number;
}

/**
 * Paths of this machine that the laptop sees read-only: programs, but no service, home or temporary files.
 */
const SHARED = ['/usr', '/etc/ssl', '/etc/alternatives'];
const OURS = ['dist', 'node_modules', 'package.json'];

/**
 * A second machine from the view of a service. It has its own network, which reaches `server` only, and its
 * own files with the command line installed. Needs root. `remove` removes everything.
 */
export class Laptop {
  /** Address of this machine, as the laptop reaches it. */
  readonly server: string;
  readonly #network: string;
  readonly #root: string;

  private constructor(network: string, server: string, root: string) {
    this.#network = network;
    this.server = server;
    this.#root = root;
  }

  static make(): Laptop {
    const network = `rkw${randomBytes(4).toString('hex')}`;
    // RFC 2544 reserves these addresses for tests.
    const subnet = `198.18.${randomInt(256)}`;
    const host = randomInt(63) * 4;
    const [server, own] = [`${subnet}.${host + 1}`, `${subnet}.${host + 2}`];
    const laptop = new Laptop(network, server, mkdtempSync(join(tmpdir(), 'rookery-laptop-')));
    try {
      laptop.#makeFiles();
      ip('netns', 'add', network);
      ip('link', 'add', network, 'type', 'veth', 'peer', 'name', 'eth0', 'netns', network);
      ip('address', 'add', `${server}/30`, 'dev', network);
      ip('link', 'set', network, 'up');
      ip('-n', network, 'address', 'add', `${own}/30`, 'dev', 'eth0');
      ip('-n', network, 'link', 'set', 'lo', 'up');
      ip('-n', network, 'link', 'set', 'eth0', 'up');
      return laptop;
    } catch (error) {
      laptop.remove();
      throw error;
    }
  }

  /** Runs a shell command in a directory below the home of the laptop's user. Never rejects. */
  run(line: string, directory = '.'): Promise<Said> {
    const begunMs = performance.now();
    return new Promise(resolve => {
      // The mounts belong to the namespace of this run and end with it.
      const args = [
        'netns',
        'exec',
        this.#network,
        'unshare',
        '--mount',
        '--pid',
        '--fork',
        'sh',
        '-ec',
        MACHINE,
        'sh',
      ];
      execFile(
        'ip',
        [
          ...args,
          this.#root,
          ROOT,
          process.execPath,
          SHARED.join(' '),
          OURS.join(' '),
          `cd ${directory}\n${line} 2>&1`,
        ],
        { encoding: 'utf8', maxBuffer: 64 * 1024 * 1024 },
        (error, out, err) => {
          const code = error === null ? 0 : Number(error.code ?? 1);
          resolve({ code, out: out + err, seconds: (performance.now() - begunMs) / 1000 });
        },
      );
    });
  }

  /** Writes a file of the laptop's user. */
  write(path: string, content: string): void {
    const file = this.#home(path);
    mkdirSync(dirname(file), { recursive: true });
    writeFileSync(file, content);
  }

  edit(path: string, from: string | RegExp, to: string): void {
    this.write(path, readFileSync(this.#home(path), 'utf8').replace(from, to));
  }

  copy(from: string, path: string): void {
    cpSync(from, this.#home(path));
  }

  remove(): void {
    // Deleting one end of the pair deletes the other.
    spawnSync('ip', ['link', 'delete', this.#network]);
    spawnSync('ip', ['netns', 'delete', this.#network]);
    rmSync(this.#root, { recursive: true, force: true });
  }

  #home(path: string): string {
    return join(this.#root, 'home/me', path);
  }

  #makeFiles(): void {
    const at = (path: string) => join(this.#root, path);
    for (const each of ['dev', 'proc', 'tmp', 'home/me', 'opt/bin', 'opt/rookery', 'etc', ...SHARED]) {
      if (!each.startsWith('/') || existsSync(each)) mkdirSync(at(each), { recursive: true });
    }
    for (const name of ['bin', 'sbin', 'lib', 'lib64']) symlinkSync(`usr/${name}`, at(name));
    for (const device of ['null', 'zero', 'urandom']) writeFileSync(at(`dev/${device}`), '');
    for (const name of ['dist', 'node_modules']) mkdirSync(at(`opt/rookery/${name}`));
    writeFileSync(at('opt/rookery/package.json'), '');
    writeFileSync(at('opt/bin/node'), '');
    writeFileSync(at('opt/bin/rookery'), '#!/bin/sh\nexec /opt/bin/node /opt/rookery/dist/main.js "$@"\n');
    chmodSync(at('opt/bin/rookery'), 0o755);
    writeFileSync(at('etc/passwd'), 'me:x:0:0::/home/me:/bin/sh\n');
  }
}

/**
 * Script with six arguments: the laptop's files, the project, Node, the shared paths, the installed parts of
 * the project, and the command.
 */
const MACHINE = `root=$1 project=$2 node=$3 line=$6
bind() { mount --bind "$1" "$2" && mount -o remount,bind,ro "$2"; }
for path in $4; do [ ! -e "$path" ] || bind "$path" "$root$path"; done
for path in $5; do bind "$project/$path" "$root/opt/rookery/$path"; done
bind "$node" "$root/opt/bin/node"
for device in null zero urandom; do mount --bind "/dev/$device" "$root/dev/$device"; done
mount -t proc proc "$root/proc"
exec chroot "$root" /usr/bin/env -i HOME=/home/me PATH=/opt/bin:/usr/local/go/bin:/usr/local/bin:/usr/bin TERM=dumb LANG=C.UTF-8 \\
  /bin/sh -c "cd /home/me && $line"`;

function ip(...args: readonly string[]): void {
  execFileSync('ip', args, { stdio: ['ignore', 'ignore', 'pipe'] });
}
