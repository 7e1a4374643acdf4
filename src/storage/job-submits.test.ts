import { afterAll, beforeAll, expect, test } from 'vitest';
import { startPostgres } from '../../test/parts/postgres.ts';
import { describeWith, type Part } from '../../test/probe.ts';
import { readJobSubmission } from '../core/job.ts';
import { type Database, openDatabase } from './database.ts';
import { type DurableWrites, openDurableWrites } from './durable.ts';
import { insertJobSchedule } from './job-schedules.ts';
import { insertJob, insertScheduledJob, type JobDraft } from './job-submits.ts';
import { openStores } from './stores.ts';

const T = 'default';
const BOUNDS = { maxOpen: 1000, maxOpenPerTenant: 1000 };
const NEVER = { operations: {}, program: new URL('file:///none') };
const { spec } = readJobSubmission({ entrypoint: 'true' }, '');

const draftOf = (id: string): JobDraft => ({
  ...{ tenant: T, id, spec, status: 'PENDING', message: '', errorType: '', exitCode: null, attempt: 1 },
  ...{ nodeId: 'n', nodeEpoch: 0, isForAnother: false, instanceId: '', pid: '' },
  ...{ submittedAtMs: 1_000_000, startedAtMs: null, endedAtMs: null },
});

interface OpenStores {
  readonly database: Database;
  readonly writes: DurableWrites;
  close(): Promise<void>;
}

async function openSqlite(): Promise<OpenStores> {
  const database = await openDatabase(':memory:');
  const writes = await openDurableWrites(database, ':memory:');
  const close = async () => {
    await writes.close();
    await database.destroy();
  };
  return { database, writes, close };
}

async function openPostgres(): Promise<OpenStores> {
  const postgres = await startPostgres();
  const stores = await openStores({ url: await postgres.database(), waitMs: 5000, poolSize: 4 }, NEVER);
  const close = async () => {
    await stores.close();
    await postgres.close();
  };
  return { database: stores.database, writes: stores.writes, close };
}

const KINDS: readonly (readonly [string, readonly Part[], () => Promise<OpenStores>])[] = [
  ['SQLite', [], openSqlite],
  ['PostgreSQL', ['postgres'], openPostgres],
];

for (const [name, parts, open] of KINDS) {
  describeWith(parts, `submits of jobs in ${name}`, () => {
    let stores: OpenStores;
    beforeAll(async () => {
      stores = await open();
    });
    afterAll(() => stores.close());

    test('a moment of a schedule is left out while a job of this schedule is open, and for no other one', async () => {
      const { writes } = stores;
      const schedule = { tenant: T, id: 'a_b', cron: '* * * * *', timezone: 'UTC', overlap: 'skip' } as const;
      const rest = { submission: '{}', created_at_ms: 1, decided_until_ms: 1 };
      await writes.write(insertJobSchedule, { ...schedule, ...rest });
      const submit = (atMs: number, id: string) => {
        const moment = { scheduleId: 'a_b', createdAtMs: 1, atMs, unlessOpen: 'a_b-' };
        return writes.write(insertScheduledJob, null, moment, draftOf(id), '', BOUNDS);
      };
      for (const id of [
        'a_b-by-hand',
        'a_b-db-20261120T100000Z',
        'a_b-20261120T100000Z-copy',
        'axb-20261120T100000Z',
      ]) {
        await writes.write(insertJob, draftOf(id), '', BOUNDS);
      }
      expect(await submit(2000, 'a_b-20261120T110000Z')).toMatchObject({ sequence: expect.any(Number) });
      expect(await submit(3000, 'a_b-20261120T110100Z')).toBe('skipped');
    });

    test('a submit that is repeated is known, also when no other job has room', async () => {
      const { writes } = stores;
      const full = { maxOpen: 1, maxOpenPerTenant: 1 };
      const submit = (id: string, bounds = full) => writes.write(insertJob, draftOf(id), '', bounds);
      expect(await submit('first', BOUNDS)).toMatchObject({ sequence: expect.any(Number) });
      expect(await submit('second')).toBe('full');
      expect(await submit('first')).toBe('known');
    });
  });
}
