import { messageOf } from '../core/error.ts';
import type { Log } from '../lib/log.ts';
import { forEachOf } from '../lib/parallel.ts';
import type { Database } from '../storage/database.ts';
import { listUnstoredLogs, markLogStored } from '../storage/queries/job-owners.ts';
import type { DurableWrites } from '../storage/writes/durable.ts';
import type { JobLogs } from './job-logs.ts';

export interface LogUploadsOptions {
  readonly database: Database;
  readonly writes: DurableWrites;
  readonly nodeId: string;
  readonly logs: JobLogs;
  /** False: no object store exists, and nothing is uploaded. */
  readonly hasStore: boolean;
  readonly log: Log;
}

const AT_ONCE = 100;
const PARALLEL = 4;

/**
 * Uploads the logs of jobs that ended on this node to the object store. Records show which logs are missing
 * there, so that a crash or an unavailable store loses none. Until the upload, logs are read from this node.
 * The end of a job does not wait for it.
 */
export class LogUploads {
  readonly #options: LogUploadsOptions;
  #running: Promise<void> | undefined;
  /** True if a job has ended since the records were read. */
  #isWanted = false;
  #isClosed = false;

  constructor(options: LogUploadsOptions) {
    this.#options = options;
  }

  /** Uploads all missing logs, or joins a running upload. Never rejects. */
  run(): Promise<void> {
    if (!this.#options.hasStore || this.#isClosed) return Promise.resolve();
    this.#isWanted = true;
    this.#running ??= this.#all().finally(() => {
      this.#running = undefined;
    });
    return this.#running;
  }

  /** Uploads the log of a finished attempt whose job continues, perhaps on another node. Never rejects. */
  async attempt(sequence: number): Promise<void> {
    if (!this.#options.hasStore) return;
    await this.#options.logs.store(sequence).catch((error: unknown) => this.#warn(error));
  }

  async close(): Promise<void> {
    this.#isClosed = true;
    await this.#running;
  }

  async #all(): Promise<void> {
    const { database, nodeId } = this.#options;
    try {
      while (this.#isWanted && !this.#isClosed) {
        this.#isWanted = false;
        const some = await listUnstoredLogs(database, nodeId, AT_ONCE);
        let stored = 0;
        await forEachOf(some, PARALLEL, async sequence => {
          // A log that the store refuses must not delay the others.
          if (await this.#store(sequence).catch((error: unknown) => this.#warn(error))) stored += 1;
        });
        if (some.length === AT_ONCE && stored > 0) this.#isWanted = true;
      }
    } catch (error) {
      this.#warn(error);
    }
  }

  async #store(sequence: number): Promise<boolean> {
    const { writes, logs } = this.#options;
    if (this.#isClosed) return false;
    await logs.store(sequence);
    // Another node deleted the job meanwhile, and did not find all objects.
    if (!(await writes.write(markLogStored, sequence))) await logs.remove(sequence);
    return true;
  }

  #warn(error: unknown): false {
    this.#options.log.warn({ reason: messageOf(error) }, 'cannot upload job logs to the object store; retrying');
    return false;
  }
}
