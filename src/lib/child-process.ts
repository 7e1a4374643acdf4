import * as childProcess from 'node:child_process';
import { promisify } from 'node:util';
import { atUsualPriority } from './priority.ts';

export type { ChildProcess } from 'node:child_process';

/** Those of `node:child_process`, for children that do not have the priority of the thread that serves. The service starts all of its own with them. */
export const spawn = usual(childProcess.spawn);
export const execFile = usual(childProcess.execFile);
export const execFileSync = usual(childProcess.execFileSync);

function usual<F extends (...args: never[]) => unknown>(start: F): F {
  const started = (...args: Parameters<F>) => atUsualPriority(() => start(...args));
  // `promisify(execFile)` gives an object of its own.
  const asPromise = (start as { [promisify.custom]?: (...args: Parameters<F>) => unknown })[promisify.custom];
  if (asPromise === undefined) return started as F;
  return Object.assign(started, {
    [promisify.custom]: (...args: Parameters<F>) => atUsualPriority(() => asPromise(...args)),
  }) as unknown as F;
}
