import { afterAll, beforeAll, expect, test } from 'vitest';
import { startPostgres } from '../../../test/parts/postgres.ts';
import { describeWith, type Part } from '../../../test/probe.ts';
import { readJobSubmission } from '../../core/job.ts';
import { type Database, openDatabase } from '../database.ts';
import { openStores } from '../stores.ts';
import { type DurableWrites, openDurableWrites } from '../writes/durable.ts';
import { putJobPackage } from './job-packages.ts';
import { insertJobSchedule } from './job-schedules.ts';
import { insertJob, insertScheduledJob, type JobDraft } from './job-submits.ts';
import { dropSecret, putSecret } from './secrets.ts';

const T = 'default';
const BOUNDS = { maxOpen: 1000, maxOpenPerTenant: 1000 };
const NEVER = { operations: {}, program: new URL('file:///none') };
const { spec } = readJobSubmission({ entrypoint: 'true' }, '');

const draftOf = (id: string): JobDraft => ({
  ...{ tenant: T, id, spec, status: 'PENDING', message: '', errorType: '', exitCode: null, attempt: 1 },
  ...{ nodeId: 'n', nodeEpoch: 0, isForAnother: false, instanceId: '', pid: '' },
  ...{ submittedAtMs: 1_000_000, startedAtMs: null, endedAtMs: null },
});

const withSecret = (draft: JobDraft): JobDraft => ({
  ...draft,
  spec: { ...spec, runtimeEnv: { ...spec.runtimeEnv, envVars: { KEY: { secret: 's' } } } },
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

    test('a scheduled submit is skipped while a job of the same schedule is open, and only then', async () => {
      const { writes } = stores;
      const schedule = { tenant: T, id: 'a_b', cron: '* * * * *', timezone: 'UTC', overlap: 'skip' } as const;
      const rest = { submission: '{}', created_at_ms: 1, decided_until_ms: 1 };
      await writes.write(insertJobSchedule, { ...schedule, ...rest }, [], 10);
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

    test('a repeated submit is recognized even when the job limit is reached', async () => {
      const { writes } = stores;
      const full = { maxOpen: 1, maxOpenPerTenant: 1 };
      const submit = (id: string, bounds = full) => writes.write(insertJob, draftOf(id), '', bounds);
      expect(await submit('first', BOUNDS)).toMatchObject({ sequence: expect.any(Number) });
      expect(await submit('second')).toBe('full');
      expect(await submit('first')).toBe('known');
    });

    test.each(['job', 'schedule'] as const)(
      'either the insert of a %s with a secret or the removal of the secret is refused',
      async kind => {
        const { writes } = stores;
        const times = { created_at_ms: 1, updated_at_ms: 1 };
        const secret = { tenant: T, name: 's', key_id: 'k', sealed: new Uint8Array([1]), ...times };
        const insert = async (id: string) => {
          if (kind === 'job') return await writes.write(insertJob, withSecret(draftOf(id)), '', BOUNDS);
          const schedule = { tenant: T, id, cron: '* * * * *', timezone: 'UTC', overlap: 'skip' } as const;
          const rest = { submission: '{"KEY":{"secret":"s"}}', created_at_ms: 1, decided_until_ms: 1 };
          return await writes.write(insertJobSchedule, { ...schedule, ...rest }, ['s'], 10);
        };
        for (let round = 0; round < 20; round++) {
          await writes.write(putSecret, secret, 10);
          const [inserted, dropped] = await Promise.all([insert(`${kind}-${round}`), writes.write(dropSecret, T, 's')]);
          const isLacking = typeof inserted === 'object' && 'lacking' in inserted;
          expect([isLacking, dropped.kind]).toEqual(isLacking ? [true, 'dropped'] : [false, 'in use']);
          await stores.database.deleteFrom('jobs').execute();
          await stores.database.deleteFrom('job_schedules').execute();
        }
      },
    );

    test('concurrent inserts of schedules stay within the limit of the tenant', async () => {
      const { writes } = stores;
      await stores.database.deleteFrom('job_schedules').execute();
      const schedule = { tenant: T, cron: '* * * * *', timezone: 'UTC', overlap: 'skip' } as const;
      const row = { ...schedule, submission: '{}', created_at_ms: 1, decided_until_ms: 1 };
      const insert = (id: string) => writes.write(insertJobSchedule, { ...row, id }, [], 3);
      const written = await Promise.all(['a', 'b', 'c', 'd', 'e', 'f'].map(insert));
      expect(written.toSorted()).toEqual([...Array(3).fill('full'), ...Array(3).fill('inserted')]);
      expect(await stores.database.selectFrom('job_schedules').select('id').execute()).toHaveLength(3);
    });

    test('concurrent uploads of packages stay within the limit of the tenant', async () => {
      const row = { tenant: T, node_id: '', node_epoch: 0, bytes: 1, sha256: '', used_at_ms: 1 };
      const put = (name: string, object = name) => stores.writes.write(putJobPackage, { ...row, name, object }, 3);
      const written = await Promise.all(['a', 'b', 'c', 'd', 'e', 'f'].map(name => put(name)));
      expect(written.filter(before => before === null)).toHaveLength(3);
      const kept = await stores.database.selectFrom('job_packages').select('name').execute();
      expect(kept).toHaveLength(3);
      // A package that already exists needs no further capacity.
      const { name } = kept[0] as { readonly name: string };
      expect(await put(name, 'newer')).toBe(name);
    });

    test('a repeated submit is recognized even when its secret was removed', async () => {
      const { writes } = stores;
      const times = { created_at_ms: 1, updated_at_ms: 1 };
      await writes.write(putSecret, { tenant: T, name: 's', key_id: 'k', sealed: new Uint8Array([1]), ...times }, 10);
      const submit = (id: string) => writes.write(insertJob, withSecret(draftOf(id)), '', BOUNDS);
      expect(await submit('over')).toMatchObject({ sequence: expect.any(Number) });
      await stores.database.updateTable('jobs').set({ status: 'SUCCEEDED' }).where('id', '=', 'over').execute();
      expect(await writes.write(dropSecret, T, 's')).toEqual({ kind: 'dropped' });
      expect(await submit('over')).toBe('known');
      expect(await submit('another')).toEqual({ lacking: 's' });
    });
  });
}
