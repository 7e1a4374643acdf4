import { type FileHandle, open, stat } from 'node:fs/promises';
import { join } from 'node:path';
import { LIMITS } from '../../core/limits.ts';
import { pause } from '../../lib/backoff.ts';
import { onAbort } from '../../lib/linked-signal.ts';
import { OPENED } from '../../lib/opened-log.ts';
import { TickLimiter } from '../../lib/tick-limiter.ts';
import { type DirectoryWatch, watchDirectory } from '../../lib/watch-directory.ts';
import type { LogRequest } from '../driver.ts';
import { continuesLine, LogLines, PREFIX_BYTES } from './log-lines.ts';

/** Bytes of a chunk. A paused reader holds one chunk and the rest of a line. */
const CHUNK_BYTES = LIMITS.logChunkBytes;
/**
 * Minimum interval between two reads by a follower: steady output is read in larger pieces, not more often.
 */
const LOOK_GAP_MS = 20;
/**
 * Chunks that all readers together may read in a turn of the event loop, to keep turns short.
 */
const CHUNKS_IN_A_TURN = 4;
/** Log file names, newest first. */
const FILES = ['log', 'log.1', 'log.2'] as const;
const NEWLINE = 0x0a;

/** An open log file. The open handle keeps it readable after a rotation. */
interface OpenFile {
  readonly handle: FileHandle;
  readonly inode: number;
  /** Offset of the next byte to read. */
  position: number;
}

/** The state with which one reader reads a log. */
interface Reading {
  readonly lines: LogLines;
  /** The buffer for every chunk; null: each chunk gets a new buffer. */
  readonly memory: Buffer | null;
  readonly signal: AbortSignal;
}

const turns = new TickLimiter(CHUNKS_IN_A_TURN);

/**
 * Reads the lines of a sandbox's log. A removed sandbox has no lines.
 * With `follow`, file system events wake the reader, until `ended` settles and all is read, or `signal`
 * aborts. Each chunk is valid then until the next one is requested. The first chunk is `OPENED`.
 */
export async function* readLogs(
  directory: string,
  request: LogRequest,
  ended: Promise<unknown>,
  signal: AbortSignal,
): AsyncGenerator<Buffer> {
  const changes = request.follow ? new Changes(directory, ended, signal) : null;
  const files = await openAll(directory);
  try {
    const lines = new LogLines(request.sinceMs, request.untilMs);
    const memory = request.follow ? Buffer.allocUnsafeSlow(CHUNK_BYTES) : null;
    const reading: Reading = { lines, memory, signal };
    const first = request.tail === null ? 0 : await skipToTail(files, request.tail);
    yield OPENED;
    for (const file of files.slice(first)) yield* readFile(file, reading);
    while (changes !== null && !signal.aborted) {
      // Read before the last read of the files: they then contain everything written before the end.
      const isLast = changes.hasEnded;
      const newest = files.at(-1);
      if (!isLast && newest !== undefined && (await isNewest(directory, newest))) yield* readFile(newest, reading);
      else yield* readNew(directory, files, reading);
      if (isLast) break;
      await changes.next();
    }
    const rest = lines.end();
    if (rest.length > 0 && !signal.aborted) yield rest;
  } finally {
    changes?.close();
    await Promise.all(files.map(file => file.handle.close()));
  }
}

/** Opens all existing files, oldest first. */
async function openAll(directory: string): Promise<OpenFile[]> {
  const files: OpenFile[] = [];
  // Newest first: a rotation meanwhile shows a file twice, and never skips one.
  for (const name of FILES) {
    const handle = await open(join(directory, name)).catch(() => null);
    if (handle === null) continue;
    const inode = (await handle.stat()).ino;
    if (files.some(file => file.inode === inode)) await handle.close();
    else files.unshift({ handle, inode, position: 0 });
  }
  return files;
}

async function* readFile(file: OpenFile, { lines, memory, signal }: Reading): AsyncIterable<Buffer> {
  while (!signal.aborted) {
    await turns.next();
    const { bytesRead, buffer } = await file.handle.read(
      memory ?? Buffer.allocUnsafe(CHUNK_BYTES),
      0,
      CHUNK_BYTES,
      file.position,
    );
    if (bytesRead === 0) return;
    if (file.position === 0) lines.startFile();
    file.position += bytesRead;
    const whole = lines.push(buffer.subarray(0, bytesRead));
    if (whole.length > 0) yield whole;
    if (bytesRead < CHUNK_BYTES) return;
  }
}

/** Checks whether no rotation has happened since. That is the usual case, and costs one `stat` per change. */
async function isNewest(directory: string, { inode }: OpenFile): Promise<boolean> {
  return await stat(join(directory, FILES[0])).then(
    ({ ino }) => ino === inode,
    () => false,
  );
}

/** Reads the bytes that were appended to the newest of `files` since, and the files created after it. */
async function* readNew(directory: string, files: OpenFile[], reading: Reading): AsyncIterable<Buffer> {
  const newest = files.at(-1);
  const now = await openAll(directory);
  if (newest !== undefined) yield* readFile(newest, reading);
  const known = now.findIndex(file => file.inode === newest?.inode);
  for (const [index, file] of now.entries()) {
    if (index <= known) {
      await file.handle.close();
      continue;
    }
    files.push(file);
    yield* readFile(file, reading);
  }
  // The files that were rotated away have been read.
  for (const file of files.splice(0, Math.max(0, files.length - FILES.length))) await file.handle.close();
}

/**
 * Sets the positions to the start of the last `count` lines, and returns the index of the first file.
 * Reads backwards, so that a long log costs only as much as is shown.
 */
async function skipToTail(files: readonly OpenFile[], count: number): Promise<number> {
  let missing = count;
  for (let index = files.length - 1; index >= 0; index--) {
    const file = files[index] as OpenFile;
    const { size } = await file.handle.stat();
    if (count === 0) {
      file.position = size;
      return index;
    }
    // A newline at the very end ends the last line and begins none.
    let end = index === files.length - 1 && (await lastByte(file, size)) === NEWLINE ? size - 1 : size;
    while (end > 0) {
      const bytes = Math.min(CHUNK_BYTES, end);
      await turns.next();
      const { buffer } = await file.handle.read(Buffer.allocUnsafe(bytes), 0, bytes, end - bytes);
      for (
        let at = buffer.lastIndexOf(NEWLINE, bytes - 1);
        at >= 0;
        at = at === 0 ? -1 : buffer.lastIndexOf(NEWLINE, at - 1)
      ) {
        // No byte follows the newline at the end of an older file: the first line of the next file was
        // counted there.
        if (end - bytes + at + 1 === size) continue;
        missing -= 1;
        if (missing > 0) continue;
        file.position = end - bytes + at + 1;
        return index;
      }
      end -= bytes;
    }
    if (size > 0 && !(await beginsInside(file))) {
      missing -= 1;
      if (missing === 0) return index;
    }
  }
  return 0;
}

async function lastByte(file: OpenFile, size: number): Promise<number | undefined> {
  if (size === 0) return undefined;
  const { buffer } = await file.handle.read(Buffer.alloc(1), 0, 1, size - 1);
  return buffer[0];
}

async function beginsInside(file: OpenFile): Promise<boolean> {
  const { bytesRead, buffer } = await file.handle.read(Buffer.alloc(PREFIX_BYTES), 0, PREFIX_BYTES, 0);
  return continuesLine(buffer.subarray(0, bytesRead));
}

/** Wakes when a directory changes or the sandbox ends. Changes before `next` count. */
class Changes {
  readonly #watcher: DirectoryWatch | null;
  #hasChanged = false;
  #hasEnded = false;
  readonly #letGo: () => void;
  #nextLookMs = 0;
  #wake: (() => void) | undefined;
  readonly #signal: AbortSignal;

  constructor(directory: string, ended: Promise<unknown>, signal: AbortSignal) {
    const changed = () => {
      this.#hasChanged = true;
      this.#wake?.();
    };
    const end = () => {
      this.#hasEnded = true;
      changed();
    };
    this.#signal = signal;
    ended.then(end, end);
    this.#letGo = onAbort(signal, changed);
    try {
      this.#watcher = watchDirectory(directory, changed);
    } catch {
      // The sandbox was removed.
      this.#watcher = null;
      end();
    }
  }

  get hasEnded(): boolean {
    return this.#hasEnded;
  }

  async next(): Promise<void> {
    if (!this.#hasChanged) {
      await new Promise<void>(resolve => {
        this.#wake = resolve;
      });
    }
    const restMs = this.#nextLookMs - performance.now();
    if (restMs > 0 && !this.#hasEnded) await pause(restMs, this.#signal);
    this.#nextLookMs = performance.now() + LOOK_GAP_MS;
    this.#hasChanged = false;
  }

  close(): void {
    this.#letGo();
    this.#watcher?.close();
  }
}
