import { setTimeout as delay } from 'node:timers/promises';

/** Bytes of log in an answer, a limit of the API of AWS Lambda. */
const TAIL_BYTES = 4096;
/** Time between two reads of a log, and the reads after which a log without new lines is complete. */
const READ_EVERY_MS = 10;
const QUIET_READS = 2;
const MAX_READS = 30;

/**
 * Returns the last bytes that a call has printed. The output reaches the log over a pipe, so it may arrive
 * after the answer of the call: the log is read until it has stopped to grow, for at most 0.3 s.
 */
export async function readLogTail(read: () => Promise<AsyncIterable<Buffer>>): Promise<Buffer> {
  let tail: Buffer = Buffer.alloc(0);
  let quiet = 0;
  for (let reads = 0; reads < MAX_READS && quiet < QUIET_READS; reads += 1) {
    if (reads > 0) await delay(READ_EVERY_MS);
    const next = await lastBytes(await read());
    // A call that prints nothing looks like one whose output is late, so it waits a little longer.
    quiet = next.equals(tail) ? quiet + (tail.length > 0 ? 1 : 1 / 4) : 0;
    tail = next;
  }
  return tail;
}

async function lastBytes(log: AsyncIterable<Buffer>): Promise<Buffer> {
  let tail: Buffer = Buffer.alloc(0);
  for await (const chunk of log) {
    const whole = Buffer.concat([tail, chunk]);
    tail = whole.subarray(Math.max(0, whole.length - TAIL_BYTES));
  }
  return Buffer.from(tail);
}
