import { readFileSync } from 'node:fs';
import { readFile } from 'node:fs/promises';
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

/** This process. */
export function ownName(): ProcessName {
  return {
    pid: process.pid,
    startTime: startTimeOf(readFileSync('/proc/self/stat', 'latin1')),
    bootId: currentBootId(),
  };
}

/** False when it has ended (also when nobody has reaped it yet). Fails with what the system says when that cannot be read. */
export async function isAlive(name: ProcessName): Promise<boolean> {
  if (name.bootId !== currentBootId()) return false;
  let stat: string;
  try {
    stat = await readFile(`/proc/${name.pid}/stat`, 'latin1');
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
