import { createWriteStream } from 'node:fs';
import { appendFile, mkdir, readdir, rename, rm } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { Readable } from 'node:stream';
import { pipeline } from 'node:stream/promises';
import { unavailable } from '../core/error.ts';
import { isEnded } from '../core/job.ts';
import { pause } from '../lib/backoff.ts';
import type { Removals } from '../lib/removals.ts';
import type { StoredJob } from '../storage/jobs.ts';
import type { JobChanges } from './job-changes.ts';
import { exists, filePart, fromWholeLine, type LogPart, lastOf, liveOrKept } from './log-parts.ts';
import type { StoredLogs } from './stored-logs.ts';

/** Sources of a job's log. */
export interface JobLogSource {
  /** The job as it is now; null when it was deleted. */
  state(sequence: number): Promise<StoredJob | null>;
  /** The output of a running job's sandbox, with `follow` until it ends; nothing when it is gone. */
  live(job: StoredJob, follow: boolean, signal: AbortSignal): AsyncIterable<Buffer>;
}

export interface JobLogsOptions {
  readonly directory: string;
  readonly changes: JobChanges;
  readonly removals: Removals;
  readonly nodeId: string;
  /** The object store's; null: there is none. */
  readonly stored: StoredLogs | null;
}

type Kind = 'setup' | 'out';
/** Not one that is being written. */
const PART = /^\d+\.(setup|out)$/;
/** The largest output of the making of an environment. */
const MAX_SETUP_BYTES = 1024 * 1024;
/** How often a log is looked at whose job no node has. */
const NOBODYS_MS = 500;
const TOO_LONG = '\n… the rest of this output is not kept\n';

/**
 * The logs of jobs. While an attempt runs, its log is its sandbox's; at its end it becomes a file here. Each attempt has two files, what
 * was said while its environment was made (`<n>.setup`) and what it wrote (`<n>.out`); a job's log is all of them in order. What is not
 * here, because another node ran it or the disk is a new one, is read from the object store.
 */
export class JobLogs {
  readonly #options: JobLogsOptions;
  /** Bytes of the setups that are being written. */
  readonly #setupBytes = new Map<string, number>();

  constructor(options: JobLogsOptions) {
    this.#options = options;
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
    this.#options.changes.emit(sequence);
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
    const partOf = this.#finder(stored);
    for (let each = 1; each <= attempt; each += 1) {
      yield await partOf(each, 'setup');
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
      yield await partOf(each, 'out');
    }
  }

  /** Finds the parts of one log, those that are over also in the object store, which is asked at most once. */
  #finder({ job }: StoredJob): (attempt: number, kind: Kind) => Promise<LogPart> {
    const { stored, nodeId } = this.#options;
    let all: Promise<ReadonlyMap<string, LogPart>> | undefined;
    return async (attempt, kind) => {
      const path = this.#path(job.sequence, attempt, kind);
      const isOver = attempt < job.attempt || isEnded(job.status);
      if (stored === null || !isOver) return await filePart(path);
      // What another node ran may have left the beginning of a setup here, from before it was that node's.
      const isOwn = job.nodeId === nodeId;
      if (isOwn && (await exists(path))) return await filePart(path);
      all ??= stored.parts(job.sequence).catch(async (error: unknown) => {
        // Most have no setup, and their logs are here: no reason to need the object store.
        if (isOwn && (await this.#namesOf(job.sequence)).length > 0) return new Map<string, LogPart>();
        throw error;
      });
      return (await all).get(`${attempt}.${kind}`) ?? (await filePart(path));
    };
  }

  /**
   * The log from its beginning, on until the job is over and its end is known to everybody. Fails with `unavailable` when it has become another
   * node's: here nothing would be heard of it any more, and who asks again is led there.
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
          // Nobody's yet, and nobody here is told who takes it.
          await pause(NOBODYS_MS, signal);
          continue;
        }
        if (!isOver && nodeId !== this.#options.nodeId) {
          throw unavailable('the job has gone to another replica; ask again', { retryAfterSeconds: 1 });
        }
        const partOf = this.#finder(stored);
        for await (const chunk of (await partOf(read.attempt, 'setup')).read(read.setup)) {
          read.setup += chunk.length;
          yield chunk;
        }
        if (read.attempt < attempt || isOver) {
          // The lines that were seen live begin the ones that are kept.
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

  /** Puts what is here of a job's log into the object store. */
  async store(sequence: number): Promise<void> {
    const { stored } = this.#options;
    if (stored === null) return;
    const names = (await this.#namesOf(sequence)).filter(name => PART.test(name));
    await stored.keep(sequence, this.#directoryOf(sequence), names);
  }

  async remove(sequence: number): Promise<void> {
    await this.removeHere(sequence);
    await this.#options.stored?.remove(sequence);
  }

  /** Only what is on this node's disk. */
  async removeHere(sequence: number): Promise<void> {
    await this.#options.removals.remove(this.#directoryOf(sequence));
  }

  /** Removes the logs of jobs that are not known any more; `known` tells which of them are. */
  async sweep(known: (sequences: readonly number[]) => Promise<ReadonlySet<number>>): Promise<void> {
    const { directory, removals } = this.#options;
    const names = await readdir(directory).catch(() => []);
    const there = await known(names.map(Number).filter(Number.isSafeInteger));
    for (const name of names) if (!there.has(Number(name))) await removals.remove(join(directory, name));
  }

  /** The same for the object store. */
  async sweepStore(known: (sequences: readonly number[]) => Promise<ReadonlySet<number>>): Promise<void> {
    await this.#options.stored?.sweep(known);
  }

  async #namesOf(sequence: number): Promise<readonly string[]> {
    return await readdir(this.#directoryOf(sequence)).catch(() => []);
  }

  #directoryOf(sequence: number): string {
    return join(this.#options.directory, String(sequence));
  }

  #path(sequence: number, attempt: number, kind: Kind): string {
    return join(this.#directoryOf(sequence), `${attempt}.${kind}`);
  }
}
