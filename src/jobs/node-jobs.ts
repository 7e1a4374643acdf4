import { messageOf, unavailable } from '../core/error.ts';
import type { Job } from '../core/job.ts';
import { packagesOf } from '../core/runtime-env.ts';
import type { InstanceLog } from '../instances/contract.ts';
import { within } from '../lib/deadline.ts';
import type { Database } from '../storage/database.ts';
import type { DurableWrites } from '../storage/durable.ts';
import { listFreeJobs, listOwnJobs, ownJobs, takeFreeJob } from '../storage/job-owners.ts';
import { countOpenJobs, finishJob, listOpenJobs, readJob, setJobStopReason } from '../storage/jobs.ts';
import { untilWritten } from '../storage/until-written.ts';
import { type JobNode, ownerOf } from './cluster.ts';
import type { JobChanges } from './job-changes.ts';
import type { JobFiles } from './job-files.ts';
import type { JobMetrics } from './job-metrics.ts';
import type { JobRunner, RunResult } from './job-runner.ts';
import type { LogUploads } from './log-uploads.ts';
import { stoppedEnd } from './outcome.ts';
import type { Packages } from './packages.ts';
import type { JobQueue, QueueItem } from './queue.ts';

export interface NodeJobsOptions {
  readonly database: Database;
  readonly writes: DurableWrites;
  readonly node: JobNode;
  readonly queue: JobQueue;
  readonly runner: JobRunner;
  readonly files: JobFiles;
  readonly packages: Pick<Packages, 'nodeFor'>;
  readonly uploads: LogUploads;
  readonly changes: JobChanges;
  readonly metrics: JobMetrics;
  readonly log: InstanceLog;
}

/** A job of this node that is not over, in memory. */
interface OpenJob {
  readonly item: QueueItem;
  readonly id: string;
  /** `<tenant>/<name>` of each. */
  readonly packages: readonly string[];
  /** Aborts what happens before its start. */
  readonly controller: AbortController;
  timer: NodeJS.Timeout | undefined;
  /** Its run looks after it, and forgets it at its end. */
  isFollowed: boolean;
}

/** What a stop of the service leaves behind. */
export interface JobsLeft {
  /** They run on, and the next start finds them. */
  readonly running: number;
  /** They start when a service runs again. */
  readonly waiting: number;
}

/** Of nobody's jobs one node takes so many at a time: the others shall have some. */
const TAKEN_AT_ONCE = 10;

/**
 * The open jobs of this node, and when each runs. A row says whose a job is; what is here in memory follows it: nothing is written about a
 * job that is another node's by now, and what runs of one ends.
 */
export class NodeJobs {
  readonly #options: NodeJobsOptions;
  readonly #open = new Map<number, OpenJob>();
  readonly #runs = new Set<Promise<void>>();
  /** The epoch with which the rows say that they are this process's. */
  #epoch = 0;
  #isStarted = false;
  #isClosing = false;

  constructor(options: NodeJobsOptions) {
    this.#options = options;
  }

  /** Goes on where an earlier process of this node stopped. */
  async start(): Promise<void> {
    const { database, node, files, queue, runner } = this.#options;
    await this.#own();
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
   * Running jobs run on, and the next start finds them; with `stopRunningMs` they are ended, within that time. Null: the database does not
   * say what is left.
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
      log.warn({ err: error }, 'the jobs that are left could not be counted');
      return null;
    }
  }

  /** Fails with `unavailable`: before the start it is not known what there is. */
  mustBeStarted(): void {
    if (this.#isStarted && !this.#isClosing) return;
    throw unavailable('jobs cannot be submitted or stopped while the service starts or ends', { retryAfterSeconds: 1 });
  }

  /** Whether an uploaded package (`<tenant>/<name>`) is needed. */
  needsPackage(key: string): boolean {
    for (const { packages } of this.#open.values()) if (packages.includes(key)) return true;
    return false;
  }

  /** How many are not over, as their records say. */
  byStatus(): { readonly PENDING: number; readonly RUNNING: number } {
    const { running } = this.#options.runner;
    return { PENDING: this.#open.size - running, RUNNING: running };
  }

  /** A row that waits is this node's. */
  accept(job: Job, notBeforeMs = 0): void {
    if (this.#open.has(job.sequence) || this.#isClosing) return;
    this.#enqueue(this.#track(job), notBeforeMs);
    this.pump();
  }

  /** It was asked to end, and its row says so; `hasWaited`: then it is over. */
  stopped(job: Job, hasWaited: boolean): void {
    const { runner, queue } = this.#options;
    if (!hasWaited) {
      runner.stop(job);
      return;
    }
    const tracked = this.#open.get(job.sequence);
    if (!tracked) return;
    clearTimeout(tracked.timer);
    // In its setup it still has its slot, which its run gives back.
    tracked.controller.abort();
    queue.remove(tracked.item);
    if (!tracked.isFollowed) this.#open.delete(job.sequence);
    // It may have been the one that the others waited behind.
    this.pump();
  }

  /** Brings memory and rows together, where other nodes write rows too. Rejects when the database does not answer. */
  async lookAgain(): Promise<void> {
    const { database, writes, node, runner, packages } = this.#options;
    if (!this.#isStarted || this.#isClosing) return;
    const before = [...this.#open.keys()];
    await this.#own();
    const own = new Map((await listOwnJobs(database, node.id)).map(row => [row.sequence, row]));
    for (const sequence of before) if (!own.has(sequence)) this.#lose(sequence);
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

  async #own(): Promise<void> {
    const { writes, node } = this.#options;
    const owner = ownerOf(node);
    if (owner.epoch === this.#epoch) return;
    await writes.write(ownJobs, owner);
    this.#epoch = owner.epoch;
  }

  /** Its row is not this node's any more: it is over, or another one has it. */
  #lose(sequence: number): void {
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
    // Else one that is about to start would be missed below, and run on.
    runner.startNoMore();
    for (const job of await this.#begunJobs()) {
      // A full disk is no reason to leave it running: the runner remembers why it ends.
      await writes
        .write(setJobStopReason, job.sequence, 'stopped')
        .catch((error: unknown) => log.warn({ job: job.id, err: error }, 'why a job is stopped could not be written'));
      runner.end(job);
    }
    await within(Promise.all(this.#runs), timeoutMs, 'not all jobs have ended').catch(() => undefined);
  }

  /** Those that have a sandbox; when the database does not say which, those that run. */
  async #begunJobs(): Promise<readonly Job[]> {
    const { database, node, runner, log } = this.#options;
    try {
      return (await listOpenJobs(database, node.id))
        .map(({ job }) => job)
        .filter(({ instanceId }) => instanceId !== '');
    } catch (error) {
      log.warn({ err: error }, 'the jobs that run could not be read; those that are known are stopped');
      return runner.begun();
    }
  }

  #track({ sequence, tenant, id, spec }: Job): OpenJob {
    const tracked: OpenJob = {
      item: { sequence, tenant, priority: spec.rules.priority, resources: spec.resources },
      id,
      packages: packagesOf(spec.runtimeEnv).map(name => `${tenant}/${name}`),
      controller: new AbortController(),
      timer: undefined,
      isFollowed: false,
    };
    this.#open.set(sequence, tracked);
    return tracked;
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

  async #run(tracked: OpenJob): Promise<RunResult> {
    const { database, writes, node, changes, metrics, runner, log } = this.#options;
    const waits = (error: unknown) =>
      log.warn({ job: tracked.id, err: error }, 'a job could not be read yet; it is tried again');
    const read = () => readJob(database, tracked.item.sequence);
    const stored = await untilWritten(read, tracked.controller.signal, waits);
    if (stored?.job.status !== 'PENDING' || stored.job.nodeId !== node.id) return 'over';
    if (stored.stopReason !== '') {
      // It was stopped while it was on its way back to the queue.
      const stop = () => writes.write(finishJob, stored.job.sequence, node.id, stoppedEnd());
      const warn = (error: unknown) =>
        log.warn({ job: tracked.id, err: error }, 'a stopped job could not be ended yet');
      if (await untilWritten(stop, tracked.controller.signal, warn)) {
        metrics.ended('STOPPED');
        changes.changed(stored.job, { status: 'STOPPED', message: stoppedEnd().message });
      } else changes.emit(stored.job.sequence);
      return 'over';
    }
    return await runner.run(stored, tracked.controller.signal);
  }

  /** Gives its slot back when a run is over, and brings it back when it is to run again. */
  #follow(tracked: OpenJob, running: Promise<RunResult>): void {
    const { queue, uploads, log } = this.#options;
    const { sequence } = tracked.item;
    tracked.isFollowed = true;
    const run = running
      .catch((error: unknown): RunResult => {
        log.error({ job: tracked.id, reason: messageOf(error) }, 'a job could not be looked after');
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
