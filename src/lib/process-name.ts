import { readFileSync } from 'node:fs';
import { isAbsent } from './system-errors.ts';

/** Identifies a process, so that a later one with the same pid is not mistaken for it. */
export interface ProcessName {
  readonly pid: number;
  /** Clock ticks after boot. */
  readonly startTime: number;
  readonly bootId: string;
}

let bootId: string | undefined;

/** Returns the boot id, which changes with every start of the machine. */
export function currentBootId(): string {
  bootId ??= readFileSync('/proc/sys/kernel/random/boot_id', 'utf8').trim();
  return bootId;
}

/** Returns the boot id; null where the system has none. */
export function bootIdIfKnown(): string | null {
  try {
    return currentBootId();
  } catch {
    return null;
  }
}

/** Returns the name of this process. */
export function ownName(): ProcessName {
  return {
    pid: process.pid,
    startTime: startTimeOf(readFileSync('/proc/self/stat', 'utf8')),
    bootId: currentBootId(),
  };
}

/**
 * Returns false when the process has ended, even before it is reaped. Fails with the system's error when the
 * state cannot be read. Synchronous: the kernel has the line in memory, and another thread costs ten times as
 * much.
 */
export function isAlive(name: ProcessName): boolean {
  if (name.bootId !== currentBootId()) return false;
  let stat: string;
  try {
    // Takes half the time of latin1. Invalid bytes can only occur in the program's name, which is not used.
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

/**
 * Returns the fields from the third one on. The second field is the program's name in parentheses, which may
 * contain anything.
 */
function fieldsOf(stat: string): readonly string[] {
  return stat.slice(stat.lastIndexOf(')') + 2).split(' ');
}
