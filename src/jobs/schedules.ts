import { randomBytes } from 'node:crypto';
import { Cron } from 'croner';
import { alreadyExists, failedPrecondition, invalidRequest, messageOf, notFound } from '../core/error.ts';
import { checkScheduleId, JOB_SCHEDULE, type JobSubmission, readJobSubmission } from '../core/job.ts';
import { failAtFirst, invalidBody, type JsonObject } from '../core/json.ts';
import { packagesOf } from '../core/runtime-env.ts';
import { secretsOf } from '../core/secret.ts';
import { Form } from '../core/shape.ts';
import { withDeadline } from '../lib/deadline.ts';
import { sharedController } from '../lib/linked-signal.ts';
import type { Log } from '../lib/log.ts';
import { isFromWrongClock } from '../lib/stored-time.ts';
import type { Database } from '../storage/database.ts';
import {
  deleteJobSchedule,
  findJobSchedule,
  insertJobSchedule,
  listJobScheduleKeys,
  listJobSchedules,
  putJobSchedule,
} from '../storage/queries/job-schedules.ts';
import type { JobScheduleTable } from '../storage/schema.ts';
import type { DurableWrites } from '../storage/writes/durable.ts';
import { untilWritten } from '../storage/writes/until-written.ts';
import type { JobNode } from './cluster.ts';
import { type Jobs, noSecret } from './jobs.ts';

export interface JobSchedulesOptions {
  readonly database: Database;
  readonly writes: DurableWrites;
  readonly node: JobNode;
  readonly jobs: Pick<Jobs, 'submitScheduled' | 'assertMayName'>;
  readonly maxPerTenant: number;
  readonly log: Log;
}

/** Schedule that a caller asks for. The id is generated when none was sent. */
export type Schedule = Omit<JobScheduleTable, 'tenant' | 'created_at_ms' | 'decided_until_ms'>;

interface RunningSchedule {
  readonly row: JobScheduleTable;
  readonly submission: JobSubmission;
  readonly cron: Cron;
  readonly packages: readonly string[];
  /** Settles when the last moment that this node is deciding has been decided. */
  last: Promise<void>;
}

/**
 * Time that a node looks back when it takes over the schedules. Longer than the detection of a dead node
 * takes.
 */
const TAKEOVER_MS = 60_000;

/**
 * Submits jobs by the clock. Only one of several nodes submits.
 * Each moment is decided in the transaction that stores its job, so that it never gives two jobs. Moments
 * that were due during a takeover are made up for. Those that were due while no service ran are not.
 */
export class JobSchedules {
  readonly #options: JobSchedulesOptions;
  readonly #running = new Map<string, RunningSchedule>();
  /** Time since which this node submits; null: another node does. */
  #heldSinceMs: number | null = null;
  /** Schedules that cannot be read. Each is logged once. */
  readonly #bad = new Set<string>();
  readonly #closing = sharedController();

  constructor(options: JobSchedulesOptions) {
    this.#options = options;
  }

  async start(): Promise<void> {
    for (const row of await listJobSchedules(this.#options.database, null)) this.#startSchedule(row);
    const { cluster } = this.#options.node;
    if (cluster === null) this.#heldSinceMs = Date.now();
    else await this.#submitIfLeaseHeld(cluster.isHeld());
  }

  /** Reads which schedules other nodes made and deleted, and whether this node submits. */
  async reload(): Promise<void> {
    const { database, node } = this.#options;
    const keys = await listJobScheduleKeys(database);
    const known = new Map(keys.map(({ tenant, id, created_at_ms }) => [keyOf(tenant, id), created_at_ms]));
    for (const [key, { row }] of this.#running) if (known.get(key) !== row.created_at_ms) this.#forget(key);
    for (const { tenant, id } of keys) {
      const key = keyOf(tenant, id);
      if (this.#running.has(key) || this.#bad.has(key)) continue;
      const row = await findJobSchedule(database, tenant, id);
      if (row !== undefined) this.#startSchedule(row);
      const running = this.#running.get(key);
      if (running !== undefined && this.#heldSinceMs !== null) await this.#catchUp(running);
    }
    if (node.cluster !== null) await this.#submitIfLeaseHeld(node.cluster.isHeld());
  }

  close(): void {
    this.#closing.abort();
    for (const { cron } of this.#running.values()) cron.stop();
    this.#running.clear();
  }

  /** Returns true if a schedule needs an uploaded package (`<tenant>/<name>`). */
  needsPackage(key: string): boolean {
    for (const { packages } of this.#running.values()) if (packages.includes(key)) return true;
    return false;
  }

  /** Returns the packages of all schedules, as `<tenant>/<name>`. */
  packages(): readonly string[] {
    return [...this.#running.values()].flatMap(({ packages }) => packages);
  }

  /**
   * Creates a schedule. Fails with `invalid_request`, or with `already_exists` when the tenant has one with
   * this id.
   */
  async create(tenant: string, schedule: Schedule): Promise<Record<string, unknown>> {
    const { writes, maxPerTenant } = this.#options;
    const { row, secrets } = this.#rowOf(tenant, schedule);
    const written = await writes.write(insertJobSchedule, row, secrets, maxPerTenant);
    if (written === 'full') throw tooMany(maxPerTenant);
    if (written === 'known') throw alreadyExists(`Schedule ${row.id} already exists`);
    if (written !== 'inserted') throw noSecret(written);
    this.#run(row);
    return this.#record(row);
  }

  /**
   * Creates a schedule, or replaces the tenant's one with this id, whose jobs stay. The last of several
   * concurrent calls wins. Fails with `invalid_request`.
   */
  async put(tenant: string, schedule: Schedule): Promise<Record<string, unknown>> {
    const { writes, maxPerTenant } = this.#options;
    const { row: asked, secrets } = this.#rowOf(tenant, schedule);
    const row = await writes.write(putJobSchedule, asked, secrets, maxPerTenant);
    if (row === 'full') throw tooMany(maxPerTenant);
    if ('lacking' in row) throw noSecret(row);
    const running = this.#run(row);
    // Begun submissions of the replaced schedule are dropped, since `created_at_ms` has changed. The new one
    // makes up for them.
    if (this.#heldSinceMs !== null) void this.#catchUp(running);
    return this.#record(row);
  }

  /** Returns the record of a schedule and the secrets that its jobs name. Fails with `invalid_request`. */
  #rowOf(tenant: string, schedule: Schedule): { readonly row: JobScheduleTable; readonly secrets: readonly string[] } {
    const secrets = secretsOf(readJobSubmission(JSON.parse(schedule.submission), 'job').spec.runtimeEnv.envVars);
    this.#options.jobs.assertMayName(secrets);
    const nowMs = Date.now();
    return { row: { tenant, ...schedule, created_at_ms: nowMs, decided_until_ms: nowMs }, secrets };
  }

  async list(tenant: string): Promise<readonly Record<string, unknown>[]> {
    return (await listJobSchedules(this.#options.database, tenant)).map(row => this.#record(row));
  }

  /** Returns a schedule. Fails with `not_found`. */
  async get(tenant: string, id: string): Promise<Record<string, unknown>> {
    const row = await findJobSchedule(this.#options.database, tenant, id);
    if (!row) throw unknown(id);
    return this.#record(row);
  }

  /** Deletes a schedule; its jobs stay. Fails with `not_found`. */
  async delete(tenant: string, id: string): Promise<void> {
    if (!(await this.#options.writes.write(deleteJobSchedule, tenant, id))) {
      throw unknown(id);
    }
    this.#forget(keyOf(tenant, id));
  }

  #startSchedule(row: JobScheduleTable): void {
    try {
      this.#run(row);
    } catch (error) {
      // An earlier version accepted the schedule. An invalid one must not prevent the start.
      this.#bad.add(keyOf(row.tenant, row.id));
      const reason = messageOf(error);
      this.#options.log.error({ schedule: row.id, tenant: row.tenant, reason }, 'schedule is no longer valid');
    }
  }

  #run(row: JobScheduleTable): RunningSchedule {
    const key = keyOf(row.tenant, row.id);
    this.#forget(key);
    const submission = readJobSubmission(JSON.parse(row.submission), 'job');
    const cron = new Cron(row.cron, { timezone: row.timezone, unref: true }, self => {
      const at = self.currentRun() ?? new Date();
      if (!this.#mayDecide()) return;
      const { cluster } = this.#options.node;
      // Earlier due moments come first, and this one with them. Once a moment is decided, all earlier ones
      // count as decided.
      if (cluster !== null && this.#heldSinceMs === null) void this.#submitIfLeaseHeld(true);
      else void this.#inOrder(running, () => this.#submit(running, at));
    });
    const packages = packagesOf(submission.spec.runtimeEnv).map(name => `${row.tenant}/${name}`);
    const running: RunningSchedule = { row, submission, cron, packages, last: Promise.resolve() };
    this.#running.set(key, running);
    return running;
  }

  #forget(key: string): void {
    this.#running.get(key)?.cron.stop();
    this.#running.delete(key);
    this.#bad.delete(key);
  }

  /**
   * Returns true if this node submits. Otherwise notes that another node does, even if `JobReconciler` missed
   * the change. This node makes up for missed moments once it submits again.
   */
  #mayDecide(): boolean {
    const isMine = this.#options.node.cluster?.isHeld() !== false;
    if (!isMine) this.#heldSinceMs = null;
    return isMine;
  }

  /**
   * Begins to submit if the lease is held. The previous node may have died before a moment that has passed by
   * now.
   */
  async #submitIfLeaseHeld(isHeld: boolean): Promise<void> {
    if (!isHeld) this.#heldSinceMs = null;
    if (!isHeld || this.#heldSinceMs !== null) return;
    this.#heldSinceMs = Date.now();
    await Promise.all(Array.from(this.#running.values(), running => this.#catchUp(running)));
  }

  /** Decides the moments of a schedule in order. */
  #inOrder(running: RunningSchedule, decide: () => Promise<void>): Promise<void> {
    running.last = running.last.then(decide);
    return running.last;
  }

  /** Submits the moments that were due before this node began to submit. */
  #catchUp(running: RunningSchedule): Promise<void> {
    const { row, cron } = running;
    const nowMs = Date.now();
    // The previous version stored no 'decided_until_ms'. Moments that were due while no service ran are not
    // made up for.
    const writtenMs = row.decided_until_ms || row.created_at_ms;
    const isAhead = isFromWrongClock(writtenMs, nowMs);
    if (isAhead) {
      const about = { schedule: row.id, tenant: row.tenant, decidedUntil: new Date(writtenMs).toISOString() };
      this.#options.log.warn(about, 'clock was set back; schedule continues from the present');
    }
    const decidedMs = isAhead ? nowMs : writtenMs;
    const sinceMs = this.#options.node.cluster === null ? (this.#heldSinceMs ?? nowMs) : 0;
    return this.#inOrder(running, async () => {
      let at = cron.nextRun(new Date(Math.max(decidedMs, sinceMs, nowMs - TAKEOVER_MS)));
      for (; at !== null && at.getTime() <= nowMs; at = cron.nextRun(at)) await this.#submit(running, at);
    });
  }

  /**
   * Submits the job of a moment. Retries until the moment is decided, or until no node would make up for it
   * any more. Never rejects.
   */
  async #submit({ row, submission }: RunningSchedule, at: Date): Promise<void> {
    const { jobs, log } = this.#options;
    const { tenant } = row;
    const about = { schedule: row.id, tenant };
    try {
      // Schedules are precise to the second.
      const moment = at.toISOString().slice(0, 19).replaceAll(/[-:]/g, '');
      const scheduled = {
        scheduleId: row.id,
        createdAtMs: row.created_at_ms,
        atMs: Math.floor(at.getTime() / 1000) * 1000,
        unlessOpen: row.overlap === 'skip' ? `${row.id}-` : null,
      };
      const submit = async () => {
        if (!this.#mayDecide()) throw failedPrecondition('another replica submits by now');
        return await jobs.submitScheduled(tenant, scheduled, { ...submission, id: `${row.id}-${moment}Z` });
      };
      const later = (error: unknown) =>
        log.warn({ ...about, reason: messageOf(error) }, 'cannot submit scheduled job; retrying');
      const leftMs = Math.max(0, at.getTime() + TAKEOVER_MS - Date.now());
      const submitted = await withDeadline(leftMs, signal => untilWritten(submit, signal, later), this.#closing.signal);
      if (submitted === 'skipped') log.info(about, 'scheduled job skipped: previous job has not ended');
      if (submitted === 'full') log.warn(about, 'scheduled job skipped: too many jobs are waiting or running');
    } catch (error) {
      log.warn({ ...about, reason: messageOf(error) }, 'submit of scheduled job failed');
    }
  }

  #record(row: JobScheduleTable): Record<string, unknown> {
    const next = nextRunOf(row);
    return {
      schedule_id: row.id,
      cron: row.cron,
      timezone: row.timezone,
      overlap: row.overlap,
      job: JSON.parse(row.submission) as unknown,
      create_time: String(row.created_at_ms),
      next_run_time: next ? String(next.getTime()) : null,
    };
  }
}

/**
 * Reads the body of a schedule. `named` is the id of the path, which the body must not contradict. Fails with
 * `invalid_request`.
 */
export function readSchedule(body: JsonObject, named?: string): Schedule {
  const form = new Form(JOB_SCHEDULE, body, '', failAtFirst);
  const sent = form.read('schedule_id').schedule_id ?? named;
  if (named !== undefined && sent !== named) throw invalidBody('schedule_id must be that of the path, or absent');
  const id = sent ?? `schedule_${randomBytes(8).toString('hex')}`;
  checkScheduleId(id);
  const { cron, timezone, overlap } = form.read('cron', 'timezone', 'overlap');
  try {
    const tried = new Cron(cron, { timezone, paused: true });
    if (tried.nextRun() === null) throw new Error('it never comes');
    tried.stop();
  } catch (error) {
    throw invalidBody(`cron or timezone is wrong: ${messageOf(error)}`);
  }
  const job = form.sent('job');
  if (job === undefined) throw invalidBody('job is required');
  if (readJobSubmission(job, 'job').id !== null) {
    throw invalidBody('job.submission_id must be absent: each job gets an id made of schedule_id and its moment');
  }
  return { id, cron, timezone, overlap, submission: JSON.stringify(job) };
}

/** Returns the next moment; null for a schedule of an earlier version that this version cannot read. */
function nextRunOf({ cron, timezone }: JobScheduleTable): Date | null {
  try {
    return new Cron(cron, { timezone, paused: true }).nextRun();
  } catch {
    return null;
  }
}

function keyOf(tenant: string, id: string): string {
  return `${tenant}/${id}`;
}

function tooMany(most: number) {
  return invalidRequest(`there are ${most} schedules already; delete one first`);
}

function unknown(id: string) {
  return notFound(`Schedule ${id} does not exist`);
}
