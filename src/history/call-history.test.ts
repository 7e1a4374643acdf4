import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { finishedCall } from '../../test/history/finished-call.ts';
import { startPostgres } from '../../test/parts/postgres.ts';
import { describeWith } from '../../test/probe.ts';
import { unavailable } from '../core/error.ts';
import { registerFunction } from '../registry/function-writes.ts';
import { WRITE_OPERATIONS } from '../server/write-operations.ts';
import { openStores } from '../storage/stores.ts';
import type { Stores } from '../storage/stores-contract.ts';
import type { DurableWrites } from '../storage/writes/durable.ts';
import { CallHistory, type CallHistoryOptions } from './call-history.ts';
import { CallReader } from './call-reader.ts';
import { Redaction } from './redaction.ts';

const PROGRAM = new URL('../../test/registry/write-program.mjs', import.meta.url);
const URN = 'sn:cn:yrk:t:function:0@demo@hello:v1';

let stores: Stores;
let tenants = 0;
const newTenant = () => `tenant-${++tenants}`;

function historyOf(options: Partial<CallHistoryOptions> = {}): CallHistory & { readonly warnings: string[] } {
  const warnings: string[] = [];
  const history = new CallHistory({
    database: stores.database,
    writes: stores.writes,
    nodeId: 'node-1',
    bodyBytes: 64,
    redaction: new Redaction(['password']),
    secretsOf: async () => [],
    nameOfAgent: async id => `default/${id}`,
    rules: { slowMs: 1000, perSecond: 1000 },
    keepMs: 1_000_000,
    maxBytesPerTenant: 1_000_000,
    now: () => 1_500_000,
    log: { info: () => undefined, warn: (_, text) => void warnings.push(text), error: () => undefined },
    ...options,
  });
  return Object.assign(history, { warnings });
}

const EVERYTHING = { after: null, limit: 100 };

/** Tests of the history on one kind of database. */
function tests(): void {
  test('a recorded call is listed and read with its stages and texts', async () => {
    const tenant = newTenant();
    const history = historyOf();
    const earlier = finishedCall({ tenant });
    const call = finishedCall({
      ...{ tenant, kind: 'function', target: URN, instanceId: 'i-1', mode: 'stream', caller: 'ci' },
      input: Buffer.from('{"password":"hunter2","n":1}'),
      stages: { queueMs: 1.5, placeMs: 2, startMs: 3, loadMs: 4, runMs: 5.25 },
    });
    history.sink.push(earlier);
    history.sink.push(call);
    await history.flush();
    expect(history.counts).toEqual({ written: 2, dropped: 0, failed: 0 });
    const reader = new CallReader(stores.database);
    const page = await reader.list({ tenant, ...EVERYTHING });
    expect(page).toMatchObject({ next: null, calls: [{ id: call.id }, { id: earlier.id, name: 'default/agent-1' }] });
    const found = await reader.get(tenant, call.id);
    expect(found).toMatchObject({
      ...{ kind: 'function', subject: '0@demo@hello', version: 'v1', instance_id: 'i-1', node_id: 'node-1' },
      ...{ mode: 'stream', caller: 'ci', trace_id: call.traceId, outcome: 'ok', code: 'ok', error: '' },
      ...{ queue_us: 1500, place_us: 2000, start_us: 3000, load_us: 4000, run_us: 5250, elapsed_us: 2000 },
      ...{ input: '{"password":"[redacted]","n":1}', output: '"hello"', input_bytes: 28, input_cut: 0 },
      started_at_ms: call.endedAtMs - 2,
    });
    await expect(reader.get('another', call.id)).rejects.toMatchObject({ code: 'not_found' });
  });

  test('the spans of a call are stored with hidden values replaced, and count for the tenant', async () => {
    const tenant = newTenant();
    const history = historyOf({ secretsOf: async () => ['hunter2'] });
    const attributes = { password: 'x', note: 'with hunter2', rows: 3 };
    const sent = { spans: [{ name: 'fetch', startMicros: 1, micros: 2, attributes, error: 'of hunter2' }], dropped: 1 };
    const call = finishedCall({ tenant, spans: Buffer.from(JSON.stringify(sent)) });
    const plain = finishedCall({ tenant });
    for (const each of [call, plain]) history.sink.push(each);
    await history.flush();
    const reader = new CallReader(stores.database);
    const found = await reader.get(tenant, call.id);
    const shown = { password: '[redacted]', note: 'with [redacted]', rows: 3 };
    expect(JSON.parse(found.spans)).toEqual({
      spans: [{ name: 'fetch', parent: null, startMicros: 1, micros: 2, attributes: shown, error: 'of [redacted]' }],
      dropped: 1,
    });
    const other = await reader.get(tenant, plain.id);
    expect(other.spans).toBe('');
    expect(Number(found.bytes) - Number(other.bytes)).toBe(Buffer.byteLength(found.spans));
  });

  test('the values of secrets are in no text of a record', async () => {
    const tenant = newTenant();
    const history = historyOf({ secretsOf: async of => (of === tenant ? ['hunter2'] : []) });
    const returned = finishedCall({ tenant, input: Buffer.from('"hunter2"'), output: Buffer.from('["hunter2"]') });
    const failed = finishedCall({ tenant, code: '4002', output: null, error: 'cannot use hunter2' });
    for (const call of [returned, failed]) history.sink.push(call);
    await history.flush();
    const reader = new CallReader(stores.database);
    expect(await reader.get(tenant, returned.id)).toMatchObject({ input: '"[redacted]"', output: '["[redacted]"]' });
    expect(await reader.get(tenant, failed.id)).toMatchObject({ error: 'cannot use [redacted]' });
  });

  test('calls whose secrets cannot be read are not recorded', async () => {
    const tenant = newTenant();
    const history = historyOf({ secretsOf: () => Promise.reject(unavailable('the database is away')) });
    history.sink.push(finishedCall({ tenant }));
    await history.flush();
    expect(history.counts).toEqual({ written: 0, dropped: 0, failed: 1 });
    expect(history.warnings).toEqual(['cannot record calls']);
  });

  test('large bodies are cut at a whole character, and their lengths are kept', async () => {
    const tenant = newTenant();
    const history = historyOf({ bodyBytes: 10 });
    const call = finishedCall({
      tenant,
      input: Buffer.from(`"${'ä'.repeat(50_000)}"`),
      output: Buffer.from('"0123456789"'),
    });
    history.sink.push(call);
    await history.flush();
    const found = await new CallReader(stores.database).get(tenant, call.id);
    expect(found).toMatchObject({
      input: '"ääää',
      input_bytes: 100_002,
      input_cut: 1,
      output: '"012345678',
      output_cut: 1,
    });
  });

  test('pages follow each other without a gap, also among calls of one millisecond', async () => {
    const tenant = newTenant();
    const history = historyOf();
    const calls = Array.from({ length: 23 }, (_, at) => finishedCall({ tenant, endedAtMs: 5000 + (at >> 3) }));
    for (const call of calls) history.sink.push(call);
    await history.flush();
    const reader = new CallReader(stores.database);
    const seen: string[] = [];
    let after: Awaited<ReturnType<CallReader['list']>>['next'] = null;
    do {
      const page = await reader.list({ tenant, limit: 4, after });
      seen.push(...page.calls.map(({ id }) => id));
      after = page.next;
    } while (after !== null);
    expect(seen).toEqual(
      calls
        .map(({ id }) => id)
        .sort()
        .reverse(),
    );
  });

  test('lists select by target, outcome, trace and time', async () => {
    const tenant = newTenant();
    const history = historyOf();
    const ok = finishedCall({ tenant, endedAtMs: 1002, traceId: 'one' });
    const failed = finishedCall({ tenant, endedAtMs: 2002, code: '4002', output: null, error: 'no' });
    const other = finishedCall({ tenant, endedAtMs: 3002, kind: 'function', target: URN });
    for (const call of [ok, failed, other]) history.sink.push(call);
    await history.flush();
    const reader = new CallReader(stores.database);
    const idsOf = async (query: Partial<Parameters<CallReader['list']>[0]>) =>
      (await reader.list({ tenant, ...EVERYTHING, ...query })).calls.map(({ id }) => id);
    expect(await idsOf({ kind: 'agent', subject: 'agent-1' })).toEqual([failed.id, ok.id]);
    expect(await idsOf({ kind: 'function', subject: '0@demo@hello' })).toEqual([other.id]);
    expect(await idsOf({ outcome: 'error' })).toEqual([failed.id]);
    expect(await idsOf({ traceIds: ['one', 'two'] })).toEqual([ok.id]);
    expect(await idsOf({ fromMs: 2000 })).toEqual([other.id, failed.id]);
    expect(await idsOf({ beforeMs: 2000 })).toEqual([ok.id]);
    expect(await idsOf({ subject: 'agent-1', outcome: 'ok', fromMs: 1000, beforeMs: 1001 })).toEqual([ok.id]);
  });

  test('a search finds texts of inputs, outputs and errors in all windows, and pages lead on', async () => {
    const tenant = newTenant();
    const history = historyOf();
    const hits = new Set<string>();
    for (let at = 0; at < 1234; at++) {
      const fields =
        at % 400 === 7
          ? { input: Buffer.from('{"q":"50%_Needle"}') }
          : at % 400 === 8
            ? { output: Buffer.from('"50%_needle"') }
            : at % 400 === 9
              ? { code: '4002', output: null, error: 'a 50%_NEEDLE broke' }
              : { input: Buffer.from('{"q":"50 needle"}') };
      const call = finishedCall({ tenant, ...fields });
      if (at % 400 >= 7 && at % 400 <= 9) hits.add(call.id);
      history.sink.push(call);
    }
    await history.flush();
    const reader = new CallReader(stores.database);
    const found = new Set<string>();
    let after: Awaited<ReturnType<CallReader['list']>>['next'] = null;
    do {
      const page = await reader.list({ tenant, limit: 2, after, text: '50%_needle' });
      for (const { id } of page.calls) found.add(id);
      after = page.next;
    } while (after !== null);
    expect(found).toEqual(hits);
  });

  test('a later record of an asynchronous call replaces the earlier one', async () => {
    const tenant = newTenant();
    const history = historyOf();
    const call = finishedCall({ tenant, mode: 'async', code: '150429', output: null });
    history.sink.push(call);
    await history.flush();
    history.sink.push({ ...call, code: 'ok', output: Buffer.from('1') });
    await history.flush();
    const { calls } = await new CallReader(stores.database).list({ tenant, ...EVERYTHING });
    expect(calls).toMatchObject([{ id: call.id, outcome: 'ok' }]);
  });

  test('the sweep removes old calls, and the oldest above the bytes of a tenant', async () => {
    const [old, large] = [newTenant(), newTenant()];
    const history = historyOf({ maxBytesPerTenant: 5000 });
    for (const endedAtMs of [400_000, 499_999, 600_000]) history.sink.push(finishedCall({ tenant: old, endedAtMs }));
    const calls = Array.from({ length: 1100 }, (_, at) => finishedCall({ tenant: large, endedAtMs: 600_000 + at }));
    for (const call of calls) history.sink.push(call);
    await history.flush();
    await history.sweep();
    const reader = new CallReader(stores.database);
    expect((await reader.list({ tenant: old, ...EVERYTHING })).calls).toHaveLength(1);
    const left = (await reader.list({ tenant: large, ...EVERYTHING })).calls;
    expect(left.length).toBeGreaterThan(1);
    expect(left.length).toBeLessThan(10);
    expect(left[0]?.id).toBe(calls.at(-1)?.id);
    const totals = await stores.database.selectFrom('call_totals').selectAll().where('tenant', '=', large).execute();
    const bytes = left.reduce((sum, call) => sum + call.bytes, 0);
    expect(totals).toEqual([{ tenant: large, bytes, last_seq: 1100 }]);
    await history.sweep();
    expect((await reader.list({ tenant: large, ...EVERYTHING })).calls).toHaveLength(left.length);
  });

  test('a follower gets each record of its tenant once, while several replicas write and others are removed', async () => {
    const [tenant, other] = [newTenant(), newTenant()];
    const reader = new CallReader(stores.database);
    let { position } = await reader.follow({ tenant, limit: 7, position: null });
    const followed: string[] = [];
    let isOver = false;
    const following = (async () => {
      for (let isLast = false; !isLast; ) {
        isLast = isOver;
        for (let before = -1; before !== position; ) {
          before = position;
          const page = await reader.follow({ tenant, limit: 7, position });
          followed.push(...page.calls.map(({ id }) => id));
          position = page.position;
        }
        await new Promise(resolve => setImmediate(resolve));
      }
    })();
    const sent: string[] = [];
    const replicas = [1, 2, 3].map(async () => {
      const history = historyOf();
      for (let round = 0; round < 8; round++) {
        for (let at = 0; at < 60; at++) {
          const call = finishedCall({ tenant: at % 6 === 0 ? other : tenant });
          if (call.tenant === tenant) sent.push(call.id);
          history.sink.push(call);
        }
        await history.flush();
      }
    });
    await Promise.all(replicas);
    isOver = true;
    await following;
    expect([...followed].sort()).toEqual([...sent].sort());
    await historyOf({ maxBytesPerTenant: 0 }).sweep();
    const late = finishedCall({ tenant });
    const history = historyOf();
    history.sink.push(late);
    await history.flush();
    const page = await reader.follow({ tenant, limit: 7, position });
    expect(page).toMatchObject({ calls: [{ id: late.id }], position: sent.length + 1 });
    // A position of a newer database than this one is set back.
    expect(await reader.follow({ tenant, limit: 7, position: 1e9 })).toEqual({ calls: [], position: sent.length + 1 });
  });

  test('a follower gets only calls that match its filters, and leaves out those before its position', async () => {
    const tenant = newTenant();
    const history = historyOf();
    const reader = new CallReader(stores.database);
    history.sink.push(finishedCall({ tenant }));
    await history.flush();
    const { position } = await reader.follow({ tenant, limit: 9, position: null });
    const ok = finishedCall({ tenant, endedAtMs: 1002, traceId: 'two' });
    const failed = finishedCall({ tenant, endedAtMs: 2002, code: '4002', output: null, error: 'Needle' });
    const made = finishedCall({ tenant, traceparent: `00-${'a'.repeat(32)}-abcdef0123454678-01` });
    const other = finishedCall({ tenant, kind: 'function', target: URN });
    const unordered = [other, failed, ok, made];
    for (const call of unordered) history.sink.push(call);
    await history.flush();
    const idsOf = async (query: Partial<Parameters<CallReader['follow']>[0]>) =>
      (await reader.follow({ tenant, limit: 9, position, ...query })).calls.map(({ id }) => id);
    expect(await idsOf({})).toEqual(unordered.map(({ id }) => id));
    expect(await idsOf({ kind: 'agent', subject: 'agent-1', outcome: 'ok' })).toEqual([ok.id, made.id]);
    expect(await idsOf({ kind: 'function', subject: '0@demo@hello' })).toEqual([other.id]);
    expect(await idsOf({ traceIds: ['one', 'two'] })).toEqual([ok.id]);
    expect(await idsOf({ parentId: 'abcdef01-2345-4678-9abc-def012345678' })).toEqual([made.id]);
    expect(await idsOf({ text: 'needle' })).toEqual([failed.id]);
    expect(await idsOf({ fromMs: 1000, beforeMs: 1001 })).toEqual([ok.id]);
    expect(await idsOf({ tenant: newTenant() })).toEqual([]);
  });

  test('a recording keeps all calls and large bodies, is seen by other replicas, and ends', async () => {
    const tenant = newTenant();
    const clock = { ms: 1_500_000 };
    const options = { rules: { slowMs: 1000, perSecond: 0 }, now: () => clock.ms };
    const [history, other] = [historyOf(options), historyOf(options)];
    const texts = { host_code_path: '', code_token: '', record: '{"status":""}' };
    const row = { tenant, name: '0@demo@hello', version: '$latest', revision_id: 'r', default_published_at_ms: 0 };
    await stores.writes.write(registerFunction, { ...row, ...texts }, 1);
    const target = { kind: 'function', target: '0@demo@hello' } as const;
    await expect(history.recordings.put(newTenant(), target, 1000)).rejects.toMatchObject({ code: 'not_found' });
    const ends = Date.now() + 60_000 - clock.ms;
    const recording = await history.recordings.put(tenant, target, ends);
    expect(recording).toEqual({ ...target, startedAtMs: clock.ms, endsAtMs: clock.ms + ends });
    expect(await other.recordings.list(tenant)).toEqual([recording]);
    const urn = URN.replace(':t:', `:${tenant}:`);
    expect([history.sink.wants(urn, true, 1), other.sink.wants(urn, true, 1)]).toEqual([true, false]);
    await other.recordings.reload();
    expect(other.sink.wants(urn, true, 1)).toBe(true);
    const text = `"${'ä'.repeat(1000)}"`;
    const call = finishedCall({ tenant, kind: 'function', target: urn, input: Buffer.from(text) });
    history.sink.push(call);
    await history.flush();
    expect(await new CallReader(stores.database).get(tenant, call.id)).toMatchObject({ input: text, input_cut: 0 });
    clock.ms += 10;
    expect(await other.recordings.put(tenant, target, ends)).toMatchObject({
      ...{ startedAtMs: recording.startedAtMs, endsAtMs: clock.ms + ends },
    });
    await history.recordings.remove(tenant, target);
    expect(history.sink.wants(urn, true, 1)).toBe(false);
    await expect(history.recordings.remove(tenant, target)).rejects.toMatchObject({ code: 'not_found' });
  });

  test('a timer writes pushed calls, and the close writes the last ones', async () => {
    const tenant = newTenant();
    const history = historyOf();
    history.start();
    history.sink.push(finishedCall({ tenant }));
    while (history.counts.written === 0) await new Promise(resolve => setTimeout(resolve, 10));
    history.sink.push(finishedCall({ tenant }));
    await history.close();
    expect(history.counts.written).toBe(2);
  });
}

/** Writes that wait until `open`, as those of a slow disk do. */
function slowDisk(): { readonly writes: DurableWrites; readonly open: () => void } {
  let open!: () => void;
  const opened = new Promise<void>(resolve => {
    open = resolve;
  });
  const writes: DurableWrites = {
    write: async (operation, ...args) => {
      await opened;
      return await stores.writes.write(operation, ...args);
    },
    problem: () => null,
    close: async () => undefined,
  };
  return { writes, open };
}

describe('the history of calls in SQLite', { timeout: 120_000 }, () => {
  let directory: string;
  beforeAll(async () => {
    directory = mkdtempSync(join(tmpdir(), 'rookery-calls-'));
    stores = await openStores({ file: join(directory, 'a.db') }, { operations: WRITE_OPERATIONS, program: PROGRAM });
  });
  afterAll(async () => {
    await stores.close();
    rmSync(directory, { recursive: true });
  });

  tests();

  test('a slow disk drops the oldest calls and counts them, and later calls are written', async () => {
    const tenant = newTenant();
    const { writes, open } = slowDisk();
    const history = historyOf({ writes, maxWaiting: 10 });
    history.sink.push(finishedCall({ tenant }));
    const flushing = history.flush();
    const calls = Array.from({ length: 25 }, () => finishedCall({ tenant }));
    // The flush takes the first call in its first turn.
    await new Promise(resolve => setImmediate(resolve));
    for (const call of calls) history.sink.push(call);
    expect((history as CallHistory).counts).toEqual({ written: 0, dropped: 15, failed: 0 });
    open();
    await flushing;
    await history.flush();
    expect(history.counts).toEqual({ written: 11, dropped: 15, failed: 0 });
    const page = await new CallReader(stores.database).list({ tenant, ...EVERYTHING });
    expect(page.calls[0]?.id).toBe(calls.at(-1)?.id);
  });

  test('a full disk costs records only, is logged once, and counts them', async () => {
    const tenant = newTenant();
    let isFull = true;
    const writes: DurableWrites = {
      write: async (operation, ...args) => {
        if (isFull) throw unavailable('the disk is full');
        return await stores.writes.write(operation, ...args);
      },
      problem: () => null,
      close: async () => undefined,
    };
    const history = historyOf({ writes });
    for (let at = 0; at < 60; at++) history.sink.push(finishedCall({ tenant }));
    await history.flush();
    history.sink.push(finishedCall({ tenant }));
    await history.flush();
    expect(history.counts).toEqual({ written: 0, dropped: 0, failed: 61 });
    expect(history.warnings).toEqual(['cannot record calls']);
    isFull = false;
    history.sink.push(finishedCall({ tenant }));
    await history.flush();
    expect(history.counts).toMatchObject({ written: 1 });
  });
});

describeWith(['postgres'], 'the history of calls in PostgreSQL', () => {
  let postgres: Awaited<ReturnType<typeof startPostgres>>;
  beforeAll(async () => {
    postgres = await startPostgres();
    const never = { operations: {}, program: new URL('file:///none') };
    stores = await openStores({ url: await postgres.database(), waitMs: 5000, poolSize: 4 }, never);
  });
  afterAll(async () => {
    await stores?.close();
    await postgres?.close();
  });

  tests();
});
