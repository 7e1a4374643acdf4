import { createReadStream, createWriteStream } from 'node:fs';
import { appendFile, mkdir, readdir, rename, rm, stat } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { Readable } from 'node:stream';
import { pipeline } from 'node:stream/promises';
import { isEnded } from '../core/job.ts';
import type { Removals } from '../lib/removals.ts';
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

  /** The whole log as it is now, at most its last `maxBytes`. */
  async read(source: JobLogSource, stored: StoredJob, maxBytes: number, signal: AbortSignal): Promise<string> {
    const { sequence, attempt, status } = stored.job;
    const last = new Last(maxBytes);
    for (let each = 1; each <= attempt; each += 1) {
      for await (const chunk of readFrom(this.#path(sequence, each, 'setup'), 0)) last.add(chunk);
      const out = this.#path(sequence, each, 'out');
      let isLive = false;
      if (each === attempt && status === 'RUNNING' && !(await exists(out))) {
        for await (const chunk of source.live(stored, false, signal)) {
          isLive = true;
          last.add(chunk);
        }
      }
      // It may have ended in the meantime.
      if (!isLive) for await (const chunk of readFrom(out, 0)) last.add(chunk);
    }
    return last.text();
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
          // What was seen live is the beginning of what is kept.
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

/** Keeps the last bytes, beginning with a whole line. */
class Last {
  readonly #maxBytes: number;
  #chunks: Buffer[] = [];
  #bytes = 0;
  #isCut = false;

  constructor(maxBytes: number) {
    this.#maxBytes = maxBytes;
  }

  add(chunk: Buffer): void {
    this.#chunks.push(chunk);
    this.#bytes += chunk.length;
    while (this.#bytes - (this.#chunks[0]?.length ?? 0) > this.#maxBytes) {
      this.#bytes -= this.#chunks.shift()?.length ?? 0;
      this.#isCut = true;
    }
  }

  text(): string {
    const all = Buffer.concat(this.#chunks);
    return (this.#isCut ? all.subarray(all.indexOf(0x0a) + 1) : all).toString('utf8');
  }
}

/** A file that is not there is empty. */
async function* readFrom(path: string, start: number): AsyncIterable<Buffer> {
  try {
    yield* createReadStream(path, { start }) as AsyncIterable<Buffer>;
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'ENOENT') throw error;
  }
}

async function exists(path: string): Promise<boolean> {
  return await stat(path).then(
    () => true,
    () => false,
  );
}
