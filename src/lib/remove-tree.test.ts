import { execFileSync, spawn } from 'node:child_process';
import { once } from 'node:events';
import { existsSync, mkdirSync, mkdtempSync, readFileSync, symlinkSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { describeWith } from '../../test/probe.ts';
import { removeTree } from './removals.ts';

let base: string;
let tree: string;

beforeEach(() => {
  base = mkdtempSync(join(tmpdir(), 'rookery-remove-'));
  tree = join(base, 'tree');
  mkdirSync(tree);
});

afterEach(() => {
  // These tests create trees that the removal of Node cannot delete.
  execFileSync('rm', ['-rf', base]);
});

/** Runs Python code in the tree, for paths that only a process in that directory can create. */
function python(code: string): void {
  execFileSync('python3', ['-c', `import os\nos.chdir(${JSON.stringify(tree)})\n${code}`]);
}

test.each([
  ['60 directories of 200 characters: a path longer than any system call takes', 60, 200],
  ['400 nested directories', 400, 1],
])('removeTree removes a tree of %s', async (_title, depth, length) => {
  python(
    `for _ in range(${depth}):\n    os.mkdir('d' * ${length}); os.chdir('d' * ${length}); open('file', 'w').close()`,
  );
  await removeTree(tree);
  expect(existsSync(tree)).toBe(false);
});

test('removeTree removes a wide and deep tree and leaves no open descriptor', async () => {
  python(
    `def fill(depth):\n    for n in range(4):\n        open('f%d' % n, 'w').close()\n        if depth:\n            os.mkdir('d%d' % n); os.chdir('d%d' % n); fill(depth - 1); os.chdir('..')\nfill(4)`,
  );
  await removeTree(tree);
  expect(existsSync(tree)).toBe(false);
  expect(execFileSync('ls', ['-l', `/proc/${process.pid}/fd`]).toString()).not.toContain(tree);
});

test('removeTree removes names that are not UTF-8, and names of 255 bytes', async () => {
  python(
    `os.mkdir(b'\\xff\\xfe'); open(b'\\xff\\xfe/\\x80\\n', 'w').close(); os.mkdir('x' * 255); os.mkdir('x' * 255 + '/' + 'y' * 255)`,
  );
  await removeTree(tree);
  expect(existsSync(tree)).toBe(false);
});

test('removeTree removes links without following them, also when the tree itself is a link', async () => {
  const kept = join(base, 'kept');
  mkdirSync(join(kept, 'directory'), { recursive: true });
  writeFileSync(join(kept, 'file'), 'kept');
  mkdirSync(join(tree, 'a', 'b'), { recursive: true });
  symlinkSync(kept, join(tree, 'a', 'b', 'up'));
  symlinkSync(join(kept, 'file'), join(tree, 'file'));
  symlinkSync('/nowhere', join(tree, 'dangling'));
  await removeTree(tree);
  expect(existsSync(tree)).toBe(false);
  symlinkSync(kept, tree);
  await removeTree(tree);
  expect(readFileSync(join(kept, 'file'), 'utf8')).toBe('kept');
  expect(existsSync(join(kept, 'directory'))).toBe(true);
  expect(existsSync(tree)).toBe(false);
});

test('removeTree removes pipes, sockets and files without opening them, and accepts a missing tree', async () => {
  python(`os.mkfifo('pipe')\nimport socket\nsocket.socket(socket.AF_UNIX).bind('socket')`);
  await removeTree(tree);
  await removeTree(tree);
  writeFileSync(tree, 'a file');
  await removeTree(tree);
  expect(existsSync(tree)).toBe(false);
});

test('removeTree removes a tree to which a program writes, once the program has ended', async () => {
  const program = `import os\nos.chdir(${JSON.stringify(tree)})\nprint(flush=True)\nfor n in range(5000):\n  try:\n    os.makedirs('d%d/e/f' % (n % 50)); open('d%d/e/file' % (n % 50), 'w').close()\n  except OSError:\n    pass`;
  const writer = spawn('python3', ['-c', program], { stdio: ['ignore', 'pipe', 'inherit'] });
  const ended = once(writer, 'exit');
  await once(writer.stdout, 'data');
  await removeTree(tree).catch(() => undefined);
  await ended;
  await removeTree(tree);
  expect(existsSync(tree)).toBe(false);
});

describeWith(['root'], 'removeTree with mounts and permissions of the host', () => {
  test('a mount in the tree is neither entered nor unmounted: it is reported, and the rest is removed', async () => {
    const kept = join(base, 'kept');
    mkdirSync(kept);
    writeFileSync(join(kept, 'file'), 'kept');
    const target = join(tree, 'a', 'b', 'mounted');
    mkdirSync(target, { recursive: true });
    writeFileSync(join(tree, 'a', 'b', 'other'), '');
    execFileSync('mount', ['--bind', kept, target]);
    try {
      await expect(removeTree(tree)).rejects.toThrow(/"mounted": EBUSY/);
    } finally {
      // The mount has moved with its parent directory.
      execFileSync('sh', ['-c', `grep -F ${base} /proc/self/mountinfo | cut -d ' ' -f 5 | xargs umount -l`]);
    }
    expect(readFileSync(join(kept, 'file'), 'utf8')).toBe('kept');
    await removeTree(tree);
    expect(existsSync(tree)).toBe(false);
  });

  test('removeTree reports the name and the reason of a path that cannot be removed, at each attempt', async () => {
    mkdirSync(join(tree, 'deep', 'deeper'), { recursive: true });
    writeFileSync(join(tree, 'deep', 'deeper', 'held'), '');
    try {
      execFileSync('chattr', ['+i', join(tree, 'deep', 'deeper', 'held')], { stdio: 'pipe' });
    } catch {
      // This file system has no immutable attribute, so the test does not apply.
      return;
    }
    await expect(removeTree(tree)).rejects.toThrow(/was not removed: "held": EPERM/);
    await expect(removeTree(tree)).rejects.toThrow(/"held": EPERM/);
    execFileSync('find', [tree, '-name', 'held', '-exec', 'chattr', '-i', '{}', ';']);
    await removeTree(tree);
    expect(existsSync(tree)).toBe(false);
  });

  test('removeTree removes directories without permissions as an ordinary user', () => {
    python(
      `os.makedirs('a/b/c'); open('a/b/c/file', 'w').close(); os.makedirs('e/f')\nfor path in ('a/b/c', 'a/b', 'a', 'e/f', 'e', '.'):\n    os.chmod(path, 0)`,
    );
    const program = join(base, 'program.mts');
    const module = JSON.stringify(new URL('removals.ts', import.meta.url).href);
    writeFileSync(program, `import { removeTree } from ${module};\nawait removeTree(${JSON.stringify(tree)});`);
    const without = ['--bounding-set', '-dac_override,-dac_read_search', process.execPath];
    execFileSync('setpriv', [...without, '--import', 'tsx', program], { stdio: 'pipe' });
    expect(existsSync(tree)).toBe(false);
  });
});
