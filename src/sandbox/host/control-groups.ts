import { readFileSync, rmdirSync } from 'node:fs';
import { readdir, readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { setImmediate } from 'node:timers/promises';
import { poll } from '../../lib/backoff.ts';
import { isAbsent } from '../../lib/system-errors.ts';
import type { SandboxStats } from '../driver.ts';
import { killPid } from './kernel.ts';

/** Three seconds. */
const REMOVE_TRIES = 155;
const REMOVE_PAUSES = { firstMs: 1, longestMs: 20 };
/** A process that has just closed its files is out of its groups a moment later: for so long they are tried without a pause. */
const LEAVING_MS = 1;
const REMOVE_INTERVAL_MS = 20;
const KILL_TRIES = 55;
/** One that was killed is gone a moment later. */
const KILL_PAUSES = REMOVE_PAUSES;
const SWEEP_TRIES = 25;

/** The control groups of one sandbox: `{memory, cpu, pids}` → directory, and which version of the interface each has. */
export interface ControlGroups {
  readonly paths: Readonly<Record<string, string>>;
  readonly versions: Readonly<Record<string, number>>;
}

/** Removes them. False when a process in them does not end. */
export async function removeGroups(groups: ControlGroups): Promise<boolean> {
  // With version 2 it is one directory for all.
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
 * Removes the groups in `parents` that zygotes have left which are no more: their names tell the zygote's pid. One in which a sandbox
 * lives cannot be removed, and is its owner's; those of workers that are just ending are tried again for a moment.
 */
export async function sweepGroups(parents: Iterable<string>): Promise<void> {
  const sweep = (parent: string) =>
    poll(SWEEP_TRIES, REMOVE_INTERVAL_MS, async () => {
      const names = (await readdir(parent).catch(() => [])).filter(isLeft);
      return names.filter(name => !isRemoved(join(parent, name))).length === 0 || undefined;
    });
  await Promise.all(Array.from(parents, sweep));
}

/** `<zygote>-<token>-<pid>-<number>`; in those of earlier versions there is no token. */
function isLeft(name: string): boolean {
  const pid = /^(?:py|program)[^/]*-(\d+)-\d+$/.exec(name)?.[1];
  if (pid === undefined) return false;
  try {
    // Also one that nobody has reaped yet.
    return /\) [ZX] /.test(readFileSync(`/proc/${pid}/stat`, 'latin1'));
  } catch (error) {
    return isAbsent(error);
  }
}

/**
 * False when it is still in use. At once: the kernel keeps it in memory, and to have another thread remove it costs several times as much as to
 * remove it.
 */
function isRemoved(path: string): boolean {
  try {
    rmdirSync(path);
    return true;
  } catch (error) {
    return isAbsent(error);
  }
}

/** Kills what runs in them, until nothing does (bounded). For where no pid namespace does it. */
export async function killGroups(groups: ControlGroups): Promise<void> {
  const [path] = Object.values(groups.paths);
  if (path === undefined) return;
  await poll(KILL_TRIES, KILL_PAUSES, async () => {
    const pids = processesIn(path);
    for (const pid of pids) killPid(Number(pid));
    return pids.length === 0 ? true : undefined;
  });
}

/** At once, for the same reason as `isAlive`. */
function processesIn(path: string): readonly string[] {
  try {
    return readFileSync(join(path, 'cgroup.procs'), 'latin1')
      .split('\n')
      .filter(line => line !== '');
  } catch {
    return [];
  }
}

/** Whether the kernel has killed one of its processes for want of memory. */
export async function hasOomKill(groups: ControlGroups): Promise<boolean> {
  const path = groups.paths.memory;
  if (path === undefined) return false;
  const text = await readText(join(path, groups.versions.memory === 1 ? 'memory.oom_control' : 'memory.events'));
  return /^oom_kill [1-9]/m.test(text);
}

/** What it uses now; null when not all of it is counted by groups here. */
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

/** Version 1 counts cpu time in a hierarchy of its own, which costs every start a move; the processes tell it too. */
async function readProcessesCpu(path: string): Promise<number> {
  const pids = (await readText(join(path, 'cgroup.procs'))).split('\n').filter(line => line !== '');
  const micros = await Promise.all(
    pids.map(async pid => {
      const stat = await readText(`/proc/${pid}/stat`);
      if (stat === '') return 0;
      const fields = stat.slice(stat.lastIndexOf(')') + 2).split(' ');
      // Own and reaped children's time, user and system, in ticks of 10 ms (USER_HZ).
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
