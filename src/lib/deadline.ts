import { deadlineExceeded } from '../core/error.ts';
import { OVER, onAbort } from './linked-signal.ts';

/**
 * `promise`, or a failure after `timeoutMs`, or when `signal` aborts before: `deadline_exceeded` with the text `late`, or the error that
 * `late` makes. What was waited for goes on, and its end is nobody's any more: whoever made it cleans up behind it.
 */
export function within<T>(
  promise: Promise<T>,
  timeoutMs: number,
  late: string | (() => Error),
  signal?: AbortSignal,
): Promise<T> {
  return new Promise((resolve, reject) => {
    let release: (() => void) | undefined;
    const end = () => {
      clearTimeout(timer);
      release?.();
    };
    const fail = () => {
      end();
      // Made only now: the stack of an error costs more than the rest of this.
      reject(typeof late === 'string' ? deadlineExceeded(late) : late());
    };
    const timer = setTimeout(fail, timeoutMs);
    if (signal !== undefined) release = onAbort(signal, fail);
    promise.then(
      value => {
        end();
        resolve(value);
      },
      error => {
        end();
        reject(error);
      },
    );
  });
}

/** Whether `promise` resolves within `timeoutMs`, and before `signal` aborts. Rejects when it does. What was waited for goes on. */
export async function endsWithin(promise: Promise<unknown>, timeoutMs: number, signal?: AbortSignal): Promise<boolean> {
  const late = new Error();
  try {
    await within(promise, timeoutMs, () => late, signal);
    return true;
  } catch (error) {
    if (error === late) return false;
    throw error;
  }
}

/**
 * `work` with a signal that aborts after `timeoutMs`, for the reason that `late` makes, and with `parent`, for its reason. When `work` has
 * ended no timer is left and the signal aborts no more. `work` itself sees to it that it ends.
 */
export async function withDeadline<T>(
  timeoutMs: number,
  work: (signal: AbortSignal) => Promise<T>,
  parent?: AbortSignal,
  late?: () => Error,
): Promise<T> {
  return await under(new AbortController(), timeoutMs, work, parent, late);
}

/** As `withDeadline`, but the signal aborts when `work` has ended too: those that lost a race stop. */
export async function raceWithin<T>(
  timeoutMs: number,
  race: (signal: AbortSignal) => Promise<T>,
  parent?: AbortSignal,
): Promise<T> {
  const over = new AbortController();
  try {
    return await under(over, timeoutMs, race, parent);
  } finally {
    over.abort(OVER);
  }
}

async function under<T>(
  controller: AbortController,
  timeoutMs: number,
  work: (signal: AbortSignal) => Promise<T>,
  parent?: AbortSignal,
  late?: () => Error,
): Promise<T> {
  const timer = setTimeout(() => controller.abort(late?.()), timeoutMs);
  const release = parent === undefined ? undefined : onAbort(parent, () => controller.abort(parent.reason));
  try {
    return await work(controller.signal);
  } finally {
    clearTimeout(timer);
    release?.();
  }
}
