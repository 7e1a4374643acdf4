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
