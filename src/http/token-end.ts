import type { FastifyRequest } from 'fastify';

/** So often the clock is looked at again: it may be set, or its machine may sleep. */
const LOOK_MS = 60_000;

/** What an answer is written to. */
interface Answer {
  readonly destroyed: boolean;
  once(event: 'close', listener: () => void): unknown;
}

/**
 * Calls `end` once when the token that let a request in holds no longer, at once when that is so already, and never when `answer` is closed by
 * then. For what stays open as long as its caller likes: a stream of events, a followed log, a terminal. A call has bounds of its own.
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
