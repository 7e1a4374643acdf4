import { execFileSync } from 'node:child_process';
import { mkdirSync, mkdtempSync, renameSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { describeWith } from '../../../test/probe.ts';
import { watchTree } from './watch-tree.ts';

let root: string;
let seen: Set<string>;
let failures: Error[];
let watching: { close(): void };

beforeEach(() => {
  root = mkdtempSync(join(tmpdir(), 'rookery-watch-'));
  mkdirSync(join(root, 'package'));
  mkdirSync(join(root, 'node_modules'));
  writeFileSync(join(root, 'package/a.py'), '1');
  seen = new Set();
  failures = [];
  watching = watchTree(
    root,
    path => path.startsWith('node_modules'),
    path => seen.add(path),
    error => failures.push(error),
  );
});
afterEach(() => {
  watching.close();
  rmSync(root, { recursive: true, force: true });
});

const isSeen = async (path: string) => {
  await expect.poll(() => [...seen]).toContain(path);
  seen.clear();
};

test('watchTree reports a file each time another file is renamed over it', async () => {
  for (const text of ['2', '3', '4']) {
    writeFileSync(join(root, 'new'), text);
    renameSync(join(root, 'new'), join(root, 'package/a.py'));
    await isSeen('package/a.py');
  }
});

test('watchTree watches directories that are created or renamed later, with their content', async () => {
  mkdirSync(join(root, 'more/deep'), { recursive: true });
  await isSeen('more');
  await expect
    .poll(() => {
      writeFileSync(join(root, 'more/deep/b.py'), String(Math.random()));
      return [...seen];
    })
    .toContain('more/deep/b.py');
  renameSync(join(root, 'more'), join(root, 'other'));
  await isSeen('other');
  await expect
    .poll(() => {
      writeFileSync(join(root, 'other/deep/b.py'), String(Math.random()));
      return [...seen];
    })
    .toContain('other/deep/b.py');
});

test('watchTree reports each replacement of the watched directory', async () => {
  const changedInside = () =>
    expect
      .poll(() => {
        writeFileSync(join(root, 'package/a.py'), String(Math.random()));
        return [...seen];
      })
      .toContain('package/a.py');
  for (const round of ['1', '2']) {
    const next = mkdtempSync(join(tmpdir(), 'rookery-watch-'));
    mkdirSync(join(next, 'package'));
    writeFileSync(join(next, 'package/a.py'), round);
    renameSync(root, `${root}.old`);
    renameSync(next, root);
    await isSeen('');
    await changedInside();
    rmSync(`${root}.old`, { recursive: true });
    seen.clear();
  }
  // The directory is removed and created again.
  rmSync(root, { recursive: true });
  mkdirSync(join(root, 'package'), { recursive: true });
  await isSeen('');
  await changedInside();
  expect(failures).toEqual([]);
});

test.each<[string, (file: string) => void]>([
  [
    'under another name and renames it (VS Code, gedit)',
    file => {
      writeFileSync(`${file}.tmp-1`, 'new');
      renameSync(`${file}.tmp-1`, file);
    },
  ],
  [
    'after a rename of the old file (Vim)',
    file => {
      renameSync(file, `${file}~`);
      writeFileSync(file, 'new');
      rmSync(`${file}~`);
    },
  ],
  [
    'after a removal of the old file',
    file => {
      rmSync(file);
      writeFileSync(file, 'new');
    },
  ],
  ['in place', file => writeFileSync(file, 'new')],
])('watchTree reports each save when an editor writes a file %s', async (_how, save) => {
  for (let time = 0; time < 2; time++) {
    save(join(root, 'package/a.py'));
    await isSeen('package/a.py');
  }
  expect(failures).toEqual([]);
});

test('watchTree ignores an ignored directory, and a removed directory is not a failure', async () => {
  writeFileSync(join(root, 'node_modules/x'), '1');
  rmSync(join(root, 'package'), { recursive: true });
  await isSeen('package');
  writeFileSync(join(root, 'last'), '1');
  await isSeen('last');
  expect([...seen].filter(path => path.startsWith('node_modules'))).toEqual([]);
  expect(failures).toEqual([]);
});

describeWith(['namespaces'], 'watchTree when the user has no inotify watch left', () => {
  test.each([
    ['instances', 'max_inotify_instances', 0],
    ['watches', 'max_inotify_watches', 0],
    ['watches after the first', 'max_inotify_watches', 1],
  ])('a lack of %s is reported, and changes, new directories and removals are seen', (_title, limit, most) => {
    const program = join(root, 'program.mts');
    const module = JSON.stringify(new URL('watch-tree.ts', import.meta.url).href);
    writeFileSync(
      program,
      `import { mkdirSync, rmSync, writeFileSync } from 'node:fs';
import { watchTree } from ${module};
process.chdir(${JSON.stringify(root)});
const waiting = new Map<string, () => void>();
const seen = (path: string) => new Promise<void>(resolve => waiting.set(path, resolve));
const watching = watchTree(process.cwd(), path => path.startsWith('node_modules'), path => waiting.get(path)?.(), error => console.log(error.message), 50);
const change = async (path: string, act: () => void) => { const told = seen(path); act(); await told; };
await change('package/a.py', () => writeFileSync('package/a.py', 'longer'));
await change('more/b.py', () => { mkdirSync('more'); writeFileSync('more/b.py', ''); });
await change('package', () => rmSync('package', { recursive: true }));
watching.close();
console.log('seen');
`,
    );
    // The limit belongs to a new user namespace, so watches of other users are not affected.
    const script = `echo ${most} > /proc/sys/user/${limit} && exec "$0" --import tsx ${program}`;
    const said = execFileSync('unshare', [
      '--user',
      '--map-root-user',
      'sh',
      '-c',
      script,
      process.execPath,
    ]).toString();
    expect(said).toMatch(
      /^the kernel has no watch left for this user \(E.+\). The directory is read every 0\.05 s instead; .+\nseen\n$/,
    );
  });
});
