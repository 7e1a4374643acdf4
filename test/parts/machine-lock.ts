import { mkdirSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { KEPT_DIR } from './kept.ts';

const RETRY_MS = 25;
/** Time after which a lock without a recorded owner counts as abandoned. */
const NAMELESS_MS = 5_000;

/**
 * Runs `body` while no other process of this machine holds the lock `name`. A lock whose holder died is
 * released. Fails after `timeoutMs` of waiting.
 */
export async function withMachineLock<T>(name: string, timeoutMs: number, body: () => Promise<T>): Promise<T> {
  const lock = join(KEPT_DIR, `rookery-test-${name}.lock`);
  const giveUpAt = Date.now() + timeoutMs;
  while (!take(lock)) {
    if (isStale(lock)) rmSync(lock, { recursive: true, force: true });
    else if (Date.now() > giveUpAt) throw new Error(`${lock} was not free within ${timeoutMs} ms`);
    else await delay(RETRY_MS);
  }
  try {
    return await body();
  } finally {
    rmSync(lock, { recursive: true, force: true });
  }
}

function take(lock: string): boolean {
  try {
    mkdirSync(lock);
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'EEXIST') return false;
    throw error;
  }
  writeFileSync(join(lock, 'pid'), String(process.pid));
  return true;
}

function isStale(lock: string): boolean {
  try {
    const pid = Number(readFileSync(join(lock, 'pid'), 'utf8'));
    process.kill(pid, 0);
    return false;
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException;
    if (code === 'ESRCH') return true;
    if (code !== 'ENOENT') return false;
  }
  const made = statSync(lock, { throwIfNoEntry: false });
  return made !== undefined && Date.now() - made.mtimeMs > NAMELESS_MS;
}
