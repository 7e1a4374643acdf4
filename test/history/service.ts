import { spawnSync } from 'node:child_process';
import { mkdtempSync, readdirSync, readFileSync, readlinkSync, rmSync, statfsSync, writeFileSync } from 'node:fs';
import { createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { Served } from '../../scripts/served.ts';

/** Room for a database, logs and sandboxes of a short history, and soon full. */
const DISK_MB = 96;
const START_TRIES = 5;
/** Sandboxes that were being started when their server was killed go soon. */
const SETTINGS = ['--set', 'jobs.allowHostPaths=true', '--set', 'orphanGraceMs=1000'];
const ORPHANS_MS = 60_000;

/**
 * A service that is done harm to: its ports stay the same, so that callers ask while it is away or begins, and its data directory is a
 * small disk of its own where the machine allows one.
 */
export class HarmedService {
  readonly dataDir: string;
  readonly frontendPort: number;
  readonly metaPort: number;
  readonly hasOwnDisk: boolean;
  #server: Served | null = null;

  private constructor(dataDir: string, ports: readonly [number, number], hasOwnDisk: boolean) {
    this.dataDir = dataDir;
    [this.frontendPort, this.metaPort] = ports;
    this.hasOwnDisk = hasOwnDisk;
  }

  static async start(): Promise<HarmedService> {
    const dataDir = mkdtempSync(join(tmpdir(), 'rookery-history-'));
    const mount = ['-t', 'tmpfs', '-o', `size=${DISK_MB}m,mode=700`, 'rookery-history', dataDir];
    const { status } = spawnSync('mount', mount, { stdio: 'ignore' });
    const service = new HarmedService(dataDir, [await freePort(), await freePort()], status === 0);
    try {
      await service.#start();
    } catch (error) {
      service.#unmount();
      throw error;
    }
    return service;
  }

  async #start(under: readonly string[] = []): Promise<void> {
    const ports = ['--port', String(this.frontendPort), '--meta-port', String(this.metaPort)];
    const args = [...ports, ...SETTINGS];
    this.#server = await Served.start({ dataDir: this.dataDir, args, under });
  }

  /** Ends it without a warning, and begins again; with `early` it is killed once more while it begins. */
  async kill(early: boolean, waitMs: number): Promise<void> {
    await this.#server?.end('SIGKILL');
    if (early) {
      const started = this.#start().catch(() => undefined);
      await delay(waitMs);
      for (const pid of this.#pids(cmdline => cmdline.includes('\0serve\0'))) kill(pid, 'SIGKILL');
      await started;
      await this.#server?.end('SIGKILL');
    }
    await this.#begin();
  }

  /** For a while with so few descriptors that little works; it may also refuse to begin. */
  async starve(descriptors: number, forMs: number): Promise<void> {
    await this.#server?.end('SIGKILL');
    this.#server = null;
    const limit = `--nofile=${descriptors}:${descriptors}`;
    await this.#start(['prlimit', limit, '--']).catch(() => undefined);
    await delay(forMs);
    const starved = this.#server as Served | null;
    await starved?.end('SIGKILL');
    await this.#begin();
  }

  async freeze(what: 'server' | 'zygote', forMs: number): Promise<void> {
    const pids = what === 'server' ? [this.#server?.pid ?? 0] : this.#zygotes();
    for (const pid of pids) kill(pid, 'SIGSTOP');
    await delay(forMs);
    for (const pid of pids) kill(pid, 'SIGCONT');
  }

  killZygotes(): void {
    for (const pid of this.#zygotes()) kill(pid, 'SIGKILL');
  }

  /** Nothing can be written for a while. */
  async fillDisk(forMs: number): Promise<void> {
    const filler = join(this.dataDir, 'filler');
    const { bavail, bsize } = statfsSync(this.dataDir);
    spawnSync('fallocate', ['-l', String(bavail * bsize), filler], { stdio: 'ignore' });
    try {
      // What is still free in between.
      for (let each = 0; each < 64; each++) writeFileSync(filler, Buffer.alloc(64 * 1024), { flag: 'a' });
    } catch {
      // Full.
    }
    await delay(forMs);
    rmSync(filler, { force: true });
  }

  /** Ends it and everything of it, and answers what is left, a sentence each. */
  async end(): Promise<readonly string[]> {
    const left: string[] = [];
    try {
      await this.#server?.end('SIGKILL');
      const last = await Served.start({ dataDir: this.dataDir, args: ['--stop-agents', ...SETTINGS] });
      await this.#withoutOrphans(last);
      const code = await last.end();
      if (code !== 0) left.push(`the last server ended with ${code ?? 'a signal'}: ${last.output}`);
      const deadlineMs = Date.now() + 10_000;
      let pids = this.#pids();
      while (pids.length > 0 && Date.now() < deadlineMs) {
        await delay(100);
        pids = this.#pids();
      }
      for (const pid of pids) {
        left.push(`a process is left: ${cmdlineOf(pid).replaceAll('\0', ' ')}`);
        kill(pid, 'SIGKILL');
      }
    } finally {
      this.#unmount();
    }
    return left;
  }

  /** Resolves when as many sandboxes run as there are agents, bounded: those of nobody have gone then. */
  async #withoutOrphans(server: Served): Promise<void> {
    const deadlineMs = Date.now() + ORPHANS_MS;
    for (;;) {
      const answer = await fetch(`${server.frontendUrl}/api/agent?limit=1000&status=RUNNING`);
      const { instances } = (await answer.json()) as { readonly instances: readonly unknown[] };
      const inits = this.#pids(cmdline => cmdline.startsWith('rookery: init'));
      if (inits.length <= instances.length || Date.now() > deadlineMs) return;
      await delay(200);
    }
  }

  /** What the server wrote last. */
  get output(): string {
    return this.#server?.output ?? '';
  }

  async #begin(): Promise<void> {
    let why: unknown;
    for (let tries = 0; tries < START_TRIES; tries++) {
      try {
        await this.#start();
        return;
      } catch (error) {
        why = error;
        await delay(500);
      }
    }
    throw new Error('the service does not start any more', { cause: why });
  }

  #unmount(): void {
    if (this.hasOwnDisk) spawnSync('umount', ['-l', this.dataDir]);
    rmSync(this.dataDir, { recursive: true, force: true });
  }

  /** Not what they fork, which bears the same name at first. */
  #zygotes(): readonly number[] {
    const family = this.#pids(cmdline => cmdline.startsWith('rookery: zygote'));
    return family.filter(pid => linkOf(pid, 1).startsWith(`${this.dataDir}/run/`) && !family.includes(parentOf(pid)));
  }

  #pids(isWanted: (cmdline: string) => boolean = () => true): readonly number[] {
    const own = process.pid;
    return readdirSync('/proc')
      .filter(name => /^\d+$/.test(name) && Number(name) !== own)
      .map(Number)
      .filter(pid => {
        const cmdline = cmdlineOf(pid);
        return (
          (cmdline.includes(this.dataDir) ||
            linkOf(pid, 0).startsWith(`${this.dataDir}/`) ||
            linkOf(pid, 1).startsWith(`${this.dataDir}/`)) &&
          isWanted(cmdline)
        );
      });
  }
}

function kill(pid: number, signal: NodeJS.Signals): void {
  try {
    if (pid > 1) process.kill(pid, signal);
  } catch {
    // It has ended.
  }
}

function cmdlineOf(pid: number): string {
  try {
    return readFileSync(`/proc/${pid}/cmdline`, 'utf8');
  } catch {
    return '';
  }
}

function parentOf(pid: number): number {
  try {
    return Number(/^PPid:\s+(\d+)$/m.exec(readFileSync(`/proc/${pid}/status`, 'utf8'))?.[1]);
  } catch {
    return 0;
  }
}

/** Where a descriptor leads. */
function linkOf(pid: number, descriptor: number): string {
  try {
    return readlinkSync(`/proc/${pid}/fd/${descriptor}`);
  } catch {
    return '';
  }
}

async function freePort(): Promise<number> {
  const server = createServer();
  await new Promise<void>(resolve => server.listen(0, '127.0.0.1', resolve));
  const address = server.address();
  await new Promise(resolve => server.close(resolve));
  if (address === null || typeof address === 'string') throw new Error('no free port');
  return address.port;
}
