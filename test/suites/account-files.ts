import { createHash, randomUUID } from 'node:crypto';
import { Readable } from 'node:stream';
import { text } from 'node:stream/consumers';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import type { SandboxAccess } from '../../src/sandbox/access.ts';
import type { SandboxHandle } from '../../src/sandbox/driver.ts';
import type { DirectoryWatch, WatchEvent } from '../../src/sandbox/files.ts';
import { available } from '../parts/available.ts';
import { type DriverUnderTest, isError } from './sandbox-driver.ts';

const WAIT_MS = 90_000;
const MANY = 500;
const OF_USER = { user: null };

/** Tests the contract of `src/sandbox/files.ts` in a sandbox with a shell and the usual small programs. */
export function describeAccountFiles(name: string, create: () => Promise<DriverUnderTest>, makeMs?: number): void {
  describe(name, { timeout: 120_000 }, () => {
    let under: DriverUnderTest;
    let handle: SandboxHandle;
    let access: SandboxAccess;
    const watches: DirectoryWatch[] = [];

    beforeAll(async () => {
      under = await create();
      await available(under.driver);
      handle = (await under.driver.start(under.spec(), signal())).handle;
      access = accessOf(handle);
    }, makeMs);

    afterAll(async () => {
      for (const watch of watches) watch.close();
      if (handle !== undefined) await under.driver.remove(handle);
      await under.dispose();
    });

    const signal = () => AbortSignal.timeout(WAIT_MS);

    const accessOf = (of: SandboxHandle): SandboxAccess => {
      const given = under.driver.access?.(of);
      if (given === undefined) throw new Error('the driver gives no access');
      return given;
    };

    /** Makes an empty directory. */
    const enter = async () => {
      const directory = `/tmp/rookery-account-${randomUUID()}`;
      await access.createDirectory(directory, OF_USER, signal());
      return directory;
    };

    const put = (path: string, content: string, metadata: Record<string, string> | null = null) =>
      access.writeInPlace(path, { user: null, metadata }, Readable.from([Buffer.from(content)]), signal());

    const get = async (path: string) => {
      const file = await access.readFile(path, OF_USER, signal());
      return await text(file.read(0, file.sizeBytes));
    };

    const stat = (path: string) => access.statFile(path, OF_USER, signal());

    const run = async (script: string) => {
      const exec = await access.openExec(
        { argv: ['sh', '-c', script], workingDir: '', env: {}, terminal: null },
        signal(),
      );
      const [stdout] = await Promise.all([text(exec.stdout), text(exec.stderr), exec.ended]);
      return stdout;
    };

    const watchOf = async (path: string, recursive = false, withFacts = false) => {
      const watch = await access.watchDirectory(
        path,
        { user: null, recursive, withFacts },
        new AbortController().signal,
      );
      watches.push(watch);
      return watch;
    };

    const eventsOf = async (watch: DirectoryWatch) => {
      await watch.flush();
      return watch.drain();
    };

    const short = (events: readonly WatchEvent[]) => events.map(event => `${event.type} ${event.name}`);

    describe('statFile', () => {
      test('statFile returns type, size, mode, time and owner of a file', async () => {
        const directory = await enter();
        await put(`${directory}/file`, 'content');
        await run(`chmod 640 ${directory}/file && touch -d @1700000000.5 ${directory}/file`);
        const facts = await stat(`${directory}/./x/../file`);
        expect(facts).toMatchObject({
          path: `${directory}/file`,
          type: 'file',
          sizeBytes: 7,
          mode: 0o640,
          modifiedAtMs: 1_700_000_000_500,
          metadata: {},
          target: null,
        });
        expect(`${facts.owner} ${facts.group}\n`).toBe(
          await run(`stat -c '%U %G' ${directory}/file | sed "s/UNKNOWN/$(id -u)/g"`),
        );
      });

      test('statFile returns a link with its resolved target', async () => {
        const directory = await enter();
        await run(
          `cd ${directory} && mkdir real && echo hi > real/file && chmod 600 real/file && ln -s real/file link && ln -s nowhere broken`,
        );
        expect(await stat(`${directory}/link`)).toMatchObject({
          type: 'symlink',
          target: { path: `${directory}/real/file`, type: 'file', mode: 0o600, sizeBytes: 3 },
        });
        expect(await stat(`${directory}/broken`)).toMatchObject({
          type: 'symlink',
          target: { path: 'nowhere', type: null },
        });
      });

      test('statFile fails with not_found when the entry or its directory is missing', async () => {
        const directory = await enter();
        await put(`${directory}/file`, '');
        for (const path of [`${directory}/no`, `${directory}/no/x`, `${directory}/file/x`]) {
          await expect(stat(path)).rejects.toSatisfy(isError('not_found'));
        }
      });

      test('statFile fails with invalid_request when the path cannot name an entry', async () => {
        for (const path of ['', 'a\0b', `/${'x'.repeat(300)}`]) {
          await expect(stat(path)).rejects.toSatisfy(isError('invalid_request'));
        }
      });

      test('statFile accepts names with any characters', async () => {
        const directory = await enter();
        for (const name of [' leading', '%2e%2e', '"quotes"', "it's", '#?&+;', 'ü日本', '-n', 'a\nb', '\\', '~x']) {
          await put(`${directory}/${name}`, name);
          expect((await stat(`${directory}/${name}`)).path).toBe(`${directory}/${name}`);
          expect(await get(`${directory}/${name}`)).toBe(name);
        }
      });
    });

    describe('writeInPlace', () => {
      test('writeInPlace creates the file and its missing parents', async () => {
        const directory = await enter();
        const facts = await put(`${directory}/a/b/file`, 'content');
        expect(facts).toMatchObject({ path: `${directory}/a/b/file`, type: 'file', sizeBytes: 7, mode: 0o644 });
        expect(await stat(`${directory}/a`)).toMatchObject({ type: 'directory', mode: 0o755 });
        expect(await get(`${directory}/a/b/file`)).toBe('content');
      });

      test('writeInPlace keeps the inode and the mode of an existing file', async () => {
        const directory = await enter();
        const path = `${directory}/file`;
        await run(`echo longer content > ${path}; chmod 711 ${path}`);
        const before = await run(`stat -c %i ${path}`);
        expect(await put(path, 'new')).toMatchObject({ sizeBytes: 3, mode: 0o711 });
        expect(await run(`stat -c %i ${path}; cat ${path}`)).toBe(`${before}new`);
      });

      test('writeInPlace follows links, also one without a target', async () => {
        const directory = await enter();
        await run(`cd ${directory} && echo old > target && ln -s target link && ln -s made broken`);
        await put(`${directory}/link`, 'new');
        await put(`${directory}/broken`, 'made');
        expect(await run(`cd ${directory} && cat target made && ls`)).toBe('newmadebroken\nlink\nmade\ntarget\n');
      });

      test('writeInPlace writes empty and large content', async () => {
        const directory = await enter();
        expect(await put(`${directory}/empty`, '')).toMatchObject({ sizeBytes: 0 });
        const parts = Array.from({ length: 20 }, (_each, index) => Buffer.alloc(1_000_000, index));
        const options = { user: null, metadata: null };
        const facts = await access.writeInPlace(`${directory}/large`, options, Readable.from(parts), signal());
        expect(facts.sizeBytes).toBe(20_000_000);
        expect(await run(`sha256sum < ${directory}/large`)).toBe(shaOf(parts));
      });

      test('writeInPlace replaces all metadata, and keeps them without any', async () => {
        const directory = await enter();
        const path = `${directory}/file`;
        expect((await put(path, 'x', { kind: 'first', other: 'a b' })).metadata).toEqual({
          kind: 'first',
          other: 'a b',
        });
        expect((await put(path, 'y')).metadata).toEqual({ kind: 'first', other: 'a b' });
        expect((await put(path, 'z', { kind: 'second' })).metadata).toEqual({ kind: 'second' });
        expect((await stat(path)).metadata).toEqual({ kind: 'second' });
        expect((await put(path, 'z', {})).metadata).toEqual({});
      });

      test('writeInPlace fails with invalid_request when the path is a directory, a pipe or below a file', async () => {
        const directory = await enter();
        await run(`cd ${directory} && mkdir sub && mkfifo pipe && echo x > file`);
        for (const name of ['sub', 'pipe', 'file/x']) {
          await expect(put(`${directory}/${name}`, 'x')).rejects.toSatisfy(isError('invalid_request'));
        }
      });
    });

    describe('readFile', () => {
      test('readFile returns the content of files whose size is unknown', async () => {
        const content = await get('/proc/1/status');
        expect(content).toContain('Pid:');
        expect(await get('/proc/version')).toBe(await run('cat /proc/version'));
      });

      test('readFile returns a part of a file', async () => {
        const directory = await enter();
        await put(`${directory}/file`, '0123456789');
        const file = await access.readFile(`${directory}/file`, OF_USER, signal());
        expect(await text(file.read(2, 5))).toBe('234');
      });

      test('readFile fails for a directory, a pipe and a missing file', async () => {
        const directory = await enter();
        await run(`mkfifo ${directory}/pipe`);
        await expect(get(directory)).rejects.toSatisfy(isError('invalid_request'));
        await expect(get(`${directory}/pipe`)).rejects.toSatisfy(isError('invalid_request'));
        await expect(get(`${directory}/no`)).rejects.toSatisfy(isError('not_found'));
      });
    });

    describe('listTree', () => {
      const list = async (path: string, maxDepth: number, maxEntries = 1000) => {
        const options = { user: null, maxDepth, maxEntries };
        const { entries, truncated } = await access.listTree(path, options, signal());
        return { names: entries.map(entry => entry.path.slice(path.length + 1)), entries, truncated };
      };

      test('listTree lists depth-first in byte order, parents before children', async () => {
        const directory = await enter();
        await run(`cd ${directory} && mkdir -p a/x B && touch a/x/deep a/1 a-b ab B/2 ü`);
        expect((await list(directory, 1)).names).toEqual(['B', 'a', 'a-b', 'ab', 'ü']);
        expect((await list(directory, 2)).names).toEqual(['B', 'B/2', 'a', 'a/1', 'a/x', 'a-b', 'ab', 'ü']);
        expect((await list(directory, 9)).names).toContain('a/x/deep');
      });

      test('listTree follows a link only at the given path', async () => {
        const directory = await enter();
        await run(`cd ${directory} && mkdir real && touch real/file && ln -s real link`);
        expect((await list(`${directory}/link`, 3)).names).toEqual(['file']);
        expect((await list(directory, 3)).names).toEqual(['link', 'real', 'real/file']);
      });

      test('listTree cuts a long list and says so', async () => {
        const directory = await enter();
        await run(`cd ${directory} && touch a b c d`);
        expect(await list(directory, 1, 3)).toMatchObject({ names: ['a', 'b', 'c'], truncated: true });
        expect(await list(directory, 1, 4)).toMatchObject({ names: ['a', 'b', 'c', 'd'], truncated: false });
      });

      test('listTree fails for a file and a missing directory', async () => {
        const directory = await enter();
        await put(`${directory}/file`, 'x');
        await expect(list(`${directory}/file`, 1)).rejects.toSatisfy(isError('invalid_request'));
        await expect(list(`${directory}/no`, 1)).rejects.toSatisfy(isError('not_found'));
      });
    });

    describe('createDirectory', () => {
      test('createDirectory makes missing parents', async () => {
        const directory = await enter();
        const facts = await access.createDirectory(`${directory}/a/b`, OF_USER, signal());
        expect(facts).toMatchObject({ path: `${directory}/a/b`, type: 'directory', mode: 0o755 });
      });

      test('createDirectory fails when something exists', async () => {
        const directory = await enter();
        await put(`${directory}/file`, 'x');
        const make = (path: string) => access.createDirectory(path, OF_USER, signal());
        await expect(make(directory)).rejects.toSatisfy(isError('already_exists'));
        await expect(make(`${directory}/file`)).rejects.toSatisfy(isError('invalid_request'));
        await expect(make(`${directory}/file/x`)).rejects.toSatisfy(isError('invalid_request'));
      });
    });

    describe('renameFile', () => {
      const move = (from: string, to: string) => access.renameFile(from, to, OF_USER, signal());

      test('renameFile moves an entry, makes parents and replaces a file', async () => {
        const directory = await enter();
        await put(`${directory}/a`, 'first');
        expect(await move(`${directory}/a`, `${directory}/sub/b`)).toMatchObject({ path: `${directory}/sub/b` });
        await put(`${directory}/c`, 'second');
        await move(`${directory}/c`, `${directory}/sub/b`);
        expect(await get(`${directory}/sub/b`)).toBe('second');
        await expect(stat(`${directory}/c`)).rejects.toSatisfy(isError('not_found'));
      });

      test('renameFile leaves nothing when the source is missing', async () => {
        const directory = await enter();
        await expect(move(`${directory}/no`, `${directory}/made/x`)).rejects.toSatisfy(isError('not_found'));
        expect(await run(`ls ${directory}`)).toBe('');
      });
    });

    describe('removeFile', () => {
      const remove = (path: string) => access.removeFile(path, OF_USER, signal());

      test('removeFile removes a tree and follows no link', async () => {
        const directory = await enter();
        await run(
          `cd ${directory} && mkdir -p tree/a/b/c tree/d keep && touch tree/a/1 tree/a/b/2 keep/file && ln -s ../keep tree/link && ln -s / tree/a/root`,
        );
        await remove(`${directory}/tree`);
        expect(await run(`cd ${directory} && ls && ls keep`)).toBe('keep\nfile\n');
      });

      test('removeFile removes a tree that is deeper than a path can be', async () => {
        const directory = await enter();
        const script = [
          'import os',
          `os.chdir("${directory}")`,
          'for depth in range(60):',
          '    os.mkdir("d" * 200)',
          '    os.chdir("d" * 200)',
          'print(depth)',
        ].join('\n');
        expect(await run(`python3 -c '${script}'`)).toBe('59\n');
        await remove(`${directory}/${'d'.repeat(200)}`);
        expect(await run(`ls ${directory}`)).toBe('');
      });

      test('removeFile succeeds when nothing exists', async () => {
        const directory = await enter();
        await put(`${directory}/file`, 'x');
        await remove(`${directory}/no`);
        await remove(`${directory}/no/x`);
        await remove(`${directory}/file/x`);
        expect(await get(`${directory}/file`)).toBe('x');
      });
    });

    describe('watchDirectory', () => {
      test('a watch reports exactly create, chmod and write of a new file', async () => {
        const directory = await enter();
        const watch = await watchOf(directory);
        await put(`${directory}/file`, 'content', { key: 'value', other: 'value' });
        expect(short(await eventsOf(watch))).toEqual(['create file', 'chmod file', 'write file']);
      });

      test('a watch reports a written file by its name only, new or replaced', async () => {
        const directory = await enter();
        const watch = await watchOf(directory, true);
        for (const content of ['new', 'replaced']) {
          const body = Readable.from([Buffer.from(content)]);
          await access.writeFile(`${directory}/file`, { mode: null }, body, signal());
          expect(short(await eventsOf(watch))).toEqual(['create file']);
        }
        await put(`${directory}/#47`, 'content');
        expect(short(await eventsOf(watch))).toEqual(['create #47', 'chmod #47', 'write #47']);
      });

      test('a watch reports changes at once: directories, renames, modes and removals', async () => {
        const directory = await enter();
        await put(`${directory}/file`, 'x');
        const watch = await watchOf(directory);
        await access.createDirectory(`${directory}/sub`, OF_USER, signal());
        expect(short(await eventsOf(watch))[0]).toBe('create sub');
        await access.renameFile(`${directory}/file`, `${directory}/new`, OF_USER, signal());
        expect(short(await eventsOf(watch))).toEqual(['rename file', 'create new']);
        await run(`chmod 600 ${directory}/new`);
        expect(short(await eventsOf(watch))).toEqual(['chmod new']);
        await access.removeFile(`${directory}/new`, OF_USER, signal());
        expect(short(await eventsOf(watch))).toEqual(['remove new']);
        await run(`echo hi > ${directory}/sub/below; echo hi > ${directory}/top`);
        const events = short(await eventsOf(watch));
        expect(events.filter(event => event.endsWith('below'))).toEqual([]);
        expect(events[0]).toBe('create top');
        expect(events).toContain('write top');
      });

      test('a recursive watch reports changes in directories that are made later', async () => {
        const directory = await enter();
        await run(`mkdir -p ${directory}/old`);
        const watch = await watchOf(directory, true);
        await run(`cd ${directory} && mkdir -p one/two && echo hi > one/two/file && echo hi > old/file`);
        const events = short(await eventsOf(watch));
        for (const name of [
          'create one',
          'create one/two',
          'create one/two/file',
          'write one/two/file',
          'create old/file',
        ]) {
          expect(events.filter(event => event === name).length, name).toBeGreaterThan(0);
        }
        await put(`${directory}/one/two/three/later`, 'x');
        expect(short(await eventsOf(watch))).toEqual(
          expect.arrayContaining(['create one/two/three', 'create one/two/three/later', 'write one/two/three/later']),
        );
        await run(`cd ${directory} && mv one moved && echo x > moved/two/again`);
        const moved = short(await eventsOf(watch));
        expect(moved[0]).toBe('rename one');
        expect(moved).toEqual(expect.arrayContaining(['create moved', 'create moved/two/again']));
        expect(moved.filter(event => event.includes(' one/'))).toEqual([]);
      });

      test(`a watch loses none of ${MANY} new files`, async () => {
        const directory = await enter();
        const watch = await watchOf(directory, true);
        await run(
          `cd ${directory} && mkdir sub && i=0; while [ $i -lt ${MANY} ]; do : > f$i; : > sub/f$i; i=$((i+1)); done`,
        );
        const created = new Set(short(await eventsOf(watch)).filter(event => event.startsWith('create')));
        expect(created.size).toBe(2 * MANY + 1);
      });

      test('a watch reports facts of entries that exist', async () => {
        const directory = await enter();
        const watch = await watchOf(directory, false, true);
        await put(`${directory}/file`, 'abc');
        const events = await eventsOf(watch);
        expect(events.at(-1)).toMatchObject({ type: 'write', facts: { path: `${directory}/file`, sizeBytes: 3 } });
        await access.removeFile(`${directory}/file`, OF_USER, signal());
        expect(await eventsOf(watch)).toEqual([{ type: 'remove', name: 'file' }]);
      });

      test('a watch yields its events while they happen, and ends when it is closed', async () => {
        const directory = await enter();
        const watch = await watchOf(directory);
        const seen: string[] = [];
        const reading = (async () => {
          for await (const event of watch) {
            seen.push(`${event.type} ${event.name}`);
            if (event.name === 'last') break;
          }
        })();
        await run(`touch ${directory}/first ${directory}/last`);
        await reading;
        expect(seen[0]).toBe('create first');
        expect(await watch.ended).toBeNull();
      });

      test('two watches of one directory are independent', async () => {
        const directory = await enter();
        const [one, other] = [await watchOf(directory), await watchOf(directory)];
        await run(`touch ${directory}/file`);
        expect(short(await eventsOf(one))[0]).toBe('create file');
        one.close();
        expect(short(await eventsOf(other))[0]).toBe('create file');
      });

      test('a watch fails when the path is no directory', async () => {
        const directory = await enter();
        await put(`${directory}/file`, 'x');
        await expect(watchOf(`${directory}/file`)).rejects.toSatisfy(isError('invalid_request'));
        await expect(watchOf(`${directory}/no`)).rejects.toSatisfy(isError('not_found'));
      });

      test('a watch ends with unavailable when the sandbox ends', async () => {
        const { handle: own } = await under.driver.start(under.spec(), signal());
        try {
          const options = { user: null, recursive: false, withFacts: false };
          const watch = await accessOf(own).watchDirectory('/tmp', options, new AbortController().signal);
          const iterated = (async () => {
            for await (const _event of watch);
          })();
          iterated.catch(() => undefined);
          await under.driver.stop(own, 0);
          expect(await watch.ended).toSatisfy(isError('unavailable'));
          await expect(watch.flush()).rejects.toSatisfy(isError('unavailable'));
          await expect(iterated).rejects.toSatisfy(isError('unavailable'));
        } finally {
          await under.driver.remove(own);
        }
      });
    });

    test('all operations fail with unauthenticated for an unknown account', async () => {
      const options = { user: 'nobody-here' };
      await expect(access.statFile('/tmp', options, signal())).rejects.toSatisfy(isError('unauthenticated'));
      await expect(access.removeFile('/tmp/x', options, signal())).rejects.toSatisfy(isError('unauthenticated'));
      const watching = access.watchDirectory('/tmp', { ...options, recursive: false, withFacts: false }, signal());
      await expect(watching).rejects.toSatisfy(isError('unauthenticated'));
    });

    test('the default account resolves relative paths and ~ from its home', async () => {
      const options = { user: '' };
      const home = (await access.statFile('', options, signal())).path;
      expect((await access.statFile('~', options, signal())).path).toBe(home);
      expect((await access.statFile('~/..', options, signal())).path).toBe(home.replace(/\/[^/]*$/, '') || '/');
      await expect(access.statFile('~other/x', options, signal())).rejects.toSatisfy(isError('invalid_request'));
    });
  });
}

function shaOf(parts: readonly Buffer[]): string {
  const hash = createHash('sha256');
  for (const part of parts) hash.update(part);
  return `${hash.digest('hex')}  -\n`;
}
