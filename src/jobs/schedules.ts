import { randomBytes } from 'node:crypto';
import { Cron } from 'croner';
import { alreadyExists, invalidRequest, messageOf, notFound } from '../core/error.ts';
import { checkScheduleId, JOB_SCHEDULE, type JobSubmission, readJobSubmission } from '../core/job.ts';
import { failAtFirst, invalidBody, type JsonObject } from '../core/json.ts';
import { packagesOf } from '../core/runtime-env.ts';
import { Form } from '../core/shape.ts';
import type { InstanceLog } from '../instances/contract.ts';
import type { Database } from '../storage/database.ts';
import type { DurableWrites } from '../storage/durable.ts';
import {
  deleteJobSchedule,
  findJobSchedule,
  insertJobSchedule,
  type JobScheduleTable,
  listJobSchedules,
} from '../storage/job-schedules.ts';
import type { Jobs } from './jobs.ts';

export interface JobSchedulesOptions {
  readonly database: Database;
  readonly writes: DurableWrites;
  readonly jobs: Pick<Jobs, 'submit' | 'isOpen'>;
  readonly maxPerTenant: number;
  readonly log: InstanceLog;
}

/** What a caller asks for; the id is made up where none was sent. */
export type Schedule = Omit<JobScheduleTable, 'tenant' | 'created_at_ms'>;

interface Running {
  readonly cron: Cron;
  readonly packages: readonly string[];
}

/**
 * Jobs that are submitted by the clock. The id of each is made of the schedule's and of the moment, so that one moment never gives two. What
 * was due while no service ran is not made up for.
 */
export class JobSchedules {
  readonly #options: JobSchedulesOptions;
  readonly #running = new Map<string, Running>();

  constructor(options: JobSchedulesOptions) {
    this.#options = options;
  }

  async start(): Promise<void> {
    for (const row of await listJobSchedules(this.#options.database, null)) {
      try {
        this.#run(row);
      } catch (error) {
        // An earlier version took it in; it is no reason not to start.
        const reason = messageOf(error);
        this.#options.log.error({ schedule: row.id, tenant: row.tenant, reason }, 'a schedule is not valid any more');
      }
    }
  }

  close(): void {
    for (const { cron } of this.#running.values()) cron.stop();
    this.#running.clear();
  }

  /** Whether an uploaded package (`<tenant>/<name>`) is needed. */
  needsPackage(key: string): boolean {
    for (const { packages } of this.#running.values()) if (packages.includes(key)) return true;
    return false;
  }

  /** Fails with `invalid_request`, or `already_exists` when the tenant has one of this id. */
  async create(tenant: string, schedule: Schedule): Promise<Record<string, unknown>> {
    const row = { tenant, ...schedule, created_at_ms: Date.now() };
    const { database, writes, maxPerTenant } = this.#options;
    if ((await listJobSchedules(database, tenant)).length >= maxPerTenant) {
      throw invalidRequest(`there are ${maxPerTenant} schedules already; delete one first`);
    }
    if (!(await writes.write(insertJobSchedule, row))) {
      throw alreadyExists(`Schedule ${row.id} already exists`);
    }
    this.#run(row);
    return this.#record(row);
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
    const key = keyOf(tenant, id);
    this.#running.get(key)?.cron.stop();
    this.#running.delete(key);
  }

  #run(row: JobScheduleTable): void {
    const submission = readJobSubmission(JSON.parse(row.submission), 'job');
    const cron = new Cron(row.cron, { timezone: row.timezone, unref: true }, self => {
      void this.#submit(row, submission, self.currentRun() ?? new Date());
    });
    const packages = packagesOf(submission.spec.runtimeEnv).map(name => `${row.tenant}/${name}`);
    this.#running.set(keyOf(row.tenant, row.id), { cron, packages });
  }

  async #submit(row: JobScheduleTable, submission: JobSubmission, at: Date): Promise<void> {
    const { jobs, log } = this.#options;
    const { tenant } = row;
    try {
      if (row.overlap === 'skip' && jobs.isOpen(tenant, `${row.id}-`)) {
        log.info({ schedule: row.id, tenant }, 'a scheduled job was left out: the one before is not over');
        return;
      }
      // To the second, which is as fine as a schedule can be.
      const moment = at.toISOString().slice(0, 19).replaceAll(/[-:]/g, '');
      await jobs.submit(tenant, { ...submission, id: `${row.id}-${moment}Z` });
    } catch (error) {
      log.warn({ schedule: row.id, tenant, reason: messageOf(error) }, 'a scheduled job could not be submitted');
    }
  }

  #record(row: JobScheduleTable): Record<string, unknown> {
    const next = this.#running.get(keyOf(row.tenant, row.id))?.cron.nextRun();
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

/** Reads the body of a schedule. Fails with `invalid_request`. */
export function readSchedule(body: JsonObject): Schedule {
  const form = new Form(JOB_SCHEDULE, body, '', failAtFirst);
  const id = form.read('schedule_id').schedule_id ?? `schedule_${randomBytes(8).toString('hex')}`;
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

function keyOf(tenant: string, id: string): string {
  return `${tenant}/${id}`;
}

function unknown(id: string) {
  return notFound(`Schedule ${id} does not exist`);
}
