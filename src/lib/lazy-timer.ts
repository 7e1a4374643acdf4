import { MAX_TIMER_MS } from './long-timer.ts';

/** Something with a bound of time that is hardly ever reached. */
export interface Timed {
  /** Of `startTimer` and `stopTimer` alone. */
  timer: NodeJS.Timeout | undefined;
  dueMs: number;
  timePassed(): void;
}

/** How long what has begun waits for a timer of its own. */
const LOOK_MS = 1000;

/** Those that have none yet. */
const young = new Set<Timed>();
let isLooking = false;

/**
 * Calls `timePassed` after `ms`, at most `MAX_TIMER_MS`, without keeping the process alive. A timer for each call costs as much as all the rest of its bookkeeping, and nearly every
 * call is over long before its bound: so those that last get a timer when they are a second old, and the others none.
 */
export function startTimer(timed: Timed, ms: number): void {
  if (ms < 2 * LOOK_MS || ms >= MAX_TIMER_MS) {
    goOn(timed, ms);
    return;
  }
  timed.dueMs = performance.now() + ms;
  young.add(timed);
  if (isLooking) return;
  isLooking = true;
  setTimeout(look, LOOK_MS).unref();
}

/** The same for what is no longer young: it has a timer at once. */
export function goOn(timed: Timed, ms: number): void {
  timed.timer = setTimeout(pass, ms, timed).unref();
}

export function stopTimer(timed: Timed): void {
  if (timed.timer === undefined) young.delete(timed);
  else clearTimeout(timed.timer);
}

function look(): void {
  isLooking = false;
  const nowMs = performance.now();
  for (const timed of young) goOn(timed, Math.max(0, Math.ceil(timed.dueMs - nowMs)));
  young.clear();
}

/** One function for all timers: none pays for a closure. */
function pass(timed: Timed): void {
  timed.timePassed();
}

/** `startTimer` for who has no object of its own; the returned function cancels it. */
export function afterLazily(ms: number, fire: () => void): () => void {
  const timed: Timed = { timer: undefined, dueMs: 0, timePassed: fire };
  startTimer(timed, ms);
  return () => stopTimer(timed);
}
