import type { IncomingMessage } from 'node:http';

/** Largest rest of a body that is read before an early answer. */
const DRAINED_BYTES = 64 * 1024;
/** Longest time for that. */
const DRAIN_MS = 5_000;

/**
 * Reads the rest of a small body before an early answer. Some clients report a broken connection if an answer
 * precedes the end of their request. Never rejects.
 */
export async function drained(request: IncomingMessage): Promise<void> {
  const { 'content-length': length, 'transfer-encoding': encoding } = request.headers;
  const hasBody = encoding !== undefined || (length !== undefined && length !== '0');
  if (!hasBody || request.complete || Number(length ?? 0) > DRAINED_BYTES) return;
  let left = DRAINED_BYTES;
  await new Promise<void>(resolve => {
    const timer = setTimeout(end, DRAIN_MS);
    function end() {
      clearTimeout(timer);
      request.off('data', count);
      resolve();
    }
    function count(chunk: Buffer) {
      left -= chunk.length;
      if (left < 0) end();
    }
    request.on('data', count);
    for (const event of ['end', 'error', 'close']) request.once(event, end);
  });
}
