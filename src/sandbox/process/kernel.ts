import { readFileSync } from 'node:fs';
import { readFile } from 'node:fs/promises';
import { setTimeout as delay } from 'node:timers/promises';

const PROBE_INTERVAL_MS = 5;

/** A process, named so that a later one with the same pid is not taken for it. */
export interface ProcessName {
  readonly pid: number;
  /** Clock ticks after boot. */
  readonly startTime: number;
  readonly bootId: string;
}

let bootId: string | undefined;

/** Changes with every start of the machine. */
export function currentBootId(): string {
  bootId ??= readFileSync('/proc/sys/kernel/random/boot_id', 'utf8').trim();
  return bootId;
}

/** False when it has ended (also when nobody has reaped it yet). */
export async function isAlive(name: ProcessName): Promise<boolean> {
  if (name.bootId !== currentBootId()) return false;
  let stat: string;
  try {
    stat = await readFile(`/proc/${name.pid}/stat`, 'latin1');
  } catch {
    return false;
  }
  // The second field is the program's name in parentheses, and may hold anything.
  const fields = stat.slice(stat.lastIndexOf(')') + 2).split(' ');
  return Number(fields[19]) === name.startTime && fields[0] !== 'Z' && fields[0] !== 'X';
}

/** False when it still lives after `timeoutMs`. */
export async function waitForEnd(name: ProcessName, timeoutMs: number): Promise<boolean> {
  const deadline = Date.now() + timeoutMs;
  while (await isAlive(name)) {
    if (Date.now() >= deadline) return false;
    await delay(PROBE_INTERVAL_MS);
  }
  return true;
}

/** Sends SIGKILL when it is still that process. */
export async function killProcess(name: ProcessName): Promise<void> {
  if (await isAlive(name)) killPid(name.pid);
}

export function killPid(pid: number): void {
  try {
    process.kill(pid, 'SIGKILL');
  } catch {
    // It has ended meanwhile.
  }
}
