import { randomBytes } from 'node:crypto';
import { Cron } from 'croner';
import { alreadyExists, failedPrecondition, invalidRequest, messageOf, notFound } from '../core/error.ts';
import { checkScheduleId, JOB_SCHEDULE, type JobSubmission, readJobSubmission } from '../core/job.ts';
import { failAtFirst, invalidBody, type JsonObject } from '../core/json.ts';
import { packagesOf } from '../core/runtime-env.ts';
import { secretsOf } from '../core/secret.ts';
import { Form } from '../core/shape.ts';
import type { InstanceLog } from '../instances/contract.ts';
import { withDeadline } from '../lib/deadline.ts';
import { sharedController } from '../lib/linked-signal.ts';
import type { Database } from '../storage/database.ts';
import type { DurableWrites } from '../storage/durable.ts';
import {
  deleteJobSchedule,
  findJobSchedule,
  insertJobSchedule,
  type JobScheduleTable,
  listJobScheduleKeys,
  listJobSchedules,
  putJobSchedule,
} from '../storage/job-schedules.ts';
import { untilWritten } from '../storage/until-written.ts';
import type { JobNode } from './cluster.ts';
import { type Jobs, noSecret } from './jobs.ts';

export interface JobSchedulesOptions {
  readonly database: Database;
  readonly writes: DurableWrites;
  readonly node: JobNode;
  readonly jobs: Pick<Jobs, 'submitScheduled' | 'assertMayName'>;
  readonly maxPerTenant: number;
  readonly log: InstanceLog;
}

/** The schedule that a caller asks for; the id is made up where none was sent. */
export type Schedule = Omit<JobScheduleTable, 'tenant' | 'created_at_ms' | 'decided_until_ms'>;

interface Running {
  readonly row: JobScheduleTable;
  readonly submission: JobSubmission;
  readonly cron: Cron;
  readonly packages: readonly string[];
  /** The last of its moments that this node is deciding. */
  last: Promise<void>;
}

/** How far back a node looks that takes the schedules over: longer than it takes to notice that the one before is dead. */
const TAKEOVER_MS = 60_000;

/**
 * Jobs that are submitted by the clock. Of several nodes one submits; each moment is decided in the transaction that writes its job, so that
 * it never gives two, and what was due while the schedules changed hands is made up for. What was due while no service ran is not.
 */
export class JobSchedules {
  readonly #options: JobSchedulesOptions;
  readonly #running = new Map<string, Running>();
  /** Since when this node submits; null: another one does. */
  #heldSinceMs: number | null = null;
  /** Schedules that cannot be read: told once. */
  readonly #bad = new Set<string>();
  readonly #closing = sharedController();

  constructor(options: JobSchedulesOptions) {
    this.#options = options;
  }

  async start(): Promise<void> {
    for (const row of await listJobSchedules(this.#options.database, null)) this.#take(row);
    const { cluster } = this.#options.node;
    if (cluster === null) this.#heldSinceMs = Date.now();
    else await this.#holdIfMine(cluster.isHeld());
  }

  /** Learns of schedules that other nodes made and deleted, and whether it is this node that submits. */
  async lookAgain(): Promise<void> {
    const { database, node } = this.#options;
    const keys = await listJobScheduleKeys(database);
    const known = new Map(keys.map(({ tenant, id, created_at_ms }) => [keyOf(tenant, id), created_at_ms]));
    for (const [key, { row }] of this.#running) if (known.get(key) !== row.created_at_ms) this.#forget(key);
    for (const { tenant, id } of keys) {
      const key = keyOf(tenant, id);
      if (this.#running.has(key) || this.#bad.has(key)) continue;
      const row = await findJobSchedule(database, tenant, id);
      if (row !== undefined) this.#take(row);
      const running = this.#running.get(key);
      if (running !== undefined && this.#heldSinceMs !== null) await this.#catchUp(running);
    }
    if (node.cluster !== null) await this.#holdIfMine(node.cluster.isHeld());
  }

  close(): void {
    this.#closing.abort();
    for (const { cron } of this.#running.values()) cron.stop();
    this.#running.clear();
  }

  /** Whether an uploaded package (`<tenant>/<name>`) is needed. */
  needsPackage(key: string): boolean {
    for (const { packages } of this.#running.values()) if (packages.includes(key)) return true;
    return false;
  }

  /** Of all schedules, as `<tenant>/<name>`. */
  packages(): readonly string[] {
    return [...this.#running.values()].flatMap(({ packages }) => packages);
  }

  /** Fails with `invalid_request`, or `already_exists` when the tenant has one of this id. */
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

  /** Makes it, or replaces the tenant's one of this id, whose jobs stay. The last of several counts. Fails with `invalid_request`. */
  async put(tenant: string, schedule: Schedule): Promise<Record<string, unknown>> {
    const { writes, maxPerTenant } = this.#options;
    const { row: asked, secrets } = this.#rowOf(tenant, schedule);
    const row = await writes.write(putJobSchedule, asked, secrets, maxPerTenant);
    if (row === 'full') throw tooMany(maxPerTenant);
    if ('lacking' in row) throw noSecret(row);
    const running = this.#run(row);
    // What the one before had begun to submit is not submitted for it any more.
    if (this.#heldSinceMs !== null) void this.#catchUp(running);
    return this.#record(row);
  }

  /** With the secrets that its jobs name. Fails with `invalid_request`. */
  #rowOf(tenant: string, schedule: Schedule): { readonly row: JobScheduleTable; readonly secrets: readonly string[] } {
    const secrets = secretsOf(readJobSubmission(JSON.parse(schedule.submission), 'job').spec.runtimeEnv.envVars);
    this.#options.jobs.assertMayName(secrets);
    const nowMs = Date.now();
    return { row: { tenant, ...schedule, created_at_ms: nowMs, decided_until_ms: nowMs }, secrets };
  }

  async list(tenant: string): Promise<readonly Record<string, unknown>[]> {
    return (await listJobSchedules(this.#options.database, tenant)).map(row => this.#record(row));
  }

  /** Fails with `not_found`. */
  async get(tenant: string, id: string): Promise<Record<string, unknown>> {
    const row = await findJobSchedule(this.#options.database, tenant, id);
    if (!row) throw unknown(id);
    return this.#record(row);
  }

  /** Its jobs stay. Fails with `not_found`. */
  async delete(tenant: string, id: string): Promise<void> {
    if (!(await this.#options.writes.write(deleteJobSchedule, tenant, id))) {
      throw unknown(id);
    }
    this.#forget(keyOf(tenant, id));
  }

  #take(row: JobScheduleTable): void {
    try {
      this.#run(row);
    } catch (error) {
      // An earlier version took it in; it is no reason not to start.
      this.#bad.add(keyOf(row.tenant, row.id));
      const reason = messageOf(error);
      this.#options.log.error({ schedule: row.id, tenant: row.tenant, reason }, 'a schedule is not valid any more');
    }
  }

  #run(row: JobScheduleTable): Running {
    const key = keyOf(row.tenant, row.id);
    this.#forget(key);
    const submission = readJobSubmission(JSON.parse(row.submission), 'job');
    const cron = new Cron(row.cron, { timezone: row.timezone, unref: true }, self => {
      const at = self.currentRun() ?? new Date();
      const { cluster } = this.#options.node;
      if (cluster?.isHeld() === false) return;
      // What was due before comes first, and this moment with it: once it is decided, an earlier one counts as decided too.
      if (cluster !== null && this.#heldSinceMs === null) void this.#holdIfMine(true);
      else void this.#inOrder(running, () => this.#submit(running, at));
    });
    const packages = packagesOf(submission.spec.runtimeEnv).map(name => `${row.tenant}/${name}`);
    const running: Running = { row, submission, cron, packages, last: Promise.resolve() };
    this.#running.set(key, running);
    return running;
  }

  #forget(key: string): void {
    this.#running.get(key)?.cron.stop();
    this.#running.delete(key);
    this.#bad.delete(key);
  }

  /** Whoever submitted before this node may have died before a moment that is over by now. */
  async #holdIfMine(isHeld: boolean): Promise<void> {
    if (!isHeld) this.#heldSinceMs = null;
    if (!isHeld || this.#heldSinceMs !== null) return;
    this.#heldSinceMs = Date.now();
    await Promise.all(Array.from(this.#running.values(), running => this.#catchUp(running)));
  }

  /** The moments of a schedule are decided in their order. */
  #inOrder(running: Running, decide: () => Promise<void>): Promise<void> {
    running.last = running.last.then(decide);
    return running.last;
  }

  /** Submits what was due before this node knew that it is to do so. */
  #catchUp(running: Running): Promise<void> {
    const { row, cron } = running;
    const nowMs = Date.now();
    // The version before this one wrote no 'decided_until_ms'. What was due while no service ran is not made up for.
    const decidedMs = row.decided_until_ms || row.created_at_ms;
    const sinceMs = this.#options.node.cluster === null ? (this.#heldSinceMs ?? nowMs) : 0;
    return this.#inOrder(running, async () => {
      let at = cron.nextRun(new Date(Math.max(decidedMs, sinceMs, nowMs - TAKEOVER_MS)));
      for (; at !== null && at.getTime() <= nowMs; at = cron.nextRun(at)) await this.#submit(running, at);
    });
  }

  /** Never rejects. A moment is tried until it is decided, for as long as another node would make up for it. */
  async #submit({ row, submission }: Running, at: Date): Promise<void> {
    const { jobs, node, log } = this.#options;
    const { tenant } = row;
    const about = { schedule: row.id, tenant };
    try {
      // To the second, which is as fine as a schedule can be.
      const moment = at.toISOString().slice(0, 19).replaceAll(/[-:]/g, '');
      const scheduled = {
        scheduleId: row.id,
        createdAtMs: row.created_at_ms,
        atMs: Math.floor(at.getTime() / 1000) * 1000,
        unlessOpen: row.overlap === 'skip' ? `${row.id}-` : null,
      };
      const submit = async () => {
        if (node.cluster?.isHeld() === false) throw failedPrecondition('another replica submits by now');
        return await jobs.submitScheduled(tenant, scheduled, { ...submission, id: `${row.id}-${moment}Z` });
      };
      const later = (error: unknown) =>
        log.warn(
          { ...about, reason: messageOf(error) },
          'a scheduled job could not be submitted yet; it is tried again',
        );
      const leftMs = Math.max(0, at.getTime() + TAKEOVER_MS - Date.now());
      const submitted = await withDeadline(leftMs, signal => untilWritten(submit, signal, later), this.#closing.signal);
      if (submitted === 'skipped') log.info(about, 'a scheduled job was left out: the one before is not over');
      if (submitted === 'full') log.warn(about, 'a scheduled job was left out: too many jobs are waiting or running');
    } catch (error) {
      log.warn({ ...about, reason: messageOf(error) }, 'a scheduled job could not be submitted');
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

/** Reads the body of a schedule, of the one that a path names as `named`. Fails with `invalid_request`. */
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

/** null for one that an earlier version took in and this one cannot read. */
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
