import { MAX_TIMER_MS } from './long-timer.ts';

/** Something with a bound of time that is hardly ever reached. */
export interface Timed {
  /** Of `startTimer` and `stopTimer` alone. */
  timer: NodeJS.Timeout | undefined;
  dueMs: number;
  /** Neighbours among the young, oldest first; undefined: it is none of them. */
  before?: Timed | undefined;
  after?: Timed | undefined;
  timePassed(): void;
}

/** How long what has begun waits for a timer of its own. */
const LOOK_MS = 1000;

/** Those that have none yet: a ring through this one. */
const young: Timed = { timer: undefined, dueMs: 0, timePassed() {} };
young.before = young;
young.after = young;
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
  const last = young.before as Timed;
  timed.before = last;
  timed.after = young;
  last.after = timed;
  young.before = timed;
  if (isLooking) return;
  isLooking = true;
  setTimeout(look, LOOK_MS).unref();
}

/** The same for what is no longer young: it has a timer at once. */
export function goOn(timed: Timed, ms: number): void {
  timed.timer = setTimeout(pass, ms, timed).unref();
}

export function stopTimer(timed: Timed): void {
  if (timed.timer === undefined) leave(timed);
  else clearTimeout(timed.timer);
}

/** Its neighbours find each other; it leads to nobody any more. */
function leave(timed: Timed): void {
  const { before, after } = timed;
  if (before === undefined || after === undefined) return;
  before.after = after;
  after.before = before;
  timed.before = undefined;
  timed.after = undefined;
}

function look(): void {
  isLooking = false;
  const nowMs = performance.now();
  for (let timed = young.after as Timed; timed !== young; timed = young.after as Timed) {
    leave(timed);
    goOn(timed, Math.max(0, Math.ceil(timed.dueMs - nowMs)));
  }
}

/** One function for all timers: none pays for a closure. */
function pass(timed: Timed): void {
  timed.timePassed();
}

/** `startTimer` for who has no object of its own; the returned function cancels it. */
export function afterLazily(ms: number, fire: () => void): () => void {
  const timed: Timed = { timer: undefined, dueMs: 0, before: undefined, after: undefined, timePassed: fire };
  startTimer(timed, ms);
  return () => stopTimer(timed);
}
