import { sql } from 'kysely';
import { afterAll, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import type { Database } from '../../src/storage/database.ts';
import { listExpiringAgents, setAgentExpiry } from '../../src/storage/queries/agent-lifetimes.ts';
import { listAgents } from '../../src/storage/queries/agents.ts';
import {
  claimAsyncCall,
  dropAsyncCalls,
  findAsyncCall,
  finishAsyncCall,
  insertAsyncCall,
  oldestCompletionMs,
  ROW_BYTES,
  readAsyncCall,
  sumAsyncCallBytes,
} from '../../src/storage/queries/async-calls.ts';
import {
  findInstance,
  insertInstance,
  type StoredInstance,
  updateInstance,
} from '../../src/storage/queries/instances.ts';
import {
  deleteJobSchedule,
  findJobSchedule,
  insertJobSchedule,
  listJobSchedules,
  putJobSchedule,
} from '../../src/storage/queries/job-schedules.ts';
import { insertJob, type JobDraft } from '../../src/storage/queries/job-submits.ts';
import {
  claimJob,
  countOpenJobs,
  finishJob,
  listExpiredJobs,
  listJobs,
  markJobRunning,
  readJob,
} from '../../src/storage/queries/jobs.ts';
import { readInstallationId } from '../../src/storage/queries/nodes.ts';
import type { DurableWrites } from '../../src/storage/writes/durable.ts';
import { storedInstance } from '../parts/stored-instance.ts';

export interface OpenDatabase {
  readonly database: Database;
  readonly writes: DurableWrites;
  close(): Promise<unknown>;
}

/** Texts that databases treat in different ways. */
const ODD_TEXTS = [
  ...['', ' ', 'a', 'B', 'b', 'A', 'ä', 'Z', '_', '-', '10', '9', '~', '\u{1F600}', 'e\u0301', '\u00e9'],
  ...[
    '\0',
    'a\0',
    'a\0b',
    'a\x01',
    'a\x01\x01',
    'a\x01\x02',
    'a\x02',
    '\x01',
    '\x02',
    "it's",
    '"',
    '\\',
    '%_',
    '$1',
    '?',
  ],
];

const SPEC = { runtimeEnv: { envVars: {} } } as JobDraft['spec'];
const job = (id: string, more: Partial<JobDraft> = {}): JobDraft => ({
  ...{ tenant: 't', id, spec: SPEC, status: 'PENDING', message: '', errorType: '', exitCode: null },
  ...{ attempt: 1, nodeId: 'n', nodeEpoch: 0, isForAnother: false, instanceId: '', pid: '' },
  ...{ submittedAtMs: 0, startedAtMs: null, endedAtMs: null, ...more },
});
/** Exact job number above 32 bits. */
const LARGEST = 9_007_199_254_740_000;
const OWNER = { nodeId: 'n', epoch: 0 };
const BOUNDS = { maxOpen: 1000, maxOpenPerTenant: 1000 };

const call = (id: string, more: object = {}) => ({
  ...{ id, tenant: 't', urn: 'u', status: 'queued' as const, request: '{}', body: new Uint8Array([0, 1, 255]) },
  ...{
    webhook_url: '',
    result: null,
    error: null,
    created_at_ms: 1_700_000_000_000,
    completed_at_ms: null,
    shard: 'shard-00',
  },
  ...{ lease_epoch: 0, ...more },
});

const ENDED = { status: 'SUCCEEDED', message: '', errorType: '', exitCode: 0, endedAtMs: 5 } as const;

/** Tests the common behaviour of all databases of the service. `open` makes an empty one. */
export function describeStores(title: string, open: () => Promise<OpenDatabase>): void {
  describe(`stored rows, ${title}`, () => {
    let opened: OpenDatabase;
    beforeAll(async () => {
      opened = await open();
    });
    afterAll(() => opened?.close());
    beforeEach(async () => {
      for (const table of ['async_calls', 'instances', 'jobs', 'job_schedules'] as const) {
        await opened.database.deleteFrom(table).execute();
      }
    });
    const order = (...args: Parameters<DurableWrites['write']>) => opened.writes.write(...args);

    test('a text is stored unchanged, except that NUL becomes a replacement sign, and matches only itself', async () => {
      for (const [index, text] of ODD_TEXTS.entries()) {
        const inserted = await opened.writes.write(insertJob, job(text, { message: text }), text, BOUNDS);
        expect(inserted).toEqual({ sequence: index + 1 });
      }
      for (const [index, text] of ODD_TEXTS.entries()) {
        const stored = await readJob(opened.database, index + 1);
        const kept = text.replaceAll('\0', '\uFFFD');
        expect(stored).toMatchObject({ fingerprint: kept, job: { id: kept, message: kept } });
        // The same text is the same key.
        expect(await opened.writes.write(insertJob, job(text), '', BOUNDS)).toBe('known');
        const found = await opened.database.selectFrom('jobs').select('sequence').where('id', '=', text).execute();
        expect(found).toEqual([{ sequence: index + 1 }]);
      }
    });

    test('texts are ordered by their bytes, on which pages of a list rely', async () => {
      for (const text of ODD_TEXTS) {
        await opened.writes.write(
          insertJobSchedule,
          {
            tenant: 't',
            id: text,
            cron: '',
            timezone: '',
            overlap: 'skip',
            submission: '{}',
            created_at_ms: 1,
            decided_until_ms: 1,
          },
          [],
          100,
        );
      }
      const listed = (await listJobSchedules(opened.database, 't')).map(({ id }) => id);
      const kept = ODD_TEXTS.map(text => text.replaceAll('\0', '\uFFFD'));
      expect(listed).toEqual(kept.toSorted((a, b) => Buffer.compare(Buffer.from(a), Buffer.from(b))));
      const pivot = 'a\x01';
      const behind = await opened.database
        .selectFrom('job_schedules')
        .select('id')
        .where('id', '>', pivot)
        .orderBy('id')
        .execute();
      expect(behind.map(({ id }) => id)).toEqual(listed.slice(listed.indexOf(pivot) + 1));
    });

    test('a lone surrogate becomes the replacement character and makes no write fail', async () => {
      await opened.writes.write(insertJob, job('x', { message: 'a\ud800b' }), '', BOUNDS);
      expect((await readJob(opened.database, 1))?.job.message).toBe('a\ufffdb');
    });

    test('numbers are stored exactly up to the largest safe integer, and so are counts and sums', async () => {
      await opened.writes.write(insertJob, job('first'), '', BOUNDS);
      const latest = job('latest', { exitCode: -1, submittedAtMs: LARGEST / 1000 });
      expect(await opened.writes.write(insertJob, latest, '', BOUNDS)).toEqual({ sequence: LARGEST });
      const before = await listJobs(opened.database, 't', { before: LARGEST, limit: 10 });
      expect(before.map(({ sequence }) => sequence)).toEqual([1]);
      expect((await readJob(opened.database, LARGEST))?.job.exitCode).toBe(-1);
      expect(await countOpenJobs(opened.database, 'n')).toEqual({ running: 0, waiting: 2 });
    });

    test('bytes are stored as bytes, and their total is counted', async () => {
      await opened.writes.write(insertAsyncCall, call('a'), null);
      const stored = await readAsyncCall(opened.database, 'a');
      expect([...(stored?.body ?? [])]).toEqual([0, 1, 255]);
      expect(stored?.body).toBeInstanceOf(Uint8Array);
      expect(await sumAsyncCallBytes(opened.database)).toEqual([{ tenant: 't', bytes: ROW_BYTES + 5 }]);
      expect(await oldestCompletionMs(opened.database)).toBeNull();
      expect(await opened.writes.write(claimAsyncCall, 'a', null)).toBe(true);
      expect(await opened.writes.write(claimAsyncCall, 'a', null)).toBe(false);
      const end = { status: 'completed', result: '"x\\u0000"', error: null, completed_at_ms: 9 } as const;
      await opened.writes.write(finishAsyncCall, 'a', null, end);
      expect(await findAsyncCall(opened.database, 'a')).toEqual({
        id: 'a',
        tenant: 't',
        urn: 'u',
        created_at_ms: 1_700_000_000_000,
        ...end,
      });
      expect(await oldestCompletionMs(opened.database)).toBe(9);
    });

    test('a finished call keeps its outcome, which counts towards the total, and drops its request', async () => {
      for (const id of ['a', 'b', 'c']) await opened.writes.write(insertAsyncCall, call(id), null);
      const error = '{"message":"ä"}';
      const failed = { status: 'failed', result: null, error, completed_at_ms: 9 } as const;
      await opened.writes.write(finishAsyncCall, 'a', null, failed);
      await opened.writes.write(finishAsyncCall, 'b', null, { ...failed, completed_at_ms: 8 });
      await opened.writes.write(finishAsyncCall, 'c', null, {
        ...failed,
        completed_at_ms: 7,
        result: '"€"',
        error: null,
      });
      expect(await readAsyncCall(opened.database, 'a')).toMatchObject({ request: '', body: new Uint8Array(0) });
      expect(await sumAsyncCallBytes(opened.database)).toEqual([{ tenant: 't', bytes: 3 * ROW_BYTES + 16 + 16 + 5 }]);
      expect(await dropAsyncCalls(opened.database, 9, 1)).toEqual([{ tenant: 't', bytes: ROW_BYTES + 5 }]);
      expect(await dropAsyncCalls(opened.database, 9, 10)).toEqual([{ tenant: 't', bytes: ROW_BYTES + 16 }]);
      expect(await dropAsyncCalls(opened.database, 9, 10)).toEqual([]);
      expect((await findAsyncCall(opened.database, 'a'))?.error).toBe(error);
    });

    test('a job can be claimed once, and its instance ends with the job', async () => {
      await opened.writes.write(insertJob, job('x'), '', BOUNDS);
      const instance = storedInstance({ id: 'i-1', owner: { kind: 'job', key: '1' } });
      expect(await opened.writes.write(claimJob, 1, OWNER, instance)).toBe(true);
      expect(await opened.writes.write(claimJob, 1, OWNER, storedInstance({ id: 'i-2' }))).toBe(false);
      const running = { instanceId: 'i-1', pid: '5', message: '', startedAtMs: 2 };
      expect(await markJobRunning(opened.database, 1, running)).toBe(true);
      expect(await countOpenJobs(opened.database, 'n')).toEqual({ running: 1, waiting: 0 });
      expect(await opened.writes.write(finishJob, 1, 'another', ENDED)).toBe(false);
      expect(await opened.writes.write(finishJob, 1, 'n', ENDED)).toBe(true);
      expect(await opened.writes.write(finishJob, 1, 'n', ENDED)).toBe(false);
      expect((await findInstance(opened.database, 'i-1'))?.status).toBe('STOPPING');
      const bounds = { endedBeforeMs: 6, keep: 0, limit: 10 };
      expect(await listExpiredJobs(opened.database, bounds)).toEqual([1]);
    });

    test('a tenant with too many finished jobs loses the oldest of its own, and other tenants lose none', async () => {
      const ids = ['few-1', 'many-1', 'many-2', 'many-3', 'few-2', 'many-4', 'open'];
      for (const [index, id] of ids.entries()) {
        await opened.writes.write(insertJob, job(id, { tenant: id.split('-')[0] as string }), '', BOUNDS);
        if (id === 'open') continue;
        await opened.writes.write(finishJob, index + 1, 'n', { ...ENDED, endedAtMs: 10 + index });
      }
      const expired = async (keep: number, endedBeforeMs = 0, limit = 10) =>
        (await listExpiredJobs(opened.database, { endedBeforeMs, keep, limit })).map(sequence => ids[sequence - 1]);
      expect(await expired(6)).toEqual([]);
      expect(await expired(5)).toEqual(['many-1']);
      expect(await expired(4)).toEqual(['many-1', 'many-2']);
      expect(await expired(3)).toEqual(['many-1', 'many-2', 'few-1']);
      expect(await expired(0, 0, 2)).toEqual(['many-1', 'many-2']);
      // Jobs that are too old are removed in any case, which frees capacity.
      expect(await expired(5, 11)).toEqual(['few-1']);
      expect(await expired(3, 11)).toEqual(['few-1', 'many-1', 'many-2']);
    });

    test('an instance is inserted once per id, name and key, and updated only in the expected state', async () => {
      const named = { namespace: 'ns', name: 'a', idempotency: { key: 'k', requestHash: 'h' } };
      const insert = (id: string, agent = named) =>
        insertInstance(opened.database, storedInstance({ id, status: 'RUNNING' }), agent);
      expect(await insert('i-1')).toBe(true);
      expect(await insert('i-1', { ...named, name: 'b', idempotency: { key: 'l', requestHash: 'h' } })).toBe(false);
      expect(await insert('i-2')).toBe(false);
      expect(await insert('i-2', { ...named, name: 'b' })).toBe(false);
      expect(await insert('i-2', { ...named, name: 'b', idempotency: { key: 'l', requestHash: 'h' } })).toBe(true);
      const ref = { id: 'i-1', epoch: 1, nodeId: storedInstance().nodeId };
      expect(await updateInstance(opened.database, ref, ['RUNNING'], { status: 'STOPPING' })).toBe(true);
      expect(await updateInstance(opened.database, ref, ['RUNNING'], { status: 'FAILED' })).toBe(false);
      const list = await listAgents(opened.database, { tenant: 'default', limit: 10, after: null });
      expect(list.map(({ id, status }) => [id, status])).toEqual([
        ['i-1', 'STOPPING'],
        ['i-2', 'RUNNING'],
      ]);
    });

    test('lists select agents by labels and template, in the order of starts, and an end is set under conditions', async () => {
      const { database } = opened;
      const odd = { 'a%_\\"': '\n[]\u0000ü', app: 'x' };
      const insert = (id: string, startedAtMs: number, more: object) => {
        const agent = { namespace: 'ns', name: id, idempotency: undefined, ...more };
        const row = storedInstance({ id, status: 'RUNNING', ttlMs: 5 });
        return insertInstance(database, row, agent).then(() =>
          updateInstance(database, row, ['RUNNING'], { startedAtMs, expiresAtMs: 100 }),
        );
      };
      await insert('i-1', 30, { labels: odd, template: 'base' });
      await insert('i-2', 10, { labels: { app: 'x' }, template: 'other' });
      await insert('i-3', 30, { labels: { app: 'X' } });
      const ids = async (filter: object) =>
        (await listAgents(database, { tenant: 'default', limit: 10, after: null, ...filter })).map(({ id }) => id);
      expect(await ids({ labels: { app: 'x' } })).toEqual(['i-1', 'i-2']);
      expect(await ids({ labels: odd })).toEqual(['i-1']);
      expect(await ids({ template: null })).toEqual(['i-1', 'i-2']);
      expect(await ids({ template: 'other' })).toEqual(['i-2']);
      expect(await ids({ startedAfterMs: 30, status: ['RUNNING', 'PAUSED'] })).toEqual(['i-1', 'i-3']);
      expect(await ids({ order: 'newest' })).toEqual(['i-3', 'i-1', 'i-2']);
      expect(await ids({ order: 'oldest', after: { id: 'i-2', startedAtMs: 10 } })).toEqual(['i-1', 'i-3']);
      expect(await ids({ order: 'newest', after: { id: 'i-3', startedAtMs: 30 } })).toEqual(['i-1', 'i-2']);

      const expiring = async () => await listExpiringAgents(database, storedInstance().nodeId);
      const agent = (await expiring()).find(({ id }) => id === 'i-1');
      expect(agent).toMatchObject({ id: 'i-1', ttlMs: 5, expiresAtMs: 100, pausedAtMs: 0 });
      const set = (expiresAtMs: number, onlyLater = false, changes: object = {}) =>
        setAgentExpiry(database, { ...(agent as StoredInstance), ...changes }, { ttlMs: 7, expiresAtMs, onlyLater });
      expect([await set(50, true), await set(50), await set(60, true)]).toEqual([false, true, true]);
      expect([await set(1, false, { pausedAtMs: 1 }), await set(1, false, { nodeId: 'other' })]).toEqual([
        false,
        false,
      ]);
      expect([await set(0, true), await set(90, true)]).toEqual([true, false]);
      expect((await expiring()).map(({ id }) => id).sort()).toEqual(['i-2', 'i-3']);
    });

    test('a schedule is inserted once and deleted once', async () => {
      const row = {
        tenant: 't',
        id: 's',
        cron: '',
        timezone: '',
        overlap: 'skip',
        submission: '{}',
        created_at_ms: 1,
        decided_until_ms: 1,
      } as const;
      expect(await opened.writes.write(insertJobSchedule, row, [], 10)).toBe('inserted');
      expect(await opened.writes.write(insertJobSchedule, row, [], 10)).toBe('known');
      expect(await opened.writes.write(deleteJobSchedule, 't', 's')).toBe(true);
      expect(await opened.writes.write(deleteJobSchedule, 't', 's')).toBe(false);
    });

    test('a put of a schedule replaces the schedule of the same id, counts as later, and keeps the decided times', async () => {
      const common = { tenant: 't', id: 's', timezone: 'UTC', overlap: 'skip', submission: '{}' } as const;
      const row = { ...common, cron: '0 3 * * *', created_at_ms: 100, decided_until_ms: 100 };
      const put = (changes: object, most = 1) => opened.writes.write(putJobSchedule, { ...row, ...changes }, [], most);
      const stored = () => findJobSchedule(opened.database, 't', 's');
      expect(await put({})).toEqual(row);
      // The put happens at the same moment by the same clock.
      const again = { ...row, submission: '[]', created_at_ms: 101, decided_until_ms: 100 };
      expect(await put({ submission: '[]', decided_until_ms: 200 })).toEqual(again);
      expect(await stored()).toEqual(again);
      // With another pattern no earlier time is due.
      const other = { ...row, cron: '0 4 * * *', created_at_ms: 300, decided_until_ms: 300 };
      expect(await put(other)).toEqual(other);
      expect(await put({ ...other, cron: '0 5 * * *', decided_until_ms: 250 })).toMatchObject({
        created_at_ms: 301,
        decided_until_ms: 300,
      });
      expect(await put({ id: 'other' })).toBe('full');
      expect(await put({ id: 'other' }, 2)).toMatchObject({ id: 'other' });
      expect((await listJobSchedules(opened.database, 't')).map(({ id }) => id)).toEqual(['other', 's']);
    });

    test('concurrent puts of a schedule get distinct creation times, and the last one is stored', async () => {
      const row = { tenant: 't', id: 's', cron: '', timezone: '', overlap: 'skip', decided_until_ms: 1 } as const;
      const puts = Array.from({ length: 8 }, (_, index) =>
        opened.writes.write(putJobSchedule, { ...row, submission: `{"n":${index}}`, created_at_ms: 1 }, [], 10),
      );
      const inserted = opened.writes.write(insertJobSchedule, { ...row, submission: '[]', created_at_ms: 1 }, [], 10);
      const written = await Promise.all(puts);
      const moments = written.map(each =>
        typeof each === 'object' && 'created_at_ms' in each ? each.created_at_ms : 0,
      );
      expect(new Set(moments).size).toBe(puts.length);
      expect(Math.min(...moments)).toBe((await inserted) === 'inserted' ? 2 : 1);
      const last = await findJobSchedule(opened.database, 't', 's');
      expect(last?.created_at_ms).toBe(Math.max(...moments));
      expect(written).toContainEqual(last);
    });

    test('the id of the installation exists and never changes', async () => {
      const id = await readInstallationId(opened.database);
      expect(id).toMatch(/^[0-9a-f-]{36}$/);
      expect(await readInstallationId(opened.database)).toBe(id);
    });

    test('a query rejects with its error, and the next query works', async () => {
      await expect(sql`select 1 from nowhere`.execute(opened.database)).rejects.toThrow(/nowhere/);
      await expect(order(insertAsyncCall as never, call('a') as never, null as never)).resolves.toBeUndefined();
      await expect(order(insertAsyncCall as never, call('a') as never, null as never)).rejects.toThrow(/unique/i);
      expect(opened.writes.problem()).toBeNull();
    });
  });
}
