import { messageOf, unavailable } from '../core/error.ts';
import type { Job } from '../core/job.ts';
import { packagesOf } from '../core/runtime-env.ts';
import { within } from '../lib/deadline.ts';
import type { Log } from '../lib/log.ts';
import { msUntilStored } from '../lib/stored-time.ts';
import type { Database } from '../storage/database.ts';
import { listFreeJobs, listOwnJobs, ownJobs, takeFreeJob } from '../storage/queries/job-owners.ts';
import { countOpenJobs, finishJob, listOpenJobs, readJob, setJobStopReason } from '../storage/queries/jobs.ts';
import type { DurableWrites } from '../storage/writes/durable.ts';
import { untilWritten } from '../storage/writes/until-written.ts';
import { type JobNode, ownerOf } from './cluster.ts';
import type { JobChanges } from './job-changes.ts';
import type { JobFiles } from './job-files.ts';
import type { JobRunner } from './job-runner.ts';
import type { JobMetrics, RunResult } from './job-states.ts';
import type { LogUploads } from './log-uploads.ts';
import { longestPauseMs, stoppedEnd } from './outcome.ts';
import type { JobPackages } from './packages.ts';
import type { JobQueue, QueueItem } from './queue.ts';

export interface NodeJobsOptions {
  readonly database: Database;
  readonly writes: DurableWrites;
  readonly node: JobNode;
  readonly queue: JobQueue;
  readonly runner: JobRunner;
  readonly files: JobFiles;
  readonly packages: Pick<JobPackages, 'nodeFor'>;
  readonly uploads: LogUploads;
  readonly changes: JobChanges;
  readonly metrics: JobMetrics;
  readonly log: Log;
}

/** Open job of this node, in memory. */
interface OpenJob {
  readonly item: QueueItem;
  readonly id: string;
  /** Packages of the job, each as `<tenant>/<name>`. */
  readonly packages: readonly string[];
  /** Maximum wait for a stored time. */
  readonly longestPauseMs: number;
  /** Aborts the preparation before the start. */
  readonly controller: AbortController;
  timer: NodeJS.Timeout | undefined;
  /** True while a run owns the job. The run removes it at its end. */
  isFollowed: boolean;
}

/** Open jobs after the service has stopped. */
export interface JobsLeft {
  /** Jobs that continue to run, and that the next start adopts. */
  readonly running: number;
  /** Jobs that start when a service runs again. */
  readonly waiting: number;
}

/** Jobs without an owner that a node takes in one pass. The bound leaves some to other nodes. */
const TAKEN_AT_ONCE = 10;

/**
 * Keeps the open jobs of this node and decides when each runs. Records say which node owns a job, and memory
 * follows them. A job that another node owns is not written any more, and its command here ends.
 */
export class NodeJobs {
  readonly #options: NodeJobsOptions;
  readonly #open = new Map<number, OpenJob>();
  readonly #runs = new Set<Promise<void>>();
  /** Epoch under which the records name this process as their owner. */
  #epoch = 0;
  #isStarted = false;
  #isClosing = false;

  constructor(options: NodeJobsOptions) {
    this.#options = options;
  }

  /** Continues the jobs of an earlier process of this node. */
  async start(): Promise<void> {
    const { database, node, files, queue, runner } = this.#options;
    await this.#acquireJobs();
    for (const stored of await listOpenJobs(database, node.id)) {
      const { job } = stored;
      const tracked = this.#track(job);
      if (job.instanceId === '') {
        this.#enqueue(tracked, stored.notBeforeMs);
        continue;
      }
      queue.occupy(tracked.item);
      this.#follow(tracked, runner.adopt(stored));
    }
    await files.sweep(new Set(this.#open.keys()));
    this.#isStarted = true;
    this.pump();
  }

  /**
   * Closes the node's jobs and returns the number of open ones. Running jobs continue, and the next start
   * adopts them. With `stopRunningMs` they end within that time. Null: the database did not return the
   * counts.
   */
  async close(stopRunningMs: number | null = null): Promise<JobsLeft | null> {
    this.#isClosing = true;
    if (stopRunningMs !== null) await this.#stopRunning(stopRunningMs);
    for (const { timer, controller } of this.#open.values()) {
      clearTimeout(timer);
      controller.abort();
    }
    this.#options.runner.close();
    await Promise.all(this.#runs);
    const { database, node, log } = this.#options;
    try {
      return await countOpenJobs(database, node.id);
    } catch (error) {
      log.warn({ err: error }, 'cannot count remaining jobs');
      return null;
    }
  }

  /** Fails with `unavailable` before the start, when the open jobs are unknown, and during the close. */
  mustBeStarted(): void {
    if (this.#isStarted && !this.#isClosing) return;
    throw unavailable('jobs cannot be submitted or stopped while the service starts or ends', { retryAfterSeconds: 1 });
  }

  /** Returns true if an open job needs an uploaded package (`<tenant>/<name>`). */
  needsPackage(key: string): boolean {
    for (const { packages } of this.#open.values()) if (packages.includes(key)) return true;
    return false;
  }

  /** Counts the open jobs by status. */
  byStatus(): { readonly PENDING: number; readonly RUNNING: number } {
    const { running } = this.#options.runner;
    return { PENDING: this.#open.size - running, RUNNING: running };
  }

  /** Queues a waiting job whose record names this node. */
  accept(job: Job, notBeforeMs = 0): void {
    if (this.#open.has(job.sequence) || this.#isClosing) return;
    this.#enqueue(this.#track(job), notBeforeMs);
    this.pump();
  }

  /**
   * Applies a stop that is already stored. With `hasWaited` the job has ended; otherwise its command is
   * stopped.
   */
  stopped(job: Job, hasWaited: boolean): void {
    const { runner, queue } = this.#options;
    if (!hasWaited) {
      runner.stop(job);
      return;
    }
    const tracked = this.#open.get(job.sequence);
    if (!tracked) return;
    clearTimeout(tracked.timer);
    // During its setup the job still has its slot, which its run releases.
    tracked.controller.abort();
    queue.remove(tracked.item);
    if (!tracked.isFollowed) this.#open.delete(job.sequence);
    // Other jobs may have waited behind this one.
    this.pump();
  }

  /**
   * Reconciles memory with the records that other nodes may have changed. Rejects when the database does not
   * answer.
   */
  async reconcile(): Promise<void> {
    const { database, writes, node, runner, packages } = this.#options;
    if (!this.#isStarted || this.#isClosing) return;
    const before = [...this.#open.keys()];
    await this.#acquireJobs();
    const own = new Map((await listOwnJobs(database, node.id)).map(row => [row.sequence, row]));
    for (const sequence of before) if (!own.has(sequence)) this.#dropLost(sequence);
    for (const { sequence, waits, isStopped } of own.values()) {
      if (!waits && !isStopped) continue;
      const isKnown = this.#open.has(sequence);
      if (isKnown && !isStopped) continue;
      const stored = await readJob(database, sequence);
      if (stored === null || stored.job.nodeId !== node.id) continue;
      if (isStopped && isKnown) runner.stopOnce(stored.job);
      else if (waits && stored.job.status === 'PENDING') this.accept(stored.job, stored.notBeforeMs);
    }
    for (const { job, notBeforeMs } of await listFreeJobs(database, TAKEN_AT_ONCE)) {
      const place = await packages.nodeFor(job.tenant, packagesOf(job.spec.runtimeEnv));
      if (place !== node.id) continue;
      if (await writes.write(takeFreeJob, job.sequence, ownerOf(node))) this.accept(job, notBeforeMs);
    }
  }

  /** Starts all jobs that may start now. */
  pump(): void {
    while (!this.#isClosing) {
      const item = this.#options.queue.startNext();
      if (!item) return;
      const tracked = this.#open.get(item.sequence);
      if (tracked) this.#follow(tracked, this.#run(tracked));
      else this.#options.queue.release(item);
    }
  }

  async #acquireJobs(): Promise<void> {
    const { writes, node } = this.#options;
    const owner = ownerOf(node);
    if (owner.epoch === this.#epoch) return;
    await writes.write(ownJobs, owner);
    this.#epoch = owner.epoch;
  }

  /** Drops a job whose record does not name this node any more, because it ended or another node owns it. */
  #dropLost(sequence: number): void {
    const { queue, runner, changes } = this.#options;
    const tracked = this.#open.get(sequence);
    if (!tracked) return;
    clearTimeout(tracked.timer);
    tracked.controller.abort();
    runner.abandon(sequence);
    queue.remove(tracked.item);
    if (!tracked.isFollowed) this.#open.delete(sequence);
    changes.emit(sequence);
    this.pump();
  }

  async #stopRunning(timeoutMs: number): Promise<void> {
    const { writes, runner, log } = this.#options;
    // Otherwise a job that is about to start would be missed below and continue to run.
    runner.startNoMore();
    for (const job of await this.#begunJobs()) {
      // A full disk must not keep the job running: the runner remembers why it ends.
      await writes
        .write(setJobStopReason, job.sequence, 'stopped')
        .catch((error: unknown) => log.warn({ job: job.id, err: error }, 'cannot write reason of job stop'));
      runner.end(job);
    }
    await within(Promise.all(this.#runs), timeoutMs, 'not all jobs have ended').catch(() => undefined);
  }

  /**
   * Returns the jobs that have a sandbox. When the database does not answer, returns those with a running
   * command.
   */
  async #begunJobs(): Promise<readonly Job[]> {
    const { database, node, runner, log } = this.#options;
    try {
      return (await listOpenJobs(database, node.id))
        .map(({ job }) => job)
        .filter(({ instanceId }) => instanceId !== '');
    } catch (error) {
      log.warn({ err: error }, 'cannot read running jobs; stopping the known ones');
      return runner.begun();
    }
  }

  #track({ sequence, tenant, id, spec }: Job): OpenJob {
    const tracked: OpenJob = {
      item: { sequence, tenant, priority: spec.rules.priority, resources: spec.resources },
      id,
      packages: packagesOf(spec.runtimeEnv).map(name => `${tenant}/${name}`),
      longestPauseMs: longestPauseMs(spec.rules),
      controller: new AbortController(),
      timer: undefined,
      isFollowed: false,
    };
    this.#open.set(sequence, tracked);
    return tracked;
  }

  #enqueue(tracked: OpenJob, notBeforeMs: number): void {
    tracked.timer = undefined;
    const waitMs = msUntilStored(notBeforeMs, tracked.longestPauseMs);
    if (waitMs === 0) {
      this.#options.queue.add(tracked.item);
      return;
    }
    tracked.timer = setTimeout(() => {
      this.#enqueue(tracked, 0);
      this.pump();
    }, waitMs).unref();
  }

  async #run(tracked: OpenJob): Promise<RunResult> {
    const { database, writes, node, changes, metrics, runner, log } = this.#options;
    const waits = (error: unknown) => log.warn({ job: tracked.id, err: error }, 'cannot read job; retrying');
    const read = () => readJob(database, tracked.item.sequence);
    const stored = await untilWritten(read, tracked.controller.signal, waits);
    if (stored?.job.status !== 'PENDING' || stored.job.nodeId !== node.id) return 'over';
    if (stored.stopReason !== '') {
      // The job was stopped while it returned to the queue.
      const stop = () => writes.write(finishJob, stored.job.sequence, node.id, stoppedEnd());
      const warn = (error: unknown) => log.warn({ job: tracked.id, err: error }, 'cannot end stopped job yet');
      if (await untilWritten(stop, tracked.controller.signal, warn)) {
        metrics.ended('STOPPED');
        changes.changed(stored.job, { status: 'STOPPED', message: stoppedEnd().message });
      } else changes.emit(stored.job.sequence);
      return 'over';
    }
    return await runner.run(stored, tracked.controller.signal);
  }

  /** Releases the slot when a run ends, and requeues the job when it must run again. */
  #follow(tracked: OpenJob, running: Promise<RunResult>): void {
    const { queue, uploads, log } = this.#options;
    const { sequence } = tracked.item;
    tracked.isFollowed = true;
    const run = running
      .catch((error: unknown): RunResult => {
        log.error({ job: tracked.id, reason: messageOf(error) }, 'cannot run or end job');
        return 'left';
      })
      .then(result => {
        queue.release(tracked.item);
        tracked.isFollowed = false;
        if (result === 'left') return;
        void (result === 'over' ? uploads.run() : uploads.attempt(sequence));
        if (result === 'over') this.#open.delete(sequence);
        else if (!this.#isClosing) this.#enqueue(tracked, result.againAtMs);
      })
      .finally(() => {
        this.#runs.delete(run);
        this.pump();
      });
    this.#runs.add(run);
  }
}
