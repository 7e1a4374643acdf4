import * as childProcess from 'node:child_process';
import { promisify } from 'node:util';
import { atUsualPriority } from './priority.ts';

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
