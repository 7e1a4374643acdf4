import { randomBytes } from 'node:crypto';
import {
  alreadyExists,
  failedPrecondition,
  invalidRequest,
  notFound,
  resourceExhausted,
  type ServiceError,
} from '../core/error.ts';
import { isEnded, type Job, type JobSpec, type JobSubmission } from '../core/job.ts';
import { packagesOf } from '../core/runtime-env.ts';
import { secretsOf } from '../core/secret.ts';
import type { Instances } from '../instances/instances.ts';
import type { Database } from '../storage/database.ts';
import { nodeOfJob } from '../storage/queries/job-owners.ts';
import {
  insertJob,
  insertScheduledJob,
  type JobDraft,
  type OpenBounds,
  type ScheduledSubmit,
} from '../storage/queries/job-submits.ts';
import {
  deleteJob,
  findJob,
  knownJobSequences,
  listExpiredJobs,
  listJobs,
  listOpenJobs,
  readJob,
  type StoredJob,
  stopJob,
} from '../storage/queries/jobs.ts';
import type { LackingSecret } from '../storage/queries/secrets.ts';
import type { DurableWrites } from '../storage/writes/durable.ts';
import { type JobNode, ownerOf } from './cluster.ts';
import type { JobChanges } from './job-changes.ts';
import type { JobFiles } from './job-files.ts';
import type { JobLogs } from './job-logs.ts';
import type { JobMetrics } from './job-states.ts';
import type { NodeJobs } from './node-jobs.ts';
import { pendingMessage, stoppedEnd } from './outcome.ts';
import type { JobPackages } from './packages.ts';
import type { JobQueue } from './queue.ts';

export interface JobsOptions {
  readonly database: Database;
  readonly writes: DurableWrites;
  readonly instances: Instances;
  readonly node: JobNode;
  readonly own: NodeJobs;
  readonly queue: Pick<JobQueue, 'shortage' | 'waitReason'>;
  readonly files: JobFiles;
  readonly packages: Pick<JobPackages, 'nodeFor' | 'has'>;
  readonly logs: JobLogs;
  readonly keepsSecrets: boolean;
  readonly changes: JobChanges;
  readonly metrics: JobMetrics;
  readonly bounds: OpenBounds;
}

/** Maximum size of the answer with a log. */
const MAX_LOG_BYTES = 32 * 1024 * 1024;
const ID_ALPHABET = 'ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz23456789';
const EXPIRED_AT_ONCE = 1000;
const PAGE = 200;

/**
 * Provides jobs of all nodes to callers, from the records. A job is stored before it is acknowledged, and
 * marked before it starts. After a crash each job is found as waiting, running, or ended meanwhile.
 */
export class Jobs {
  readonly #options: JobsOptions;

  constructor(options: JobsOptions) {
    this.#options = options;
  }

  /** Counts the open jobs of this node by status. */
  byStatus(): { readonly PENDING: number; readonly RUNNING: number } {
    return this.#options.own.byStatus();
  }

  /**
   * Stores a job. The same id with the same body returns the existing job; with another body it fails with
   * `already_exists`. Fails with `resource_exhausted` when too many are open. Fails with `invalid_request`
   * when the job asks for something forbidden.
   */
  async submit(tenant: string, { id, spec, fingerprint }: JobSubmission): Promise<Job> {
    const { database, writes, own, bounds } = this.#options;
    own.mustBeStarted();
    await this.#check(spec);
    const draft = await this.#draft(tenant, id ?? newJobId(), spec);
    const submitted = await writes.write(insertJob, draft, fingerprint, bounds);
    if (submitted === 'full') throw tooMany();
    if (submitted !== 'known') return this.#submitted(draft, sequenceOf(submitted));
    const known = await findJob(database, tenant, draft.id);
    if (known?.fingerprint === fingerprint) return known.job;
    throw alreadyExists(`Job with submission_id ${draft.id} already exists. Please use a different submission_id.`);
  }

  /**
   * Submits the request of a job of any state again, as a new job. Fails with `not_found`, with
   * `failed_precondition` if its uploaded files are gone, and as `submit` does.
   */
  async rerun(tenant: string, id: string): Promise<Job> {
    const { job, fingerprint } = await this.#find(tenant, id);
    for (const name of packagesOf(job.spec.runtimeEnv)) {
      if (await this.#options.packages.has(tenant, name)) continue;
      throw failedPrecondition(
        `The files of job ${id} are gone (gcs://${name}): the service keeps unused ones for 10 minutes. Submit it with its files.`,
      );
    }
    return await this.submit(tenant, { id: null, spec: job.spec, fingerprint });
  }

  /**
   * Submits the job of a schedule's moment; any node may run it. `skipped`: the previous job has not ended.
   * `full`: too many are open. Deciding a moment again changes nothing. Fails as `submit` does.
   */
  async submitScheduled(
    tenant: string,
    scheduled: ScheduledSubmit,
    { id, spec, fingerprint }: JobSubmission & { readonly id: string },
  ): Promise<'submitted' | 'skipped' | 'full'> {
    const { database, writes, node, own, bounds } = this.#options;
    own.mustBeStarted();
    await this.#check(spec);
    const draft = await this.#draft(tenant, id, spec);
    const held = node.cluster?.fence() ?? null;
    const submitted = await writes.write(insertScheduledJob, held, scheduled, draft, fingerprint, bounds);
    if (submitted === 'full' || submitted === 'skipped') return submitted;
    if (typeof submitted !== 'string') this.#submitted(draft, sequenceOf(submitted));
    else {
      // A write whose answer was lost may have stored the job. This node would then not run it yet.
      const stored = await findJob(database, tenant, id);
      if (stored !== null && waitsOn(stored, node.id)) own.accept(stored.job, stored.notBeforeMs);
    }
    return 'submitted';
  }

  /** Fails with `invalid_request` when a job names secrets and the service keeps none. */
  assertMayName(secrets: readonly string[]): void {
    if (secrets.length === 0 || this.#options.keepsSecrets) return;
    throw invalidRequest('runtime_env.env_vars refers to a secret: this service keeps none');
  }

  /** Returns a job. Fails with `not_found`, also for a job of another tenant. */
  async get(tenant: string, id: string): Promise<Job> {
    return (await this.#find(tenant, id)).job;
  }

  /** Returns what a job waits for in the queue of this node, as the end of a sentence; null when unknown. */
  waitReason(job: Job): string | null {
    return job.status === 'PENDING' ? this.#options.queue.waitReason(job) : null;
  }

  /** Yields all jobs of a tenant in pages, newest first. Other work runs between the pages. */
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

  /**
   * Returns the other node that must serve the log of a job, or stop it. Null when this node can do it. Null
   * also for an unknown job, and for a job without a running command, which the database alone ends.
   */
  async nodeOf(tenant: string, id: string, what: 'log' | 'stop'): Promise<string | null> {
    const { database, node } = this.#options;
    if (node.cluster === null) return null;
    const found = await nodeOfJob(database, tenant, id);
    if (found === null || found.nodeId === '' || found.nodeId === node.id) return null;
    const isElsewhere = what === 'stop' ? found.hasBegun : found.isOpen || !found.isLogStored;
    return isElsewhere ? found.nodeId : null;
  }

  /** Stops a job that waits or runs. Returns before it has ended; false when it had already ended. */
  async stop(tenant: string, id: string): Promise<boolean> {
    const { writes, node, own, changes, metrics } = this.#options;
    own.mustBeStarted();
    const { job } = await this.#find(tenant, id);
    if (isEnded(job.status)) return false;
    const hasWaited = await writes.write(stopJob, job.sequence, node.id, stoppedEnd());
    if (hasWaited) {
      metrics.ended('STOPPED');
      changes.changed(job, { status: 'STOPPED', message: stoppedEnd().message });
    }
    own.stopped(job, hasWaited);
    return true;
  }

  /** Removes an ended job and its log. Fails with `failed_precondition` when it has not ended. */
  async delete(tenant: string, id: string): Promise<void> {
    const { job } = await this.#find(tenant, id);
    if (!isEnded(job.status)) {
      throw failedPrecondition(`Attempted to delete job '${id}', but it is in a non-terminal state ${job.status}.`);
    }
    // A concurrent call may have removed the job.
    if (!(await this.#options.writes.write(deleteJob, job.sequence))) throw notFound(`Job ${id} does not exist`);
    this.#options.changes.changed(job, { status: 'DELETED', message: '' });
    await this.#options.logs.remove(job.sequence);
  }

  /** Returns the current log. Fails at once with `not_found`. */
  async log(tenant: string, id: string, signal: AbortSignal): Promise<AsyncIterable<Buffer>> {
    const stored = await this.#find(tenant, id);
    return await this.#options.logs.read(this, stored, MAX_LOG_BYTES, signal);
  }

  /**
   * Returns the log from its beginning until the end of the job is stored. Fails at once with `not_found`.
   */
  async follow(tenant: string, id: string, signal: AbortSignal): Promise<AsyncIterable<Buffer>> {
    const { job } = await this.#find(tenant, id);
    return this.#options.logs.follow(this, job.sequence, signal);
  }

  /** Returns the record of a job, for `JobLogs`. */
  async state(sequence: number): Promise<StoredJob | null> {
    return await readJob(this.#options.database, sequence);
  }

  /** Returns the output of a job's sandbox, for `JobLogs`. */
  async *live({ job }: StoredJob, follow: boolean, signal: AbortSignal): AsyncIterable<Buffer> {
    yield* this.#options.instances.logs(job.instanceId, { tail: null, sinceMs: null, follow }, signal);
  }

  /** Removes ended jobs that are too old or too many. Returns true when there may be more of them. */
  async dropOld(bounds: { readonly endedBeforeMs: number; readonly keep: number }): Promise<boolean> {
    const { database, writes, logs } = this.#options;
    const expired = await listExpiredJobs(database, { ...bounds, limit: EXPIRED_AT_ONCE });
    for (const sequence of expired) {
      if (await writes.write(deleteJob, sequence)) await logs.remove(sequence);
    }
    return expired.length === EXPIRED_AT_ONCE;
  }

  /** Returns the open jobs of all nodes and tenants. */
  async open(): Promise<readonly Job[]> {
    return (await listOpenJobs(this.#options.database, null)).map(({ job }) => job);
  }

  /** Returns which of these sequences exist, on any node. */
  async known(sequences: readonly number[]): Promise<ReadonlySet<number>> {
    return await knownJobSequences(this.#options.database, sequences);
  }

  /**
   * Fails with `invalid_request` when a job asks for something forbidden. The write checks whether its
   * secrets exist.
   */
  async #check(spec: JobSpec): Promise<void> {
    await this.#options.files.check({ spec });
    this.assertMayName(secretsOf(spec.runtimeEnv.envVars));
  }

  async #draft(tenant: string, id: string, spec: JobSpec): Promise<JobDraft> {
    const { queue, packages, node } = this.#options;
    const nodeId = await packages.nodeFor(tenant, packagesOf(spec.runtimeEnv));
    return {
      tenant,
      id,
      spec,
      status: 'PENDING',
      message: pendingMessage(queue.shortage(spec.resources), spec.runtimeEnv.pip !== null),
      errorType: '',
      exitCode: null,
      attempt: 1,
      nodeId,
      // The epoch of another node is unknown here, and matters only once that node runs the job.
      nodeEpoch: nodeId === node.id ? ownerOf(node).epoch : 0,
      isForAnother: nodeId !== node.id,
      instanceId: '',
      pid: '',
      submittedAtMs: Date.now(),
      startedAtMs: null,
      endedAtMs: null,
    };
  }

  #submitted({ nodeEpoch: _, isForAnother, ...draft }: JobDraft, sequence: number): Job {
    const { own, changes } = this.#options;
    const job = { ...draft, sequence };
    changes.changed(job, {});
    // Another node finds the job in its records.
    if (!isForAnother) own.accept(job);
    return job;
  }

  async #find(tenant: string, id: string): Promise<StoredJob> {
    const stored = await findJob(this.#options.database, tenant, id);
    if (!stored) throw notFound(`Job ${id} does not exist`);
    return stored;
  }
}

function waitsOn({ job }: StoredJob, nodeId: string): boolean {
  return job.status === 'PENDING' && job.instanceId === '' && job.nodeId === nodeId;
}

/** Returns the sequence of a stored job. Fails with `invalid_request` when a secret is missing. */
function sequenceOf(written: { readonly sequence: number } | LackingSecret): number {
  if ('lacking' in written) throw noSecret(written);
  return written.sequence;
}

export function noSecret({ lacking }: LackingSecret): ServiceError {
  return invalidRequest(`runtime_env.env_vars: secret does not exist: ${lacking}`);
}

function tooMany() {
  return resourceExhausted('too many jobs are waiting or running', { retryAfterSeconds: 5 });
}

function newJobId(): string {
  const letters = Array.from(randomBytes(16), byte => ID_ALPHABET[byte % ID_ALPHABET.length]);
  return `raysubmit_${letters.join('')}`;
}
