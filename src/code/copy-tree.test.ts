import { type ChildProcess, execFileSync, spawn, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import {
  chmod,
  chown,
  mkdir,
  mkdtemp,
  readdir,
  readFile,
  readlink,
  rename,
  rm,
  stat,
  symlink,
  truncate,
  writeFile,
} from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { describeWith } from '../../test/probe.ts';
import { type OpenedPath, openPath } from '../lib/opened-path.ts';
import { type CopyLimits, copyTree } from './copy-tree.ts';

const LIMITS: CopyLimits = { maxBytes: 10_000, maxEntries: 100 };
let directory: string;
let source: string;
let copies = 0;

beforeEach(async () => {
  directory = await mkdtemp(join(tmpdir(), 'rookery-copy-'));
  source = join(directory, 'source');
  await mkdir(source);
});
afterEach(async () => {
  await rm(directory, { recursive: true, force: true });
});

async function copy(limits = LIMITS, before: () => Promise<void> = async () => {}): Promise<string> {
  const opened = (await openPath(source)) as OpenedPath;
  copies += 1;
  const target = join(directory, `copy-${copies}`);
  try {
    await before();
    await copyTree(opened, target, limits);
    return target;
  } finally {
    await opened.close();
  }
}

describe('a copy', () => {
  it('a copy has the files, the directories and their permissions', async () => {
    await mkdir(join(source, 'a/b'), { recursive: true });
    await writeFile(join(source, 'a/b/run'), '#!');
    await chmod(join(source, 'a/b/run'), 0o755);
    await writeFile(join(source, 'odd\nname'), 'x'.repeat(5000));
    await chmod(join(source, 'a'), 0o751);
    const made = await copy();
    expect(await readFile(join(made, 'a/b/run'), 'utf8')).toBe('#!');
    expect((await stat(join(made, 'a/b/run'))).mode & 0o7777).toBe(0o755);
    expect((await stat(join(made, 'a'))).mode & 0o7777).toBe(0o751);
    expect((await readFile(join(made, 'odd\nname'))).length).toBe(5000);
  });

  it('a copy has links as links, wherever they lead', async () => {
    await symlink('/etc/shadow', join(source, 'secret'));
    await symlink('/etc', join(source, 'etc'));
    await symlink('nowhere', join(source, 'broken'));
    const made = await copy();
    expect(await readlink(join(made, 'secret'))).toBe('/etc/shadow');
    expect(await readlink(join(made, 'etc'))).toBe('/etc');
    expect(await readlink(join(made, 'broken'))).toBe('nowhere');
  });

  it('a copy has no set-user-ID or set-group-ID bits', async () => {
    await writeFile(join(source, 'su'), '');
    await chmod(join(source, 'su'), 0o6755);
    await mkdir(join(source, 'd'));
    await chmod(join(source, 'd'), 0o3755);
    const made = await copy();
    expect((await stat(join(made, 'su'))).mode & 0o7777).toBe(0o755);
    expect((await stat(join(made, 'd'))).mode & 0o7777).toBe(0o755);
  });

  it('a copy has the content of the opened directory when another one replaces it meanwhile', async () => {
    await writeFile(join(source, 'main.py'), 'mine');
    const made = await copy(LIMITS, async () => {
      await rename(source, join(directory, 'moved'));
      await symlink('/etc', source);
    });
    expect(await readdir(made)).toEqual(['main.py']);
  });

  it('a copy refuses pipes', async () => {
    execFileSync('mkfifo', [join(source, 'pipe')]);
    await expect(copy()).rejects.toThrow('"pipe" is neither a file nor a directory nor a link');
  });

  it.each([
    ['bytes in one file', async () => writeFile(join(source, 'big'), 'x'.repeat(10_001))],
    [
      'bytes in all files',
      async () => {
        for (const name of ['a', 'b', 'c']) await writeFile(join(source, name), 'x'.repeat(4000));
      },
    ],
    [
      'bytes that are not on the disk',
      async () => {
        await writeFile(join(source, 'sparse'), '');
        await truncate(join(source, 'sparse'), 2 ** 40);
      },
    ],
  ])('a copy has a limit of %s', async (_, make) => {
    await make();
    await expect(copy()).rejects.toMatchObject({
      code: 'failed_precondition',
      message: 'it is larger than 10000 bytes',
    });
  });

  it('a copy has a limit of entries and of depth', async () => {
    for (let n = 0; n < 34; n++) {
      await writeFile(join(source, `f${n}`), '');
      await mkdir(join(source, `d${n}`));
      await symlink('x', join(source, `l${n}`));
    }
    await expect(copy()).rejects.toThrow('there are more than 100 files and directories');
    source = join(directory, 'deep');
    await mkdir(join(source, ...Array.from({ length: 129 }, () => 'd')), { recursive: true });
    await expect(copy({ ...LIMITS, maxEntries: 1000 })).rejects.toThrow('is more than 128 directories deep');
  });
});

describeWith(['root'], 'a copy by root', () => {
  it('a copy by root keeps the owner of private files and gives the others to the service', async () => {
    await writeFile(join(source, 'open'), '');
    await writeFile(join(source, 'private'), 'secret');
    await chmod(join(source, 'private'), 0o600);
    await mkdir(join(source, 'closed'), { mode: 0o700 });
    for (const name of ['open', 'private', 'closed']) await chown(join(source, name), 1234, 1234);
    const made = await copy();
    expect(await stat(join(made, 'open'))).toMatchObject({ uid: 0, gid: 0 });
    expect(await stat(join(made, 'private'))).toMatchObject({ uid: 1234, gid: 1234 });
    expect(await stat(join(made, 'closed'))).toMatchObject({ uid: 1234, gid: 1234 });
  });

  it('a copy by root refuses devices', async () => {
    execFileSync('mknod', [join(source, 'null'), 'c', '1', '3']);
    await expect(copy()).rejects.toThrow('"null" is neither a file nor a directory nor a link');
  });

  it('a directory and a file that are swapped for links during the copy lead nowhere', async () => {
    const secret = join(directory, 'secret');
    await mkdir(secret);
    await writeFile(join(secret, 'x'), 'secret');
    const script = `
import os
os.chdir(${JSON.stringify(source)})
for n in range(8):
    os.mkdir("d%d" % n); open("d%d/x" % n, "w").close(); open("f%d" % n, "w").close()
print("ready", flush=True)
while True:
    for n in range(8):
        d, f = "d%d" % n, "f%d" % n
        os.rename(d, d + "~"); os.symlink(${JSON.stringify(secret)}, d)
        os.rename(f, f + "~"); os.symlink(${JSON.stringify(`${secret}/x`)}, f)
        os.unlink(d); os.rename(d + "~", d); os.unlink(f); os.rename(f + "~", f)
`;
    const swapper: ChildProcess = spawn('python3', ['-c', script], { stdio: ['ignore', 'pipe', 'inherit'] });
    try {
      await once(swapper.stdout as NodeJS.ReadableStream, 'data');
      for (let n = 0; n < 8; n++) {
        const made = await copy();
        // Status 1 means that grep found nothing. grep -r follows no links.
        expect(spawnSync('grep', ['-r', 'secret', made])).toMatchObject({ status: 1 });
        await rm(made, { recursive: true });
      }
    } finally {
      swapper.kill('SIGKILL');
      await once(swapper, 'exit');
    }
  });
});
