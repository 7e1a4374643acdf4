import { execFileSync } from 'node:child_process';
import { mkdirSync, mkdtempSync, rmdirSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, expect, test, vi } from 'vitest';
import { describeWith } from '../../test/probe.ts';
import { watchDirectory } from './watch-directory.ts';

let directory: string;

beforeEach(() => {
  directory = mkdtempSync(join(tmpdir(), 'rookery-watch-'));
});

afterEach(() => rmSync(directory, { recursive: true, force: true }));

test('a watcher is notified of a change', async () => {
  await new Promise<void>(seen => {
    const watching = watchDirectory(directory, () => {
      watching.close();
      seen();
    });
    writeFileSync(join(directory, 'file'), '');
  });
});

test('many watchers of one directory are notified once for many changes, and each ends only its own watch', async () => {
  const calls = Array.from({ length: 100 }, () => 0);
  const watching = calls.map((_, index) => watchDirectory(directory, () => (calls[index] as number)++));
  for (let file = 0; file < 1000; file++) writeFileSync(join(directory, `file-${file}`), '');
  await vi.waitFor(() => expect(Math.min(...calls)).toBeGreaterThan(0));
  expect(Math.max(...calls)).toBeLessThan(100);
  for (const each of watching.slice(1)) {
    each.close();
    each.close();
  }
  const before = [...calls];
  writeFileSync(join(directory, 'one more'), '');
  await vi.waitFor(() => expect(calls[0]).toBeGreaterThan(before[0] as number));
  expect(calls.slice(1)).toEqual(before.slice(1));
  watching[0]?.close();
});

test('a directory that is created again under the same name gets a new watch', async () => {
  const path = join(directory, 'again');
  mkdirSync(path);
  const old = watchDirectory(path, () => undefined);
  rmdirSync(path);
  mkdirSync(path);
  let calls = 0;
  const watching = watchDirectory(path, () => calls++);
  writeFileSync(join(path, 'file'), '');
  await vi.waitFor(() => expect(calls).toBeGreaterThan(0));
  old.close();
  watching.close();
});

test('a watch of a missing directory fails', () => {
  expect(() => watchDirectory(join(directory, 'none'), () => undefined)).toThrow('ENOENT');
});

describeWith(['namespaces'], 'watchDirectory without a free inotify watch', () => {
  test.each([
    ['instances', 'max_inotify_instances'],
    ['watches', 'max_inotify_watches'],
  ])('a watch without a free inotify watch, %s, reports a change and ends with its close', (_title, limit) => {
    const program = join(directory, 'program.mts');
    const module = JSON.stringify(new URL('watch-directory.ts', import.meta.url).href);
    writeFileSync(
      program,
      `import { watch, writeFileSync } from 'node:fs';
import { watchDirectory } from ${module};
try { watch(${JSON.stringify(directory)}); console.log('watched'); } catch (error) { console.log(error.code); }
await new Promise<void>(seen => {
  const watching = watchDirectory(${JSON.stringify(directory)}, () => { watching.close(); seen(); });
  writeFileSync(${JSON.stringify(join(directory, 'file'))}, '');
});
console.log('seen');
`,
    );
    // The limit applies to a new user namespace only, so other processes keep their watches.
    const script = `echo 0 > /proc/sys/user/${limit} && exec "$0" --import tsx ${program}`;
    const said = execFileSync('unshare', [
      '--user',
      '--map-root-user',
      'sh',
      '-c',
      script,
      process.execPath,
    ]).toString();
    expect(said).toMatch(/^(EMFILE|ENOSPC)\nseen\n$/);
  });
});
