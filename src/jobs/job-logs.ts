import { createWriteStream } from 'node:fs';
import { appendFile, mkdir, readdir, rename, rm } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { Readable } from 'node:stream';
import { pipeline } from 'node:stream/promises';
import { unavailable } from '../core/error.ts';
import { isEnded } from '../core/job.ts';
import { pause } from '../lib/backoff.ts';
import type { Removals } from '../lib/removals.ts';
import type { StoredJob } from '../storage/queries/jobs.ts';
import type { JobChanges } from './job-changes.ts';
import { exists, filePart, fromWholeLine, type LogPart, lastOf, liveOrKept } from './log-parts.ts';
import type { StoredLogs } from './stored-logs.ts';

/** Sources of a job's log. */
export interface JobLogSource {
  /** Returns the current state of the job; null when it was deleted. */
  state(sequence: number): Promise<StoredJob | null>;
  /**
   * Returns the output of a running job's sandbox, with `follow` until it ends; nothing when the sandbox was
   * removed.
   */
  live(job: StoredJob, follow: boolean, signal: AbortSignal): AsyncIterable<Buffer>;
}

export interface JobLogsOptions {
  readonly directory: string;
  readonly changes: JobChanges;
  readonly removals: Removals;
  readonly nodeId: string;
  /** Logs in the object store; null: no object store exists. */
  readonly stored: StoredLogs | null;
}

type LogPartKind = 'setup' | 'out';
/** Name of a finished part. Parts that are being written have other names. */
const PART = /^\d+\.(setup|out)$/;
/** Maximum output of the setup of an environment, bytes. */
const MAX_SETUP_BYTES = 1024 * 1024;
/** Interval between reads of a followed job that no node owns. */
const NOBODYS_MS = 500;
const TOO_LONG = '\n… the rest of this output is not kept\n';

/**
 * Keeps the logs of jobs. While an attempt runs, its log comes from its sandbox; at its end it becomes a
 * file.
 * Each attempt has two files: the output of the setup of its environment (`<n>.setup`) and its own output
 * (`<n>.out`). A job's log is all of them in order.
 * Parts that are missing on this disk are read from the object store. Another node ran them, or the disk is
 * new.
 */
export class JobLogs {
  readonly #options: JobLogsOptions;
  /** Sizes of the setups that are being written. */
  readonly #setupBytes = new Map<string, number>();

  constructor(options: JobLogsOptions) {
    this.#options = options;
  }

  /** Begins the setup of an attempt. Removes the output of a setup that a killed server had begun. */
  async beginSetup(sequence: number, attempt: number): Promise<void> {
    await rm(this.#path(sequence, attempt, 'setup'), { force: true });
  }

  /** Appends output of the setup. Calls for one attempt must not overlap. */
  async addSetup(sequence: number, attempt: number, text: Buffer | string): Promise<void> {
    const path = this.#path(sequence, attempt, 'setup');
    const bytes = this.#setupBytes.get(path) ?? 0;
    if (bytes > MAX_SETUP_BYTES) return;
    this.#setupBytes.set(path, bytes + Buffer.byteLength(text));
    await mkdir(dirname(path), { recursive: true, mode: 0o700 });
    await appendFile(path, text, { mode: 0o600 });
    if (bytes + Buffer.byteLength(text) > MAX_SETUP_BYTES) await appendFile(path, TOO_LONG);
    this.#options.changes.emit(sequence);
  }

  endSetup(sequence: number, attempt: number): void {
    this.#setupBytes.delete(this.#path(sequence, attempt, 'setup'));
  }

  /** Stores the output of an attempt, whole or not at all. May be repeated after an interruption. */
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

  /**
   * Returns the current log in chunks, at most its last `maxBytes`. A shortened log begins with a whole line.
   */
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

  /** Yields the parts in order, each with its current size. */
  async *#parts(source: JobLogSource, stored: StoredJob, signal: AbortSignal): AsyncGenerator<LogPart> {
    const { sequence, attempt, status } = stored.job;
    const partOf = this.#finder(stored);
    for (let each = 1; each <= attempt; each += 1) {
      yield await partOf(each, 'setup');
      const out = this.#path(sequence, each, 'out');
      if (each === attempt && status === 'RUNNING' && !(await exists(out))) {
        let bytes = 0;
        for await (const chunk of source.live(stored, false, signal)) bytes += chunk.length;
        if (bytes > 0) {
          // If the attempt ends meanwhile, its stored output begins with the bytes that were read live.
          yield { bytes, read: start => liveOrKept(source.live(stored, false, signal), out, start) };
          continue;
        }
      }
      // The attempt may have ended meanwhile.
      yield await partOf(each, 'out');
    }
  }

  /**
   * Returns a function that finds the parts of a log. Finished parts may be in the object store, which is
   * listed at most once.
   */
  #finder({ job }: StoredJob): (attempt: number, kind: LogPartKind) => Promise<LogPart> {
    const { stored, nodeId } = this.#options;
    let all: Promise<ReadonlyMap<string, LogPart>> | undefined;
    return async (attempt, kind) => {
      const path = this.#path(job.sequence, attempt, kind);
      const isOver = attempt < job.attempt || isEnded(job.status);
      if (stored === null || !isOver) return await filePart(path);
      // If another node ran the attempt, this disk may still have the beginning of a setup. This node had
      // started it.
      const isOwn = job.nodeId === nodeId;
      if (isOwn && (await exists(path))) return await filePart(path);
      all ??= stored.parts(job.sequence).catch(async (error: unknown) => {
        // Most attempts have no setup, and their logs are on this disk. A failed object store must not make
        // those unreadable.
        if (isOwn && (await this.#namesOf(job.sequence)).length > 0) return new Map<string, LogPart>();
        throw error;
      });
      return (await all).get(`${attempt}.${kind}`) ?? (await filePart(path));
    };
  }

  /**
   * Yields the log from its beginning until the end of the job is stored. Fails with `unavailable` when
   * another node has taken the job. This node gets no changes of it then, and a retry is forwarded there.
   */
  async *follow(source: JobLogSource, sequence: number, signal: AbortSignal): AsyncIterable<Buffer> {
    const changes = this.#options.changes.watch(sequence, signal);
    const read = { attempt: 1, setup: 0, out: 0 };
    try {
      while (!signal.aborted) {
        const stored = await source.state(sequence);
        if (!stored) return;
        const { status, attempt, nodeId } = stored.job;
        const isOver = isEnded(status);
        if (!isOver && nodeId === '') {
          // No node owns the job yet, and this node is not notified when another takes it.
          await pause(NOBODYS_MS, signal);
          continue;
        }
        if (!isOver && nodeId !== this.#options.nodeId) {
          throw unavailable('another replica owns the job now; try again', { retryAfterSeconds: 1 });
        }
        const partOf = this.#finder(stored);
        for await (const chunk of (await partOf(read.attempt, 'setup')).read(read.setup)) {
          read.setup += chunk.length;
          yield chunk;
        }
        if (read.attempt < attempt || isOver) {
          // The stored output begins with the bytes that were read live.
          for await (const chunk of (await partOf(read.attempt, 'out')).read(read.out)) yield chunk;
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

  /** Uploads the parts of a job's log that are on this disk. */
  async store(sequence: number): Promise<void> {
    const { stored } = this.#options;
    if (stored === null) return;
    const names = (await this.#namesOf(sequence)).filter(name => PART.test(name));
    await stored.upload(sequence, this.#directoryOf(sequence), names);
  }

  async remove(sequence: number): Promise<void> {
    await this.removeHere(sequence);
    await this.#options.stored?.remove(sequence);
  }

  /** Removes only the files on this node's disk. */
  async removeHere(sequence: number): Promise<void> {
    await this.#options.removals.remove(this.#directoryOf(sequence));
  }

  /** Removes the logs of unknown jobs. `known` returns which sequences exist. */
  async sweep(known: (sequences: readonly number[]) => Promise<ReadonlySet<number>>): Promise<void> {
    const { directory, removals } = this.#options;
    const names = await readdir(directory).catch(() => []);
    const there = await known(names.map(Number).filter(Number.isSafeInteger));
    for (const name of names) if (!there.has(Number(name))) await removals.remove(join(directory, name));
  }

  /** Removes the logs of unknown jobs from the object store. */
  async sweepStore(known: (sequences: readonly number[]) => Promise<ReadonlySet<number>>): Promise<void> {
    await this.#options.stored?.sweep(known);
  }

  async #namesOf(sequence: number): Promise<readonly string[]> {
    return await readdir(this.#directoryOf(sequence)).catch(() => []);
  }

  #directoryOf(sequence: number): string {
    return join(this.#options.directory, String(sequence));
  }

  #path(sequence: number, attempt: number, kind: LogPartKind): string {
    return join(this.#directoryOf(sequence), `${attempt}.${kind}`);
  }
}
