import type { FastifyRequest } from 'fastify';

/** Longest time between two checks of the clock, which may be set, or stop while the machine sleeps. */
const LOOK_MS = 60_000;

/** The response or connection to watch. */
interface Answer {
  readonly destroyed: boolean;
  once(event: 'close', listener: () => void): unknown;
}

/**
 * Calls `end` once when the admitting token expires, or immediately if it has expired.
 * Does not call `end` after `answer` has closed.
 * Used for answers that stay open as long as the client wants: event streams, followed logs, terminals. Calls
 * have bounds of their own.
 */
export function onTokenEnd({ admittedUntilMs }: FastifyRequest, answer: Answer, end: () => void): void {
  if (admittedUntilMs === null || answer.destroyed) return;
  let timer: NodeJS.Timeout | undefined;
  const look = () => {
    const leftMs = admittedUntilMs - Date.now();
    if (leftMs <= 0) end();
    else timer = setTimeout(look, Math.min(leftMs, LOOK_MS)).unref();
  };
  answer.once('close', () => clearTimeout(timer));
  look();
}
