import { createReadStream, createWriteStream, type Stats } from 'node:fs';
import { appendFile, mkdir, readdir, rename, rm, stat } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { Readable } from 'node:stream';
import { pipeline } from 'node:stream/promises';
import { isEnded } from '../core/job.ts';
import type { Removals } from '../lib/removals.ts';
import { isAbsent } from '../lib/system-errors.ts';
import type { StoredJob } from '../storage/jobs.ts';
import type { JobChanges } from './job-changes.ts';

/** What the reader of a log asks for, of whoever knows. */
export interface JobLogSource {
  /** The job as it is now; null when it was deleted. */
  state(sequence: number): Promise<StoredJob | null>;
  /** What the sandbox of a running job has written, with `follow` until it ends; nothing when it is gone. */
  live(job: StoredJob, follow: boolean, signal: AbortSignal): AsyncIterable<Buffer>;
}

/** What the making of an environment may say. */
const MAX_SETUP_BYTES = 1024 * 1024;
const TOO_LONG = '\n… the rest of this output is not kept\n';

/**
 * The logs of jobs. While an attempt runs, its log is its sandbox's; at its end it becomes a file here. Each attempt has two files, what
 * was said while its environment was made (`<n>.setup`) and what it wrote (`<n>.out`); a job's log is all of them in order.
 */
export class JobLogs {
  readonly #directory: string;
  readonly #changes: JobChanges;
  readonly #removals: Removals;
  /** Bytes of the setups that are being written. */
  readonly #setupBytes = new Map<string, number>();

  constructor(directory: string, changes: JobChanges, removals: Removals) {
    this.#directory = directory;
    this.#changes = changes;
    this.#removals = removals;
  }

  /** An attempt's setup begins (again, when the server that did it before was killed). */
  async beginSetup(sequence: number, attempt: number): Promise<void> {
    await rm(this.#path(sequence, attempt, 'setup'), { force: true });
  }

  /** Adds to what was said during the setup; calls for one attempt may not overlap. */
  async addSetup(sequence: number, attempt: number, text: Buffer | string): Promise<void> {
    const path = this.#path(sequence, attempt, 'setup');
    const bytes = this.#setupBytes.get(path) ?? 0;
    if (bytes > MAX_SETUP_BYTES) return;
    this.#setupBytes.set(path, bytes + Buffer.byteLength(text));
    await mkdir(dirname(path), { recursive: true, mode: 0o700 });
    await appendFile(path, text, { mode: 0o600 });
    if (bytes + Buffer.byteLength(text) > MAX_SETUP_BYTES) await appendFile(path, TOO_LONG);
    this.#changes.emit(sequence);
  }

  endSetup(sequence: number, attempt: number): void {
    this.#setupBytes.delete(this.#path(sequence, attempt, 'setup'));
  }

  /** Keeps what an attempt wrote. Whole or not at all, and again when it was cut off. */
  async archive(sequence: number, attempt: number, chunks: AsyncIterable<Buffer>): Promise<void> {
    const path = this.#path(sequence, attempt, 'out');
    const iterator = chunks[Symbol.asyncIterator]();
    const first = await iterator.next();
    if (first.done === true) return;
    const all = async function* () {
      yield first.value;
      yield* { [Symbol.asyncIterator]: () => iterator };
    };
    await mkdir(dirname(path), { recursive: true, mode: 0o700 });
    await pipeline(Readable.from(all()), createWriteStream(`${path}.new`, { mode: 0o600 }));
    await rename(`${path}.new`, path);
  }

  /** The whole log as it is now, at most its last `maxBytes` (from the beginning of a line then), piece by piece. */
  async read(
    source: JobLogSource,
    stored: StoredJob,
    maxBytes: number,
    signal: AbortSignal,
  ): Promise<AsyncIterable<Buffer>> {
    const parts: LogPart[] = [];
    for await (const part of this.#parts(source, stored, signal)) parts.push(part);
    const total = parts.reduce((sum, { bytes }) => sum + bytes, 0);
    const skipped = Math.max(0, total - maxBytes);
    const chunks = lastOf(parts, skipped);
    return skipped === 0 ? chunks : fromWholeLine(chunks);
  }

  /** In order, each with as many bytes as it has now. */
  async *#parts(source: JobLogSource, stored: StoredJob, signal: AbortSignal): AsyncGenerator<LogPart> {
    const { sequence, attempt, status } = stored.job;
    for (let each = 1; each <= attempt; each += 1) {
      yield await filePart(this.#path(sequence, each, 'setup'));
      const out = this.#path(sequence, each, 'out');
      if (each === attempt && status === 'RUNNING' && !(await exists(out))) {
        let bytes = 0;
        for await (const chunk of source.live(stored, false, signal)) bytes += chunk.length;
        if (bytes > 0) {
          // The lines that were seen live begin the ones that are kept, should it end in the meantime.
          yield { bytes, read: start => liveOrKept(source.live(stored, false, signal), out, start) };
          continue;
        }
      }
      // It may have ended in the meantime.
      yield await filePart(out);
    }
  }

  /** The log from its beginning, on until the job is over and its end is known to everybody. */
  async *follow(source: JobLogSource, sequence: number, signal: AbortSignal): AsyncIterable<Buffer> {
    const changes = this.#changes.watch(sequence, signal);
    const read = { attempt: 1, setup: 0, out: 0 };
    try {
      while (!signal.aborted) {
        const stored = await source.state(sequence);
        if (!stored) return;
        const { status, attempt } = stored.job;
        const isOver = isEnded(status);
        for await (const chunk of readFrom(this.#path(sequence, read.attempt, 'setup'), read.setup)) {
          read.setup += chunk.length;
          yield chunk;
        }
        if (read.attempt < attempt || isOver) {
          // The lines that were seen live begin the ones that are kept.
          for await (const chunk of readFrom(this.#path(sequence, read.attempt, 'out'), read.out)) yield chunk;
          if (read.attempt >= attempt) return;
          read.attempt += 1;
          read.setup = 0;
          read.out = 0;
          continue;
        }
        if (status === 'RUNNING' && read.out === 0) {
          for await (const chunk of source.live(stored, true, signal)) {
            read.out += chunk.length;
            yield chunk;
          }
        }
        await changes.next();
      }
    } finally {
      changes.close();
    }
  }

  async remove(sequence: number): Promise<void> {
    await this.#removals.remove(join(this.#directory, String(sequence)));
  }

  /** Removes the logs of jobs that are not known any more. */
  async sweep(known: ReadonlySet<number>): Promise<void> {
    for (const name of await readdir(this.#directory).catch(() => [])) {
      if (!known.has(Number(name))) await this.#removals.remove(join(this.#directory, name));
    }
  }

  #path(sequence: number, attempt: number, kind: 'setup' | 'out'): string {
    return join(this.#directory, String(sequence), `${attempt}.${kind}`);
  }
}

/** A piece of a log that can be read from any of its bytes on. */
interface LogPart {
  readonly bytes: number;
  read(start: number): AsyncIterable<Buffer>;
}

async function filePart(path: string): Promise<LogPart> {
  const bytes = (await statOf(path))?.size ?? 0;
  return { bytes, read: start => readFrom(path, start) };
}

async function* liveOrKept(live: AsyncIterable<Buffer>, kept: string, start: number): AsyncIterable<Buffer> {
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

/** All parts without their first `skipped` bytes, and without what was added since they were measured. */
async function* lastOf(parts: readonly LogPart[], skipped: number): AsyncIterable<Buffer> {
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

/** How far the beginning of a line is looked for. */
const MAX_LINE_BYTES = 1024 * 1024;

/** Without the rest of the line that was cut; as it is when the line is too long to be one. */
async function* fromWholeLine(chunks: AsyncIterable<Buffer>): AsyncIterable<Buffer> {
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

/** A file that is not there is empty. */
async function* readFrom(path: string, start: number): AsyncIterable<Buffer> {
  try {
    yield* createReadStream(path, { start }) as AsyncIterable<Buffer>;
  } catch (error) {
    if (!isAbsent(error)) throw error;
  }
}

async function exists(path: string): Promise<boolean> {
  return (await statOf(path)) !== null;
}

/** Null for a file that is not there; one that cannot be looked at is no empty log. */
async function statOf(path: string): Promise<Stats | null> {
  return await stat(path).catch(error => {
    if (isAbsent(error)) return null;
    throw error;
  });
}
