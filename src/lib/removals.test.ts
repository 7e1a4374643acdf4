import { execFileSync } from 'node:child_process';
import { existsSync, mkdirSync, mkdtempSync, readdirSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, expect, test, vi } from 'vitest';
import { describeWith } from '../../test/probe.ts';
import { Removals } from './removals.ts';

let base: string;
let reported: string[];
const made: Removals[] = [];

function removals(retryMs = 5): Removals {
  const one = new Removals({
    directory: join(base, 'left'),
    report: (name, reason) => reported.push(`${name}: ${reason}`),
    retryMs,
  });
  made.push(one);
  return one;
}

beforeEach(() => {
  base = mkdtempSync(join(tmpdir(), 'rookery-removals-'));
  reported = [];
});

afterEach(() => {
  for (const one of made.splice(0)) one.close();
  execFileSync('sh', ['-c', `grep -F ${base} /proc/self/mountinfo | cut -d ' ' -f 5 | xargs -r umount -l`]);
  execFileSync('rm', ['-rf', base]);
});

test('remove deletes a path, and leaves nothing waiting and nothing reported', async () => {
  mkdirSync(join(base, 'tree', 'a'), { recursive: true });
  const one = removals();
  await one.remove(join(base, 'tree'));
  await one.remove(join(base, 'nothing'));
  expect(readdirSync(base)).toEqual([]);
  expect([one.waiting, reported]).toEqual([0, []]);
});

describeWith(['root'], 'Removals with a path that cannot be deleted', () => {
  /** Creates a directory with a busy mount point; returns a function that unmounts it. */
  const stuck = (path: string) => {
    mkdirSync(join(path, 'in', 'busy'), { recursive: true });
    writeFileSync(join(path, 'file'), '');
    execFileSync('mount', ['-t', 'tmpfs', 'none', join(path, 'in', 'busy')]);
    return () =>
      execFileSync('sh', ['-c', `grep -F ${base} /proc/self/mountinfo | cut -d ' ' -f 5 | xargs -r umount -l`]);
  };

  test('a busy path is reported, moved away at once, and deleted after its unmount', async () => {
    const tree = join(base, 'tree');
    const release = stuck(tree);
    const one = removals();
    await one.remove(tree);
    expect(existsSync(tree)).toBe(false);
    expect(one.waiting).toBe(1);
    expect(reported[0]).toContain('tree: ');
    expect(reported[0]).toContain('"busy": EBUSY (rmdir)');
    release();
    await vi.waitFor(() => expect(one.waiting).toBe(0), 20_000);
    expect(readdirSync(join(base, 'left'))).toEqual([]);
  });

  test('a busy path is deleted by the next service', async () => {
    const release = stuck(join(base, 'tree'));
    const first = removals();
    await first.remove(join(base, 'tree'));
    first.close();
    release();
    const next = removals();
    next.start();
    await vi.waitFor(() => expect(readdirSync(join(base, 'left'))).toEqual([]), 20_000);
  });

  test('a busy path stays in place when a move fails too, and is deleted after its unmount', async () => {
    const tree = join(base, 'tree');
    mkdirSync(tree);
    execFileSync('mount', ['-t', 'tmpfs', 'none', tree]);
    const one = removals();
    await one.remove(tree);
    expect([existsSync(tree), one.waiting]).toEqual([true, 1]);
    execFileSync('umount', [tree]);
    await vi.waitFor(() => expect(one.waiting).toBe(0), 20_000);
    expect(existsSync(tree)).toBe(false);
  });

  test('a retry runs on time even when another path fails meanwhile', async () => {
    for (const name of ['one', 'other']) stuck(join(base, name));
    const one = removals(1000);
    const retry = vi.spyOn(one, 'retry').mockResolvedValue();
    vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout'] });
    try {
      await one.remove(join(base, 'one'));
      vi.advanceTimersByTime(600);
      await one.remove(join(base, 'other'));
      vi.advanceTimersByTime(600);
      expect(retry).toHaveBeenCalledTimes(1);
    } finally {
      vi.useRealTimers();
    }
  });

  test('the retry delay returns to its first value once no path waits', async () => {
    const one = removals(1000);
    vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout'] });
    try {
      const release = stuck(join(base, 'one'));
      await one.remove(join(base, 'one'));
      for (let retries = 0; retries < 3; retries++) await one.retry();
      release();
      await one.retry();
      stuck(join(base, 'other'));
      const retry = vi.spyOn(one, 'retry').mockResolvedValue();
      await one.remove(join(base, 'other'));
      vi.advanceTimersByTime(1000);
      expect(retry).toHaveBeenCalledTimes(1);
    } finally {
      vi.useRealTimers();
    }
  });

  test('a busy path does not prevent the removal of other paths', async () => {
    stuck(join(base, 'trees', '5'));
    for (let n = 0; n < 10; n++) mkdirSync(join(base, 'trees', String(n), 'x'), { recursive: true });
    const one = removals();
    for (const name of readdirSync(join(base, 'trees'))) await one.remove(join(base, 'trees', name));
    expect(readdirSync(join(base, 'trees'))).toEqual([]);
    expect(one.waiting).toBe(1);
  });
});
