import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import {
  accessSync,
  constants,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readFileSync,
  rmdirSync,
  rmSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, test, vi } from 'vitest';
import { currentBootId } from '../../lib/process-name.ts';
import { cgroupDirectory } from './cgroup-mounts.ts';
import type { ControlGroups } from './control-groups.ts';
import { freeze, isFrozen, thaw, thawProcess } from './freezer.ts';
import type { ProcessSandbox } from './handle.ts';
import { treeOf } from './machine-sandboxes.ts';

/** A shell with a child and a grandchild, each of which counts in a file of its own. */
const COUNTING =
  'count() { i=0; while :; do i=$((i+1)); echo $i > "$1"; sleep 0.01; done; }; (count b & count c) & count a';
const UNIFIED = ['/sys/fs/cgroup/unified', '/sys/fs/cgroup'].find(path => isWritable(join(path, 'cgroup.procs')));

/** Runs `change` on a process, which may have ended meanwhile. */
function unlessEnded(change: () => void): void {
  try {
    change();
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'ESRCH') throw error;
  }
}

/** False also for a table of version 1, whose root has no `cgroup.procs` of its own. */
function isWritable(path: string): boolean {
  try {
    accessSync(path, constants.W_OK);
    return true;
  } catch {
    return false;
  }
}

let directory: string;
let child: ChildProcess;
let group: string | undefined;

beforeEach(() => {
  directory = mkdtempSync(join(tmpdir(), 'rookery-freezer-'));
  child = spawn('/bin/sh', ['-c', COUNTING], { cwd: directory, stdio: 'ignore', detached: true });
});

afterEach(async () => {
  await thaw(sandboxOf());
  await endChild();
  if (group !== undefined) {
    const path = group;
    await vi.waitFor(() => rmdirSync(path), { timeout: 10_000 });
  }
  group = undefined;
  rmSync(directory, { recursive: true, force: true });
});

/** Ends the shell of a test, and starts another program in its place. */
async function replaceChild(program: string, argv: readonly string[]): Promise<void> {
  await endChild();
  child = spawn(program, argv, { cwd: directory, stdio: 'ignore', detached: true });
}

/** Ends the whole process group, because a shell may fork between a look at its tree and the signals. */
async function endChild(): Promise<void> {
  const ended = once(child, 'exit');
  process.kill(-(child.pid as number), 'SIGKILL');
  await ended;
}

function sandboxOf(groups: ControlGroups = { paths: {}, versions: {} }): ProcessSandbox {
  const pid = child.pid as number;
  const stat = readFileSync(`/proc/${pid}/stat`, 'utf8');
  const startTime = Number(stat.slice(stat.lastIndexOf(')') + 2).split(' ')[19]);
  return {
    instanceId: `freezer-test-${pid}`,
    directory,
    init: { pid, startTime, bootId: currentBootId() },
    groups,
    address: null,
    hasOwnNetwork: false,
    portMappings: [],
  };
}

const counts = () => ['a', 'b', 'c'].map(name => Number(readFileSync(join(directory, name), 'utf8')));
const untilCounting = async (from: readonly number[] = [0, 0, 0]) =>
  await vi.waitFor(() => expect(counts().every((count, index) => count > (from[index] ?? 0))).toBe(true), {
    timeout: 20_000,
  });

/** Returns true if no process of the tree has used the processor between two looks. */
async function standsStill(): Promise<boolean> {
  const before = counts();
  const used = async () =>
    (await treeOf(child.pid as number)).map(pid =>
      readFileSync(`/proc/${pid}/stat`, 'utf8').split(' ').slice(10, 18).join(),
    );
  const first = await used();
  // Long enough for a counter that runs to count.
  for (let look = 0; look < 20; look++) await new Promise(resolve => setTimeout(resolve, 5));
  return JSON.stringify(first) === JSON.stringify(await used()) && JSON.stringify(before) === JSON.stringify(counts());
}

async function freezesAndContinues(sandbox: ProcessSandbox, how: string): Promise<void> {
  await untilCounting();
  await freeze(sandbox);
  expect(JSON.parse(readFileSync(join(directory, 'paused.json'), 'utf8'))).toMatchObject({ how });
  expect(isFrozen(sandbox)).toBe(true);
  expect(await standsStill()).toBe(true);
  await freeze(sandbox);
  const still = counts();
  await thaw(sandbox);
  expect(isFrozen(sandbox)).toBe(false);
  await untilCounting(still);
  await freeze(sandbox);
  expect(await standsStill()).toBe(true);
  await thaw(sandbox);
  await untilCounting(counts());
}

describe('freezing', { timeout: 60_000 }, () => {
  test.runIf(UNIFIED !== undefined)('a group of version 2 freezes its processes', async () => {
    group = join(UNIFIED as string, `rookery-freezer-test-${process.pid}`);
    mkdirSync(group);
    const procs = join(group, 'cgroup.procs');
    // All shells exist by now. A child that one of them makes before it is in the group is moved afterwards.
    await untilCounting();
    await vi.waitFor(
      async () => {
        for (const pid of await treeOf(child.pid as number)) unlessEnded(() => writeFileSync(procs, String(pid)));
        const tree = await treeOf(child.pid as number);
        expect(readFileSync(procs, 'utf8').trim().split('\n').map(Number)).toEqual(expect.arrayContaining([...tree]));
      },
      { timeout: 20_000, interval: 1 },
    );
    await freezesAndContinues(sandboxOf({ paths: { pids: group }, versions: { pids: 2 } }), 'unified');
  });

  test.runIf(cgroupDirectory('freezer', process.pid) !== null)(
    'the freezer of version 1 holds all processes and leaves no group',
    async () => {
      const before = cgroupDirectory('freezer', child.pid as number) as string;
      await freezesAndContinues(sandboxOf(), 'freezer');
      expect(existsSync(join(before, `rookery-paused-freezer-test-${child.pid}`))).toBe(false);
      expect(cgroupDirectory('freezer', child.pid as number)).toBe(before);
    },
  );

  test.runIf(cgroupDirectory('freezer', process.pid) !== null)(
    'a frozen process is thawed without the directory of its sandbox',
    async () => {
      await untilCounting();
      await freeze(sandboxOf());
      rmSync(join(directory, 'paused.json'));
      const still = counts();
      await thawProcess(child.pid as number);
      await untilCounting(still);
      expect(cgroupDirectory('freezer', child.pid as number)).not.toContain('rookery-paused');
    },
  );

  test('signals stop all processes where no group can', async () => {
    writeFileSync(join(directory, 'paused.json'), JSON.stringify({ how: 'signal' }));
    await freezesAndContinues(sandboxOf(), 'signal');
  });

  test('a process that waits for its stopped child to load a program counts as stopped', async () => {
    // With CLONE_VFORK (0x4000) the parent waits in the kernel, where it cannot stop, until its child ends.
    const waiting = `import ctypes, os, signal, time
number = 56 if os.uname().machine == "x86_64" else 220
if ctypes.CDLL(None).syscall(number, 0x4000 | signal.SIGCHLD, 0, 0, 0, 0) == 0:
    open("forked", "w").close()
    time.sleep(600)`;
    await replaceChild('python3', ['-c', waiting]);
    await vi.waitFor(() => expect(existsSync(join(directory, 'forked'))).toBe(true));
    writeFileSync(join(directory, 'paused.json'), JSON.stringify({ how: 'signal' }));
    await freeze(sandboxOf());
    await thaw(sandboxOf());
    expect(isFrozen(sandboxOf())).toBe(false);
  });

  test('a sandbox that has ended is refused', async () => {
    const sandbox = sandboxOf();
    const ended = { ...sandbox, init: { pid: child.pid as number, startTime: 1, bootId: currentBootId() } };
    await expect(freeze(ended)).rejects.toMatchObject({ code: 'failed_precondition' });
    expect(isFrozen(sandbox)).toBe(false);
  });
});
