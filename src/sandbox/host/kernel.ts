import { setTimeout as delay } from 'node:timers/promises';
import { messageOf, unavailable } from '../../core/error.ts';
import * as processes from '../../lib/process-name.ts';

const FIRST_PAUSE_MS = 1;
const LONGEST_PAUSE_MS = 5;

/**
 * Returns false when the process has ended, even if its parent has not reaped it yet.
 * Fails with `unavailable` when the state cannot be read now.
 */
export function isAlive(name: processes.ProcessName): boolean {
  try {
    return processes.isAlive(name);
  } catch (error) {
    throw unavailable(`cannot read whether process ${name.pid} runs: ${messageOf(error)}`, { cause: error });
  }
}

/** Waits for the end of a process. Returns false when it is still alive after `timeoutMs`. */
export async function waitForEnd(name: processes.ProcessName, timeoutMs: number): Promise<boolean> {
  const deadline = Date.now() + timeoutMs;
  for (let pauseMs = FIRST_PAUSE_MS; isAlive(name); pauseMs = Math.min(LONGEST_PAUSE_MS, 2 * pauseMs)) {
    if (Date.now() >= deadline) return false;
    await delay(pauseMs);
  }
  return true;
}

/** Sends SIGKILL if the pid still belongs to that process. Returns false when it has ended. */
export function killProcess(name: processes.ProcessName): boolean {
  if (!isAlive(name)) return false;
  killPid(name.pid);
  return true;
}

export function killPid(pid: number): void {
  try {
    process.kill(pid, 'SIGKILL');
  } catch {
    // The process has ended meanwhile.
  }
}
