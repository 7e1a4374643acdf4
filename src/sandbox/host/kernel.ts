import { setTimeout as delay } from 'node:timers/promises';
import { messageOf, unavailable } from '../../core/error.ts';
import * as processes from '../../lib/process-name.ts';

const PROBE_INTERVAL_MS = 5;

/** False when it has ended (also when nobody has reaped it yet). Fails with `unavailable` when that cannot be known now. */
export async function isAlive(name: processes.ProcessName): Promise<boolean> {
  try {
    return await processes.isAlive(name);
  } catch (error) {
    throw unavailable(`whether process ${name.pid} lives cannot be told: ${messageOf(error)}`, { cause: error });
  }
}

/** False when it still lives after `timeoutMs`. */
export async function waitForEnd(name: processes.ProcessName, timeoutMs: number): Promise<boolean> {
  const deadline = Date.now() + timeoutMs;
  while (await isAlive(name)) {
    if (Date.now() >= deadline) return false;
    await delay(PROBE_INTERVAL_MS);
  }
  return true;
}

/** Sends SIGKILL when it is still that process. */
export async function killProcess(name: processes.ProcessName): Promise<void> {
  if (await isAlive(name)) killPid(name.pid);
}

export function killPid(pid: number): void {
  try {
    process.kill(pid, 'SIGKILL');
  } catch {
    // It has ended meanwhile.
  }
}
