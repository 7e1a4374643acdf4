/** The most that one timer of Node waits (24.8 days); it fires at once when asked for more. */
export const MAX_TIMER_MS = 0x7fff_ffff;

/** Calls `fire` after any time, without keeping the process alive. The returned function cancels it. */
export function afterMs(ms: number, fire: () => void): () => void {
  let timer: NodeJS.Timeout;
  const wait = (leftMs: number): void => {
    const stepMs = Math.min(leftMs, MAX_TIMER_MS);
    timer = setTimeout(() => (leftMs > stepMs ? wait(leftMs - stepMs) : fire()), stepMs).unref();
  };
  wait(Number.isNaN(ms) ? 0 : Math.max(0, ms));
  return () => clearTimeout(timer);
}

/** As `AbortSignal.timeout`, but a time above 24.8 days ends after 24.8 days: the original fires at once, and fails above 49 days. */
export function timeoutSignal(ms: number): AbortSignal {
  return AbortSignal.timeout(Math.min(Math.max(0, Math.ceil(ms)), MAX_TIMER_MS));
}
