import { existsSync, readFileSync } from 'node:fs';
import { mkdir, rmdir, unlink, writeFile } from 'node:fs/promises';
import { basename, dirname, join } from 'node:path';
import { failedPrecondition, messageOf, unavailable } from '../../core/error.ts';
import { poll } from '../../lib/backoff.ts';
import { cgroupDirectory } from './cgroup-mounts.ts';
import type { ProcessSandbox } from './handle.ts';
import { isAlive } from './kernel.ts';
import { treeOf } from './machine-sandboxes.ts';

/** File in the directory of a sandbox that is paused or about to be: how its processes stand still. */
const MARKER = 'paused.json';
/** Beginning of the name of a group that is made for a pause; the id of the instance follows. */
const GROUP_PREFIX = 'rookery-paused-';
const FREEZE_TRIES = 400;
const FREEZE_PAUSES = { firstMs: 1, longestMs: 20 };
/** Looks at a group that freezes, after which the order is given anew: about a second. */
const LOOKS_PER_ORDER = 60;
const REMOVE_TRIES = 100;
/** Listings in a row that show no running process. A process may change its parent during a single one. */
const CLEAN_LISTINGS = 2;
/** The bit of SIGSTOP in a mask of signals (`ShdPnd` in proc(5)): signal 19 on x86-64 and arm64. */
const SIGSTOP_PENDING = 1n << 18n;

/**
 * The means that stops the processes of a sandbox: a frozen group, which is the sandbox's own (version 2) or
 * made for the pause (version 1), or SIGSTOP where no group can be used.
 */
type Freezing =
  | { readonly how: 'unified'; readonly group: string }
  | { readonly how: 'freezer'; readonly group: string; readonly before: string }
  | { readonly how: 'signal' };

/** Returns true if the sandbox is paused, or a pause or a resume was interrupted. */
export function isFrozen({ directory }: Pick<ProcessSandbox, 'directory'>): boolean {
  return existsSync(join(directory, MARKER));
}

/**
 * Freezes all processes of a running sandbox, again if it is frozen already. The marker precedes the first
 * change, so that `thaw` undoes an interrupted one. Fails with `unavailable` if they do not freeze in time.
 */
export async function freeze(sandbox: ProcessSandbox): Promise<void> {
  const { init, instanceId } = sandbox;
  if (init === null || !isAlive(init)) throw failedPrecondition(`the sandbox of ${instanceId} does not run`);
  const freezing = readMarker(sandbox) ?? chooseFreezing(sandbox);
  try {
    await writeFile(join(sandbox.directory, MARKER), JSON.stringify(freezing), { mode: 0o600 });
    if (await stopAll(freezing, () => processesOf(sandbox))) return;
  } catch (error) {
    await thaw(sandbox).catch(() => undefined);
    throw unavailable(`the processes of ${instanceId} cannot be frozen: ${messageOf(error)}`, { cause: error });
  }
  await thaw(sandbox).catch(() => undefined);
  throw unavailable(`the processes of ${instanceId} did not freeze in time`);
}

/** Continues all processes of a sandbox. Has no effect if it is not frozen. */
export async function thaw(sandbox: ProcessSandbox): Promise<void> {
  // Nearly always, and cheaper than an error.
  if (!isFrozen(sandbox)) return;
  const freezing = readMarker(sandbox);
  const { init } = sandbox;
  if (freezing?.how === 'freezer') await leaveFreezer(freezing.group, freezing.before);
  // After the end of init, its pid and the name of its group may belong to others.
  else if (freezing !== null && init !== null && isAlive(init)) {
    if (freezing.how === 'unified') await write(join(freezing.group, 'cgroup.freeze'), '0');
    else for (const pid of await processesOf(sandbox)) signal(pid, 'SIGCONT');
  }
  await unlink(join(sandbox.directory, MARKER)).catch(() => undefined);
}

/**
 * Thaws the group that was made for the pause of a process, and removes it. For sandboxes whose directory is
 * lost. Never rejects.
 */
export async function thawProcess(pid: number): Promise<void> {
  const group = cgroupDirectory('freezer', pid);
  if (group !== null && basename(group).startsWith(GROUP_PREFIX))
    await leaveFreezer(group, dirname(group)).catch(() => undefined);
}

function chooseFreezing({ groups, instanceId, init }: ProcessSandbox): Freezing {
  for (const [controller, group] of Object.entries(groups.paths))
    if (groups.versions[controller] === 2 && existsSync(join(group, 'cgroup.freeze'))) return { how: 'unified', group };
  const before = init && cgroupDirectory('freezer', init.pid);
  return before ? { how: 'freezer', group: join(before, `${GROUP_PREFIX}${instanceId}`), before } : { how: 'signal' };
}

/** Returns the processes of a sandbox, children mostly before their parents. */
type Listing = () => Promise<readonly number[]>;

/** Lists the group of the sandbox, which has all its processes; without one, all of this machine. */
async function processesOf({ groups, init }: ProcessSandbox): Promise<readonly number[]> {
  const [group] = Object.values(groups.paths);
  if (group !== undefined && existsSync(group)) return [...membersOf(group)].toReversed();
  return init === null ? [] : await treeOf(init.pid);
}

/** Returns true once all processes stand still. */
async function stopAll(freezing: Freezing, list: Listing): Promise<boolean> {
  if (freezing.how === 'unified') {
    await write(join(freezing.group, 'cgroup.freeze'), '1');
    return await becomes(join(freezing.group, 'cgroup.events'), /^frozen 1$/m);
  }
  if (freezing.how === 'signal') return await untilClean(list, pid => isStopped(pid) || !signal(pid, 'SIGSTOP'));
  const { group } = freezing;
  await mkdir(group, { recursive: true });
  await write(join(group, 'freezer.state'), 'FROZEN');
  const isInside = async (pid: number) => membersOf(group).has(pid) || !(await moveTo(group, pid));
  if (!(await untilClean(list, isInside))) return false;
  return await becomesFrozen(join(group, 'freezer.state'));
}

/**
 * Lists the processes of a sandbox until `isDone` is true of each, several times in a row. `isDone` stops the
 * process otherwise. Children of stopped processes are stopped as well, so this ends.
 */
async function untilClean(list: Listing, isDone: (pid: number) => boolean | Promise<boolean>): Promise<boolean> {
  let clean = 0;
  const found = await poll(FREEZE_TRIES, FREEZE_PAUSES, async () => {
    let isClean = true;
    for (const pid of (await list()).toReversed()) if (!(await isDone(pid))) isClean = false;
    clean = isClean ? clean + 1 : 0;
    return clean >= CLEAN_LISTINGS ? true : undefined;
  });
  return found === true;
}

async function becomes(path: string, pattern: RegExp): Promise<boolean> {
  const is = async () => (pattern.test(readFileSync(path, 'latin1')) ? true : undefined);
  return (await poll(FREEZE_TRIES, FREEZE_PAUSES, is)) === true;
}

/**
 * Waits until a group of version 1 is frozen. The kernel may stay at FREEZING while processes fork or are
 * moved into the group; an order after a thaw ends that.
 */
async function becomesFrozen(path: string): Promise<boolean> {
  let looks = 0;
  const look = async () => {
    if (readFileSync(path, 'latin1').startsWith('FROZEN')) return true;
    looks += 1;
    if (looks % LOOKS_PER_ORDER === 0) {
      await write(path, 'THAWED');
      await write(path, 'FROZEN');
    }
    return undefined;
  };
  return (await poll(FREEZE_TRIES, FREEZE_PAUSES, look)) === true;
}

/** Thaws a group of version 1, returns its processes to the group before, and removes it. */
async function leaveFreezer(group: string, before: string): Promise<void> {
  if (!existsSync(group)) return;
  await write(join(group, 'freezer.state'), 'THAWED');
  await poll(REMOVE_TRIES, FREEZE_PAUSES, async () => {
    for (const pid of membersOf(group)) await moveTo(before, pid);
    return await rmdir(group).then(
      () => true,
      () => (existsSync(group) ? undefined : true),
    );
  });
}

/** Moves a process. Returns false if it has ended meanwhile. */
async function moveTo(group: string, pid: number): Promise<boolean> {
  try {
    await write(join(group, 'cgroup.procs'), String(pid));
    return true;
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ESRCH') return false;
    throw error;
  }
}

function membersOf(group: string): ReadonlySet<number> {
  const text = readFileSync(join(group, 'cgroup.procs'), 'latin1');
  return new Set(text.split('\n').filter(Boolean).map(Number));
}

/**
 * Returns true for a process that runs no code of its own before SIGCONT: it is stopped, has ended, or waits
 * in the kernel (state D) with SIGSTOP pending. A parent waits so until its child loads a program (vfork).
 */
function isStopped(pid: number): boolean {
  try {
    const status = readFileSync(`/proc/${pid}/status`, 'latin1');
    const state = /^State:\t(.)/m.exec(status)?.[1] ?? 'X';
    if (state !== 'D') return 'TtZX'.includes(state);
    const pending = BigInt(`0x${/^ShdPnd:\t([0-9a-f]+)$/m.exec(status)?.[1] ?? '0'}`);
    return (pending & SIGSTOP_PENDING) !== 0n;
  } catch {
    return true;
  }
}

/** Returns false if the process has ended. */
function signal(pid: number, name: 'SIGSTOP' | 'SIGCONT'): boolean {
  try {
    process.kill(pid, name);
    return true;
  } catch {
    return false;
  }
}

function readMarker({ directory }: Pick<ProcessSandbox, 'directory'>): Freezing | null {
  try {
    return JSON.parse(readFileSync(join(directory, MARKER), 'utf8')) as Freezing;
  } catch {
    // Absent, or its write was interrupted before any process stopped.
    return null;
  }
}

async function write(path: string, text: string): Promise<void> {
  await writeFile(path, text, { flag: 'r+' });
}
