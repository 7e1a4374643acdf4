import { createReadStream, type Stats } from 'node:fs';
import { stat } from 'node:fs/promises';
import { isAbsent } from '../lib/system-errors.ts';

/** Part of a log that can be read from any offset. */
export interface LogPart {
  readonly bytes: number;
  read(start: number): AsyncIterable<Buffer>;
}

export async function filePart(path: string): Promise<LogPart> {
  const bytes = (await statOf(path))?.size ?? 0;
  return { bytes, read: start => readFrom(path, start) };
}

export async function* liveOrKept(live: AsyncIterable<Buffer>, kept: string, start: number): AsyncIterable<Buffer> {
  let before = start;
  let isLive = false;
  for await (const chunk of live) {
    isLive = true;
    const rest = chunk.subarray(before);
    before -= chunk.length - rest.length;
    if (rest.length > 0) yield rest;
  }
  if (!isLive) yield* readFrom(kept, start);
}

/**
 * Yields all parts without their first `skipped` bytes. Bytes that were appended after the measurement are
 * left out.
 */
export async function* lastOf(parts: readonly LogPart[], skipped: number): AsyncIterable<Buffer> {
  let before = skipped;
  for (const { bytes, read } of parts) {
    const start = Math.min(before, bytes);
    before -= start;
    let left = bytes - start;
    if (left === 0) continue;
    for await (const chunk of read(start)) {
      yield chunk.length <= left ? chunk : chunk.subarray(0, left);
      left -= chunk.length;
      if (left <= 0) break;
    }
  }
}

/** Maximum distance to the beginning of a line, bytes. */
const MAX_LINE_BYTES = 1024 * 1024;

/** Drops the rest of a line that was cut. A line longer than `MAX_LINE_BYTES` stays as it is. */
export async function* fromWholeLine(chunks: AsyncIterable<Buffer>): AsyncIterable<Buffer> {
  const held: Buffer[] = [];
  let heldBytes = 0;
  let isFound = false;
  for await (const chunk of chunks) {
    if (isFound) {
      yield chunk;
      continue;
    }
    const at = chunk.indexOf(0x0a);
    held.push(chunk);
    heldBytes += chunk.length;
    isFound = at >= 0 || heldBytes > MAX_LINE_BYTES;
    if (!isFound) continue;
    if (at >= 0) yield chunk.subarray(at + 1);
    else yield* held;
    held.length = 0;
  }
  yield* held;
}

/** Reads a file from `start`. A missing file is empty. */
export async function* readFrom(path: string, start: number): AsyncIterable<Buffer> {
  try {
    yield* createReadStream(path, { start }) as AsyncIterable<Buffer>;
  } catch (error) {
    if (!isAbsent(error)) throw error;
  }
}

export async function exists(path: string): Promise<boolean> {
  return (await statOf(path)) !== null;
}

/** Returns null for a missing file. Other errors are thrown, since an unreadable file is not an empty log. */
async function statOf(path: string): Promise<Stats | null> {
  return await stat(path).catch(error => {
    if (isAbsent(error)) return null;
    throw error;
  });
}
