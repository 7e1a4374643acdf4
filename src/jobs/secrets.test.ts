import { randomBytes } from 'node:crypto';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { JobsHarness, TENANT } from '../../test/jobs/harness.ts';
import { readJobSubmission } from '../core/job.ts';
import { Secrets } from '../registry/secrets.ts';
import { type Database, openDatabase } from '../storage/database.ts';
import { type DurableWrites, openDurableWrites } from '../storage/writes/durable.ts';
import { readSchedule } from './schedules.ts';

const JOB = { entrypoint: 'true', runtime_env: { env_vars: { KEY: { secret: 's' } } } };
const LACKING = { code: 'invalid_request', message: 'runtime_env.env_vars: secret does not exist: s' };

let database: Database;
let writes: DurableWrites;
let secrets: Secrets;
let jobs: JobsHarness;
/** Hook that runs before a job or a schedule is written. */
let beforeInsert: () => Promise<void>;

beforeEach(async () => {
  database = await openDatabase(':memory:');
  writes = await openDurableWrites(database, ':memory:');
  const log = { info: () => undefined, warn: () => undefined };
  const keys = [new Uint8Array(randomBytes(32))];
  secrets = new Secrets({ database, writes, keys, ownKeyFile: null, allowUnreadable: false, log });
  await secrets.put(TENANT, 's', 'value');
  beforeInsert = async () => undefined;
  const write: DurableWrites['write'] = async (operation, ...args) => {
    if (['insertJob', 'insertJobSchedule', 'putJobSchedule'].includes(operation.name)) await beforeInsert();
    return await writes.write(operation, ...args);
  };
  const stores = { database, writes: { ...writes, write } };
  jobs = await JobsHarness.open({ nodeId: 'n', cluster: null, store: null, secrets, stores });
});

afterEach(async () => {
  await jobs[Symbol.asyncDispose]();
  await writes.close();
  await database.destroy();
});

const submit = () => jobs.service.jobs.submit(TENANT, readJobSubmission({ ...JOB, submission_id: 'j' }, ''));
const SCHEDULE = readSchedule({ schedule_id: 'j', cron: '0 0 1 1 *', job: JOB });
const schedule = () => jobs.service.schedules.create(TENANT, SCHEDULE);
const putSchedule = () => jobs.service.schedules.put(TENANT, SCHEDULE);

test.each([
  ['job', submit],
  ['schedule', schedule],
  ['schedule', putSchedule],
])('creating a %s fails when its secret is removed before the write', async (_, make) => {
  beforeInsert = () => secrets.remove(TENANT, 's');
  await expect(make()).rejects.toMatchObject(LACKING);
  expect(await jobs.service.schedules.list(TENANT)).toEqual([]);
  await expect(jobs.job('j')).rejects.toMatchObject({ code: 'not_found' });
});

test.each([
  ['job', submit],
  ['schedule', schedule],
  ['schedule', putSchedule],
])('a secret cannot be removed while a stored %s refers to the secret', async (kind, make) => {
  await make();
  await expect(secrets.remove(TENANT, 's')).rejects.toThrow(
    new RegExp(`^secret s is in use: (the job )?${kind} j refers`),
  );
});
