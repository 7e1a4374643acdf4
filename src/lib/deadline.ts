import { deadlineExceeded } from '../core/error.ts';
import { OVER, onAbort } from './linked-signal.ts';

/**
 * Settles as `promise` does, or fails after `timeoutMs` or when `signal` aborts. Such a failure is
 * `deadline_exceeded` with the text `late`, or the error that `late` makes. The work behind `promise`
 * continues, and its result is dropped: its creator must clean up.
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
      // Created only now: the stack of an error costs more than everything else here.
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

/**
 * Returns true when `promise` resolves within `timeoutMs` and before `signal` aborts. Rejects when `promise`
 * does. The work behind `promise` continues.
 */
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
 * Runs `work` with a signal that aborts after `timeoutMs` or with `parent`. The reason is the error of
 * `late`, or that of `parent`. After `work` has ended, no timer remains and the signal no longer aborts.
 * `work` must end on the abort.
 */
export async function withDeadline<T>(
  timeoutMs: number,
  work: (signal: AbortSignal) => Promise<T>,
  parent?: AbortSignal,
  late?: () => Error,
): Promise<T> {
  return await under(new AbortController(), timeoutMs, work, parent, late);
}

/** Runs `race` as `withDeadline` does, and aborts the signal at its end too, so that the losers stop. */
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

/** Longest time of a Node timer (24.8 days); a longer one fires at once. */
export const MAX_TIMER_MS = 0x7fff_ffff;

/** Calls `fire` after any time, without keeping the process alive. The returned function cancels the call. */
export function afterMs(ms: number, fire: () => void): () => void {
  let timer: NodeJS.Timeout;
  const wait = (leftMs: number): void => {
    const stepMs = Math.min(leftMs, MAX_TIMER_MS);
    timer = setTimeout(() => (leftMs > stepMs ? wait(leftMs - stepMs) : fire()), stepMs).unref();
  };
  wait(Number.isNaN(ms) ? 0 : Math.max(0, ms));
  return () => clearTimeout(timer);
}

/**
 * Creates a signal as `AbortSignal.timeout` does, but treats a time above 24.8 days as 24.8 days. The
 * original fires at once, and fails above 49 days.
 */
export function timeoutSignal(ms: number): AbortSignal {
  return AbortSignal.timeout(Math.min(Math.max(0, Math.ceil(ms)), MAX_TIMER_MS));
}
