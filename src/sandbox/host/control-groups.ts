import { readFileSync, rmdirSync } from 'node:fs';
import { readdir, readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { setImmediate } from 'node:timers/promises';
import { poll } from '../../lib/backoff.ts';
import { isAbsent } from '../../lib/system-errors.ts';
import type { SandboxStats } from '../driver.ts';
import { killPid } from './kernel.ts';

/** Number of tries that take 3 s with `REMOVE_PAUSES`. */
const REMOVE_TRIES = 155;
const REMOVE_PAUSES = { firstMs: 1, longestMs: 20 };
/** Duration of tries without a pause: a process leaves its groups a moment after it has closed its files. */
const LEAVING_MS = 1;
const REMOVE_INTERVAL_MS = 20;
const KILL_TRIES = 55;
/** A killed process disappears within milliseconds. */
const KILL_PAUSES = REMOVE_PAUSES;
const SWEEP_TRIES = 25;

/** The control groups of a sandbox: directory and interface version of each of `{memory, cpu, pids}`. */
export interface ControlGroups {
  readonly paths: Readonly<Record<string, string>>;
  readonly versions: Readonly<Record<string, number>>;
}

/** Removes the groups. Returns false when a process in them does not end. */
export async function removeGroups(groups: ControlGroups): Promise<boolean> {
  // With version 2 all groups are one directory.
  let left = [...new Set(Object.values(groups.paths))];
  const areRemoved = () => {
    left = left.filter(path => !isRemoved(path));
    return left.length === 0 || undefined;
  };
  const untilMs = performance.now() + LEAVING_MS;
  while (performance.now() < untilMs) {
    if (areRemoved()) return true;
    await setImmediate();
  }
  return (await poll(REMOVE_TRIES, REMOVE_PAUSES, async () => areRemoved())) === true;
}

/**
 * Removes the groups in `parents` whose zygotes have ended; their names contain the zygote's pid.
 * The kernel refuses to remove the group of a running sandbox, which belongs to its owner. For workers that
 * are just ending, the removal is retried for half a second.
 */
export async function sweepGroups(parents: Iterable<string>): Promise<void> {
  const sweep = (parent: string) =>
    poll(SWEEP_TRIES, REMOVE_INTERVAL_MS, async () => {
      const names = (await readdir(parent).catch(() => [])).filter(isLeft);
      return names.filter(name => !isRemoved(join(parent, name))).length === 0 || undefined;
    });
  await Promise.all(Array.from(parents, sweep));
}

/**
 * Checks whether the zygote in the name `<zygote>-<token>-<pid>-<number>` has ended.
 * Names from earlier versions have no token.
 */
function isLeft(name: string): boolean {
  const pid = /^(?:py|program)[^/]*-(\d+)-\d+$/.exec(name)?.[1];
  if (pid === undefined) return false;
  try {
    // A zombie has ended too, although its parent has not reaped it.
    return /\) [ZX] /.test(readFileSync(`/proc/${pid}/stat`, 'latin1'));
  } catch (error) {
    return isAbsent(error);
  }
}

/**
 * Removes one group directory. Returns false when it is still in use.
 * Synchronous, because the file system is in memory: a call through the thread pool costs several times as
 * much.
 */
function isRemoved(path: string): boolean {
  try {
    rmdirSync(path);
    return true;
  } catch (error) {
    return isAbsent(error);
  }
}

/**
 * Kills all processes in the groups and retries until none is left (bounded).
 * Needed where no pid namespace kills them.
 */
export async function killGroups(groups: ControlGroups): Promise<void> {
  const [path] = Object.values(groups.paths);
  if (path === undefined) return;
  await poll(KILL_TRIES, KILL_PAUSES, async () => {
    const pids = processesIn(path);
    for (const pid of pids) killPid(Number(pid));
    return pids.length === 0 ? true : undefined;
  });
}

/** Reads the pids in a group, synchronously for the same reason as `isRemoved`. */
function processesIn(path: string): readonly string[] {
  try {
    return readFileSync(join(path, 'cgroup.procs'), 'latin1')
      .split('\n')
      .filter(line => line !== '');
  } catch {
    return [];
  }
}

/** Checks whether the kernel has killed a process of the groups because memory ran out. */
export async function hasOomKill(groups: ControlGroups): Promise<boolean> {
  const path = groups.paths.memory;
  if (path === undefined) return false;
  const text = await readText(join(path, groups.versions.memory === 1 ? 'memory.oom_control' : 'memory.events'));
  return /^oom_kill [1-9]/m.test(text);
}

/** Reads the present use; null when the groups do not count all of it. */
export async function readStats(groups: ControlGroups): Promise<SandboxStats | null> {
  const { memory, cpu, pids } = groups.paths;
  if (memory === undefined || pids === undefined) return null;
  const memoryFile = groups.versions.memory === 1 ? 'memory.usage_in_bytes' : 'memory.current';
  const [memoryText, pidsText, cpuMicros] = await Promise.all([
    readText(join(memory, memoryFile)),
    readText(join(pids, 'pids.current')),
    groups.versions.cpu === 2 && cpu !== undefined ? readUnifiedCpu(cpu) : readProcessesCpu(pids),
  ]);
  if (memoryText === '' || pidsText === '') return null;
  return { memoryBytes: Number(memoryText), cpuMicros, processes: Number(pidsText) };
}

async function readUnifiedCpu(path: string): Promise<number> {
  return Number(/^usage_usec (\d+)/m.exec(await readText(join(path, 'cpu.stat')))?.[1] ?? 0);
}

/**
 * Sums the CPU time of the group's processes.
 * Version 1 counts CPU time in a separate hierarchy, and each start would have to move its process there.
 */
async function readProcessesCpu(path: string): Promise<number> {
  const pids = (await readText(join(path, 'cgroup.procs'))).split('\n').filter(line => line !== '');
  const micros = await Promise.all(
    pids.map(async pid => {
      const stat = await readText(`/proc/${pid}/stat`);
      if (stat === '') return 0;
      const fields = stat.slice(stat.lastIndexOf(')') + 2).split(' ');
      // The process's own time and its reaped children's, user and system, in ticks of 10 ms (USER_HZ).
      return fields.slice(11, 15).reduce((sum, field) => sum + Number(field), 0) * 10_000;
    }),
  );
  return micros.reduce((sum, value) => sum + value, 0);
}

async function readText(path: string): Promise<string> {
  try {
    return await readFile(path, 'utf8');
  } catch {
    return '';
  }
}
