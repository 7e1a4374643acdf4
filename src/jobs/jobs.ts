import { randomBytes } from 'node:crypto';
import {
  alreadyExists,
  failedPrecondition,
  messageOf,
  notFound,
  resourceExhausted,
  unavailable,
} from '../core/error.ts';
import { isEnded, type Job, type JobSubmission } from '../core/job.ts';
import { packagesOf } from '../core/runtime-env.ts';
import type { InstanceLog } from '../instances/contract.ts';
import type { Instances } from '../instances/instances.ts';
import { within } from '../lib/deadline.ts';
import type { Database } from '../storage/database.ts';
import type { DurableWrites } from '../storage/durable.ts';
import {
  countOpenJobs,
  deleteJob,
  findJob,
  finishJob,
  greatestJobSequence,
  insertJob,
  knownJobSequences,
  listExpiredJobs,
  listJobs,
  listOpenJobs,
  readJob,
  type StoredJob,
  setJobStopReason,
  stopJob,
} from '../storage/jobs.ts';
import { untilWritten } from '../storage/until-written.ts';
import type { JobChanges } from './job-changes.ts';
import type { JobFiles } from './job-files.ts';
import type { JobLogs } from './job-logs.ts';
import type { JobMetrics } from './job-metrics.ts';
import type { JobRunner, RunResult } from './job-runner.ts';
import { pendingMessage, stoppedEnd } from './outcome.ts';
import type { JobQueue, QueueItem } from './queue.ts';

export interface JobsOptions {
  readonly database: Database;
  readonly writes: DurableWrites;
  readonly instances: Instances;
  readonly nodeId: string;
  readonly queue: JobQueue;
  readonly runner: JobRunner;
  readonly files: JobFiles;
  readonly logs: JobLogs;
  readonly changes: JobChanges;
  readonly metrics: JobMetrics;
  /** Jobs that are not over, of all tenants and of one. */
  readonly maxOpen: number;
  readonly maxOpenPerTenant: number;
  readonly log: InstanceLog;
}

/** A job that is not over, in memory. */
interface OpenJob {
  readonly item: QueueItem;
  readonly id: string;
  /** `<tenant>/<name>` of each. */
  readonly packages: readonly string[];
  /** Aborts what happens before its start. */
  readonly controller: AbortController;
  timer: NodeJS.Timeout | undefined;
}

/** What a stop of the service leaves behind. */
export interface JobsLeft {
  /** They run on, and the next start finds them. */
  readonly running: number;
  /** They start when a service runs again. */
  readonly waiting: number;
}

/** What a log answers with at most. */
const MAX_LOG_BYTES = 32 * 1024 * 1024;
const ID_ALPHABET = 'ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz23456789';
const EXPIRED_AT_ONCE = 1000;
const PAGE = 200;

/**
 * The jobs of this node. A job is on the disk before it is acknowledged, and marked there before it starts; after a crash each one is
 * found where it was: waiting, running, or ended while nobody looked.
 */
export class Jobs {
  readonly #options: JobsOptions;
  readonly #open = new Map<number, OpenJob>();
  readonly #openPerTenant = new Map<string, number>();
  readonly #runs = new Set<Promise<void>>();
  #lastSequence = 0;
  #isStarted = false;
  #isClosing = false;

  constructor(options: JobsOptions) {
    this.#options = options;
  }

  /** Goes on where an earlier server stopped. */
  async start(): Promise<void> {
    const { database, nodeId, files, logs } = this.#options;
    this.#lastSequence = await greatestJobSequence(database);
    const open = await listOpenJobs(database, nodeId);
    for (const stored of open) {
      const { job } = stored;
      if (job.instanceId === '') {
        this.#enqueue(this.#track(job), stored.notBeforeMs);
        continue;
      }
      const tracked = this.#track(job);
      this.#options.queue.occupy(tracked.item);
      this.#follow(tracked, this.#options.runner.adopt(stored));
    }
    await files.sweep(new Set(this.#open.keys()));
    await logs.sweep(await knownJobSequences(database));
    this.#isStarted = true;
    this.pump();
  }

  /** Running jobs run on, and the next start finds them; with `stopRunningMs` they are ended, within that time. */
  async close(stopRunningMs: number | null = null): Promise<JobsLeft> {
    this.#isClosing = true;
    if (stopRunningMs !== null) await this.#stopRunning(stopRunningMs);
    for (const { timer, controller } of this.#open.values()) {
      clearTimeout(timer);
      controller.abort();
    }
    this.#options.runner.close();
    await Promise.all(this.#runs);
    return await countOpenJobs(this.#options.database, this.#options.nodeId);
  }

  /** Whether an uploaded package (`<tenant>/<name>`) is needed. */
  needsPackage(key: string): boolean {
    for (const { packages } of this.#open.values()) if (packages.includes(key)) return true;
    return false;
  }

  /** Whether a job that is not over has an id that begins so. */
  isOpen(tenant: string, prefix: string): boolean {
    for (const { item, id } of this.#open.values()) if (item.tenant === tenant && id.startsWith(prefix)) return true;
    return false;
  }

  /** How many are not over, as their records say. */
  byStatus(): { readonly PENDING: number; readonly RUNNING: number } {
    const { running } = this.#options.runner;
    return { PENDING: this.#open.size - running, RUNNING: running };
  }

  /**
   * Puts a job on the disk. The same id with the same body answers the job that there is; with another body it fails with
   * `already_exists`. Fails with `resource_exhausted` when too many are open, `invalid_request` when it asks for what it may not have.
   */
  async submit(tenant: string, { id, spec, fingerprint }: JobSubmission): Promise<Job> {
    const { database, writes, files, queue, maxOpen, maxOpenPerTenant, nodeId } = this.#options;
    this.#mustBeStarted();
    await files.check({ spec });
    if (this.#open.size >= maxOpen || (this.#openPerTenant.get(tenant) ?? 0) >= maxOpenPerTenant) {
      throw resourceExhausted('too many jobs are waiting or running', { retryAfterSeconds: 5 });
    }
    const nowMs = Date.now();
    // Ordered also within a millisecond and when the clock was set back.
    this.#lastSequence = Math.max(this.#lastSequence + 1, nowMs * 1000);
    const job: Job = {
      sequence: this.#lastSequence,
      tenant,
      id: id ?? newJobId(),
      spec,
      status: 'PENDING',
      message: pendingMessage(queue.shortage(spec.resources), spec.runtimeEnv.pip !== null),
      errorType: '',
      exitCode: null,
      attempt: 1,
      nodeId,
      instanceId: '',
      pid: '',
      submittedAtMs: nowMs,
      startedAtMs: null,
      endedAtMs: null,
    };
    // Before it is written, so that its packages stay.
    const tracked = this.#track(job);
    let isNew = false;
    try {
      isNew = await writes.write(insertJob, job, fingerprint);
    } finally {
      if (!isNew) this.#untrack(tracked);
    }
    if (isNew) {
      this.#enqueue(tracked, 0);
      this.pump();
      return job;
    }
    const known = await findJob(database, tenant, job.id);
    if (known?.fingerprint === fingerprint) return known.job;
    throw alreadyExists(`Job with submission_id ${job.id} already exists. Please use a different submission_id.`);
  }

  /** Fails with `not_found`, also for another tenant's. */
  async get(tenant: string, id: string): Promise<Job> {
    return (await this.#find(tenant, id)).job;
  }

  /** All of a tenant, the newest first, in pages: others get their turn between them, however many there are. */
  async *list(tenant: string): AsyncIterable<readonly Job[]> {
    for (let before = Number.MAX_SAFE_INTEGER; ; ) {
      const page = await listJobs(this.#options.database, tenant, { before, limit: PAGE });
      if (page.length > 0) yield page;
      const last = page.at(-1);
      if (last === undefined || page.length < PAGE) return;
      before = last.sequence;
      await new Promise(setImmediate);
    }
  }

  /** Ends a job that waits or runs; false when it is over already. Answers before it has ended. */
  async stop(tenant: string, id: string): Promise<boolean> {
    this.#mustBeStarted();
    const { writes, queue, runner, changes, metrics } = this.#options;
    const { job } = await this.#find(tenant, id);
    if (isEnded(job.status)) return false;
    const { sequence } = job;
    const wasWaiting = await writes.write(stopJob, sequence, stoppedEnd());
    const tracked = this.#open.get(sequence);
    if (!wasWaiting) {
      runner.stop(job);
      return true;
    }
    metrics.ended('STOPPED');
    changes.emit(sequence);
    if (!tracked) return true;
    clearTimeout(tracked.timer);
    // In its setup it still has its slot, which its run gives back.
    tracked.controller.abort();
    if (queue.remove(tracked.item) || tracked.timer !== undefined) this.#untrack(tracked);
    return true;
  }

  /** Forgets a job that is over, and its log. Fails with `failed_precondition` when it is not over. */
  async delete(tenant: string, id: string): Promise<void> {
    const { job } = await this.#find(tenant, id);
    if (!isEnded(job.status)) {
      throw failedPrecondition(`Attempted to delete job '${id}', but it is in a non-terminal state ${job.status}.`);
    }
    // Of two at the same moment one has forgotten it.
    if (!(await this.#options.writes.write(deleteJob, job.sequence))) throw notFound(`Job ${id} does not exist`);
    this.#options.changes.emit(job.sequence);
    await this.#options.logs.remove(job.sequence);
  }

  /** The log as it is now. Fails with `not_found` at once. */
  async log(tenant: string, id: string, signal: AbortSignal): Promise<AsyncIterable<Buffer>> {
    const stored = await this.#find(tenant, id);
    return await this.#options.logs.read(this, stored, MAX_LOG_BYTES, signal);
  }

  /** The log from its beginning until the job is over and that is known. Fails with `not_found` at once. */
  async follow(tenant: string, id: string, signal: AbortSignal): Promise<AsyncIterable<Buffer>> {
    const { job } = await this.#find(tenant, id);
    return this.#options.logs.follow(this, job.sequence, signal);
  }

  /** For `JobLogs`. */
  async state(sequence: number): Promise<StoredJob | null> {
    return await readJob(this.#options.database, sequence);
  }

  /** For `JobLogs`. */
  async *live({ job }: StoredJob, follow: boolean, signal: AbortSignal): AsyncIterable<Buffer> {
    yield* this.#options.instances.logs(job.instanceId, { tail: null, sinceMs: null, follow }, signal);
  }

  /** Forgets ended jobs that are too old or too many; true when there may be more of them. */
  async dropOld(bounds: { readonly endedBeforeMs: number; readonly keep: number }): Promise<boolean> {
    const { database, writes, logs } = this.#options;
    const expired = await listExpiredJobs(database, { ...bounds, limit: EXPIRED_AT_ONCE });
    for (const sequence of expired) {
      if (await writes.write(deleteJob, sequence)) await logs.remove(sequence);
    }
    return expired.length === EXPIRED_AT_ONCE;
  }

  async #stopRunning(timeoutMs: number): Promise<void> {
    const { database, nodeId, writes, runner } = this.#options;
    // Else one that is about to start would be missed below, and run on.
    runner.startNoMore();
    const running = (await listOpenJobs(database, nodeId)).filter(({ job }) => job.instanceId !== '');
    for (const { job } of running) {
      await writes.write(setJobStopReason, job.sequence, 'stopped');
      runner.stop(job);
    }
    await within(Promise.all(this.#runs), timeoutMs, 'not all jobs have ended').catch(() => undefined);
  }

  /** Before that it is not known what there is. */
  #mustBeStarted(): void {
    if (!this.#isStarted || this.#isClosing) {
      throw unavailable('jobs cannot be submitted or stopped while the service starts or ends', {
        retryAfterSeconds: 1,
      });
    }
  }

  async #find(tenant: string, id: string): Promise<StoredJob> {
    const stored = await findJob(this.#options.database, tenant, id);
    if (!stored) throw notFound(`Job ${id} does not exist`);
    return stored;
  }

  #track({ sequence, tenant, id, spec }: Job): OpenJob {
    const tracked: OpenJob = {
      item: { sequence, tenant, priority: spec.rules.priority, resources: spec.resources },
      id,
      packages: packagesOf(spec.runtimeEnv).map(name => `${tenant}/${name}`),
      controller: new AbortController(),
      timer: undefined,
    };
    this.#open.set(sequence, tracked);
    this.#openPerTenant.set(tenant, (this.#openPerTenant.get(tenant) ?? 0) + 1);
    return tracked;
  }

  #untrack({ item: { sequence, tenant } }: OpenJob): void {
    if (!this.#open.delete(sequence)) return;
    const left = (this.#openPerTenant.get(tenant) ?? 1) - 1;
    if (left > 0) this.#openPerTenant.set(tenant, left);
    else this.#openPerTenant.delete(tenant);
  }

  #enqueue(tracked: OpenJob, notBeforeMs: number): void {
    tracked.timer = undefined;
    const waitMs = notBeforeMs - Date.now();
    if (waitMs <= 0) {
      this.#options.queue.add(tracked.item);
      return;
    }
    tracked.timer = setTimeout(() => {
      this.#enqueue(tracked, 0);
      this.pump();
    }, waitMs).unref();
  }

  /** Starts what may start now. */
  pump(): void {
    while (!this.#isClosing) {
      const item = this.#options.queue.take();
      if (!item) return;
      const tracked = this.#open.get(item.sequence);
      if (tracked) this.#follow(tracked, this.#run(tracked));
      else this.#options.queue.release(item);
    }
  }

  async #run(tracked: OpenJob): Promise<RunResult> {
    const { database, writes, changes, metrics, runner, log } = this.#options;
    const stored = await readJob(database, tracked.item.sequence);
    if (stored?.job.status !== 'PENDING') return 'over';
    if (stored.stopReason !== '') {
      // It was stopped while it was on its way back to the queue.
      const stop = () => writes.write(finishJob, stored.job.sequence, stoppedEnd());
      const warn = (error: unknown) =>
        log.warn({ job: tracked.id, err: error }, 'a stopped job could not be ended yet');
      if (await untilWritten(stop, tracked.controller.signal, warn)) metrics.ended('STOPPED');
      changes.emit(stored.job.sequence);
      return 'over';
    }
    return await runner.run(stored, tracked.controller.signal);
  }

  /** Gives its slot back when a run is over, and brings it back when it is to run again. */
  #follow(tracked: OpenJob, running: Promise<RunResult>): void {
    const { queue, log } = this.#options;
    const run = running
      .catch((error: unknown): RunResult => {
        log.error({ job: tracked.id, reason: messageOf(error) }, 'a job could not be looked after');
        return 'left';
      })
      .then(result => {
        queue.release(tracked.item);
        if (result === 'left') return;
        if (result === 'over') this.#untrack(tracked);
        else if (!this.#isClosing) this.#enqueue(tracked, result.againAtMs);
      })
      .finally(() => {
        this.#runs.delete(run);
        this.pump();
      });
    this.#runs.add(run);
  }
}

function newJobId(): string {
  const letters = Array.from(randomBytes(16), byte => ID_ALPHABET[byte % ID_ALPHABET.length]);
  return `raysubmit_${letters.join('')}`;
}
