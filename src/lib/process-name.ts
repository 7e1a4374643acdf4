import { readFileSync } from 'node:fs';
import { isAbsent } from './system-errors.ts';

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

/** The same; null where the system does not say. */
export function bootIdIfKnown(): string | null {
  try {
    return currentBootId();
  } catch {
    return null;
  }
}

/** This process. */
export function ownName(): ProcessName {
  return {
    pid: process.pid,
    startTime: startTimeOf(readFileSync('/proc/self/stat', 'utf8')),
    bootId: currentBootId(),
  };
}

/**
 * False when it has ended (also when nobody has reaped it yet). Fails with what the system says when that cannot be read. At once: the line
 * comes out of the kernel's memory, and handing the read to another thread costs ten times as much.
 */
export function isAlive(name: ProcessName): boolean {
  if (name.bootId !== currentBootId()) return false;
  let stat: string;
  try {
    // Half the time of latin1; what it makes of strange bytes is in the program's name, which is not looked at.
    stat = readFileSync(`/proc/${name.pid}/stat`, 'utf8');
  } catch (error) {
    if (isAbsent(error)) return false;
    throw error;
  }
  const state = fieldsOf(stat)[0];
  return startTimeOf(stat) === name.startTime && state !== 'Z' && state !== 'X';
}

function startTimeOf(stat: string): number {
  return Number(fieldsOf(stat)[19]);
}

/** The second field is the program's name in parentheses, and may hold anything. */
function fieldsOf(stat: string): readonly string[] {
  return stat.slice(stat.lastIndexOf(')') + 2).split(' ');
}
