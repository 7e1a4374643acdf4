import { messageOf } from '../core/error.ts';
import type { InstanceLog } from '../instances/contract.ts';
import { forEachOf } from '../lib/parallel.ts';
import type { Database } from '../storage/database.ts';
import type { DurableWrites } from '../storage/durable.ts';
import { listUnstoredLogs, markLogStored } from '../storage/job-owners.ts';
import type { JobLogs } from './job-logs.ts';

export interface LogUploadsOptions {
  readonly database: Database;
  readonly writes: DurableWrites;
  readonly nodeId: string;
  readonly logs: JobLogs;
  /** False: there is no object store, and nothing to do. */
  readonly hasStore: boolean;
  readonly log: InstanceLog;
}

const AT_ONCE = 100;
const PARALLEL = 4;

/**
 * Brings the logs of jobs that ended on this node to the object store. The rows say which are not there yet, so that neither a crash nor a
 * store that was away loses one; until then they are read from this node. No job waits for it to end.
 */
export class LogUploads {
  readonly #options: LogUploadsOptions;
  #running: Promise<void> | undefined;
  /** A job has ended since the rows were read. */
  #isWanted = false;
  #isClosed = false;

  constructor(options: LogUploadsOptions) {
    this.#options = options;
  }

  /** Looks for what is to be done and does it; joins what runs. Never rejects. */
  run(): Promise<void> {
    if (!this.#options.hasStore || this.#isClosed) return Promise.resolve();
    this.#isWanted = true;
    this.#running ??= this.#all().finally(() => {
      this.#running = undefined;
    });
    return this.#running;
  }

  /** Of a job whose attempt is over and that goes on, perhaps on another node. Never rejects. */
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
          // One that the store refuses holds up no other.
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
    // It was deleted meanwhile, by a node that did not find all of this.
    if (!(await writes.write(markLogStored, sequence))) await logs.remove(sequence);
    return true;
  }

  #warn(error: unknown): false {
    this.#options.log.warn(
      { reason: messageOf(error) },
      'logs of jobs are not in the object store yet; it is tried again',
    );
    return false;
  }
}
