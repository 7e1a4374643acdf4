import { messageOf } from '../core/error.ts';
import type { Job, JobStatus } from '../core/job.ts';
import type { Log } from '../lib/log.ts';
import type { Database } from '../storage/database.ts';
import type { StoredInstance } from '../storage/queries/instances.ts';
import {
  claimJob,
  finishJob,
  type JobEnd,
  markJobRunning,
  readJob,
  requeueJob,
  type StoredJob,
} from '../storage/queries/jobs.ts';
import type { DurableWrites } from '../storage/writes/durable.ts';
import { untilWritten } from '../storage/writes/until-written.ts';
import { type JobNode, ownerOf } from './cluster.ts';
import type { JobChanges } from './job-changes.ts';
import { NOT_STARTED, RUNNING_MESSAGE, retryDelayMs, stoppedEnd, TRY_LATER_MS } from './outcome.ts';

/** Counters of jobs. `Jobs.byStatus` counts the jobs that wait and run now. */
export interface JobMetrics {
  /** Counts the start of a job's first attempt, `waitedMs` after its submission. */
  started(waitedMs: number): void;
  /** Counts the end of a started attempt, whether or not another attempt follows. */
  attempted(status: JobStatus, ranMs: number): void;
  /** Counts the final end of a job, whether or not it ever ran. */
  ended(status: JobStatus): void;
}

export interface JobStatesOptions {
  readonly database: Database;
  readonly writes: DurableWrites;
  readonly node: JobNode;
  readonly changes: JobChanges;
  readonly metrics: JobMetrics;
  readonly log: Log;
}

/**
 * Outcome of a run. `over`: the job has ended. `left`: the server ends, and the next one continues.
 * `againAtMs`: the job must run again at that time.
 */
export type RunResult = 'over' | 'left' | { readonly againAtMs: number };

/**
 * Stores the states of the jobs that this node runs, and reports them. Retries until a write succeeds or
 * `closing` aborts.
 */
export class JobStates {
  readonly #options: JobStatesOptions;
  readonly #closing: AbortSignal;

  constructor(options: JobStatesOptions, closing: AbortSignal) {
    this.#options = options;
    this.#closing = closing;
  }

  /**
   * Reads the record of a job, and retries while the database is unavailable. A failed read does not fail the
   * job.
   */
  read(job: Job): Promise<StoredJob | null> {
    return untilWritten(
      () => readJob(this.#options.database, job.sequence),
      this.#closing,
      error => this.warn(job, error, 'cannot read job; retrying'),
    );
  }

  /** Repeats a write about a job until it succeeds. The job keeps its slot meanwhile. */
  write<T>(job: Job, write: () => Promise<T>): Promise<T> {
    return untilWritten(write, this.#closing, error =>
      this.warn(job, error, 'cannot write new state of job; retrying'),
    );
  }

  /** Stores the instance that will run a job. Returns false when the job does not wait here any more. */
  async claim(job: Job, intent: StoredInstance): Promise<boolean> {
    const { writes, node } = this.#options;
    return await this.write(job, () => writes.write(claimJob, job.sequence, ownerOf(node), intent));
  }

  /** Stores that a job is RUNNING. Returns false when another process took or ended it during the start. */
  async storeStart(job: Job, pid: string, startedAtMs: number): Promise<boolean> {
    const running = { instanceId: job.instanceId, pid, message: RUNNING_MESSAGE, startedAtMs };
    return await this.write(job, () => markJobRunning(this.#options.database, job.sequence, running));
  }

  /** Reports a start that was stored. */
  reportStart(job: Job, startedAtMs: number): void {
    const { metrics, changes } = this.#options;
    if (job.attempt === 1) metrics.started(Math.max(0, startedAtMs - job.submittedAtMs));
    changes.changed(job, { status: 'RUNNING', message: RUNNING_MESSAGE });
  }

  /** Stores the end of a job, or requeues it when it failed and has attempts left. */
  async end(job: Job, end: JobEnd, mayRetry = false): Promise<RunResult> {
    const { writes, node, changes, metrics } = this.#options;
    const { rules } = job.spec;
    if (mayRetry && end.status === 'FAILED' && job.attempt <= rules.retries) {
      const delayMs = retryDelayMs(rules, job.attempt);
      const again = {
        attempt: job.attempt + 1,
        notBeforeMs: Date.now() + delayMs,
        message: `Attempt ${job.attempt} of ${rules.retries + 1} failed; the next one starts in ${delayMs} ms. ${end.message}`,
      };
      return await this.#requeue(job, again);
    }
    if (await this.write(job, () => writes.write(finishJob, job.sequence, node.id, end))) {
      metrics.ended(end.status);
      changes.changed(job, end);
    } else changes.emit(job.sequence);
    return 'over';
  }

  /** Requeues a job of which nothing has run. The next try is not another attempt. */
  async tryLater(job: Job, why: unknown): Promise<RunResult> {
    const notBeforeMs = Date.now() + TRY_LATER_MS;
    const message = `${NOT_STARTED} Its sandbox could not be started yet; the service retries: ${messageOf(why)}`;
    return await this.#requeue(job, { attempt: job.attempt, notBeforeMs, message });
  }

  /** Requeues a job whose server ended before anything of the job had run. */
  async requeueUnchanged(job: Job): Promise<RunResult> {
    return await this.#requeue(job, { attempt: job.attempt, notBeforeMs: 0, message: job.message });
  }

  warn(job: Job, error: unknown, message: string): void {
    this.#options.log.warn({ job: job.id, tenant: job.tenant, err: error }, message);
  }

  async #requeue(job: Job, again: Parameters<typeof requeueJob>[3]): Promise<RunResult> {
    const { writes, node, changes, metrics } = this.#options;
    const stopped = stoppedEnd();
    const requeued = await this.write(job, () => writes.write(requeueJob, job.sequence, node.id, again, stopped));
    if (requeued === 'waits') {
      changes.changed(job, { status: 'PENDING', message: again.message, attempt: again.attempt });
      return { againAtMs: again.notBeforeMs };
    }
    if (requeued === 'stopped') {
      metrics.ended('STOPPED');
      changes.changed(job, stopped);
    } else changes.emit(job.sequence);
    return 'over';
  }
}
