import * as childProcess from 'node:child_process';
import { getPriority, setPriority } from 'node:os';
import { promisify } from 'node:util';

export type { ChildProcess } from 'node:child_process';

/**
 * Functions of `node:child_process` that start children at usual priority instead of the serving thread's.
 * All children of the service are started by these functions.
 */
export const spawn = usual(childProcess.spawn);
export const execFile = usual(childProcess.execFile);
export const execFileSync = usual(childProcess.execFileSync);

function usual<F extends (...args: never[]) => unknown>(start: F): F {
  const started = (...args: Parameters<F>) => atUsualPriority(() => start(...args));
  // `promisify` uses this custom function of `execFile`, so it is wrapped too.
  const asPromise = (start as { [promisify.custom]?: (...args: Parameters<F>) => unknown })[promisify.custom];
  if (asPromise === undefined) return started as F;
  return Object.assign(started, {
    [promisify.custom]: (...args: Parameters<F>) => atUsualPriority(() => asPromise(...args)),
  }) as unknown as F;
}

/** Niceness of the main thread, which then gets nine times the processor share of a caller's busy process. */
const SERVING = -10;
const USUAL = 0;

let servesFirst = false;

/**
 * Gives this thread, which serves every request, priority over the code that it calls. A busy sandbox then
 * cannot delay other requests. Returns false and changes nothing when the process may not do that (an
 * ordinary user without `ulimit -e`). Also false when the process was started with another priority.
 */
export function serveFirst(): boolean {
  try {
    if (getPriority() !== USUAL) return false;
    setPriority(SERVING);
    servesFirst = true;
  } catch {
    // Optional: the service works without it.
  }
  return servesFirst;
}

/**
 * Runs `begin` at the priority with which this process was started: a child inherits that of the creating
 * thread.
 */
export function atUsualPriority<T>(begin: () => T): T {
  if (!servesFirst) return begin();
  setPriority(USUAL);
  try {
    return begin();
  } finally {
    setPriority(SERVING);
  }
}
