import { createServer, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import { SelectQueryNode } from 'kysely';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { failedPrecondition, resourceExhausted, unavailable } from '../core/error.ts';
import { readFunctionCallHeaders } from '../core/function-call.ts';
import { CHECKED_BYTES } from '../runtime/call.ts';
import { type Database, openDatabase } from '../storage/database.ts';
import { listUntoldAsyncCalls } from '../storage/queries/async-calls.ts';
import { type DurableWrites, openDurableWrites } from '../storage/writes/durable.ts';
import { shardOfUrn } from './active-versions.ts';
import { asyncAnswerJson, deliverWebhook } from './async-answer.ts';
import { AsyncCalls, type AsyncCallsOptions } from './async-calls.ts';
import type { FunctionInvocation, FunctionResult } from './function-invoker.ts';

/** Call that the invoker received and that waits for a slot. */
interface Handed {
  readonly invocation: FunctionInvocation;
  /** Gives the call its slot, and ends the call with `value`: bytes unchanged, other values as JSON. */
  run(value: unknown): Promise<void>;
  refuse(error: Error): void;
}

let database: Database;
let durable: DurableWrites;
let handed: Handed[];
let nowMs: number;
const open: AsyncCalls[] = [];

beforeEach(async () => {
  database = await openDatabase(':memory:');
  durable = await openDurableWrites(database, ':memory:');
  handed = [];
  nowMs = 1_000_000;
});
afterEach(async () => {
  for (const calls of open.splice(0)) await calls.close(0);
  await durable.close();
  await database.destroy();
});

function asyncCalls(options: Partial<AsyncCallsOptions> = {}): AsyncCalls {
  const calls = new AsyncCalls({
    database,
    durable,
    invoke,
    deliver: null,
    maxOpen: 100,
    maxOpenPerTenant: 50,
    maxRunning: 8,
    keepMs: 3_600_000,
    now: () => nowMs,
    log: { warn: () => undefined },
    ...options,
  });
  open.push(calls);
  return calls;
}

function invoke(invocation: FunctionInvocation): Promise<FunctionResult> {
  return new Promise((resolve, reject) => {
    handed.push({
      invocation,
      async run(value) {
        await invocation.beforeRun?.();
        resolve({
          outcome: {
            ok: true,
            data: Buffer.isBuffer(value) ? value : Buffer.from(JSON.stringify(value)),
            runMicros: 1,
          },
          instanceId: 'i1',
          timings: { queueMs: 0, placeMs: 0, startMs: 0, loadMs: 0, runMs: 0 },
        });
      },
      refuse: reject,
    });
  });
}

const submission = (changes: { tenant?: string; urn?: string; event?: unknown; webhookUrl?: string } = {}) => ({
  urn: changes.urn ?? 'urn:f',
  tenant: changes.tenant ?? 'a',
  headers: readFunctionCallHeaders({}),
  header: { traceId: 't', traceparent: '', requestId: 'r' },
  body: Buffer.from(JSON.stringify(changes.event ?? {})),
  webhookUrl: changes.webhookUrl ?? '',
});

/** Returns the next call that the invoker received. */
async function next(): Promise<Handed> {
  await expect.poll(() => handed.length).toBeGreaterThan(0);
  return handed.shift() as Handed;
}
const statusOf = async (calls: AsyncCalls, id: string) => (await calls.get(null, id)).status;

describe('an asynchronous call', () => {
  it('a call is queued until it has its slot, then processing, then completed with its result', async () => {
    const calls = asyncCalls();
    const id = await calls.submit(submission({ event: { n: 1 } }));
    const call = await next();
    expect(call.invocation.call.body.toString()).toBe('{"n":1}');
    expect(await calls.get('a', id)).toMatchObject({ requestId: id, status: 'queued', createdAt: expect.any(String) });
    await call.invocation.beforeRun?.();
    expect(await statusOf(calls, id)).toBe('processing');
  });

  it('a call ends completed with a value, or failed with a code', async () => {
    const calls = asyncCalls();
    const [good, bad] = [await calls.submit(submission()), await calls.submit(submission())];
    await (await next()).run({ value: [1, null] });
    (await next()).refuse(unavailable('instance exited: signal SIGKILL', { number: 150427 }));
    await expect.poll(() => statusOf(calls, bad)).toBe('failed');
    expect(await calls.get(null, good)).toMatchObject({ status: 'completed', resultJson: '{"value":[1,null]}' });
    expect(await calls.get(null, bad)).toMatchObject({ error: { code: 150427, message: expect.any(String) } });
  });

  it.each([
    ['with numbers that JavaScript cannot represent', '{"id":9223372036854775809,"price":1.0}'],
    ['nested deeply', `${'['.repeat(500)}${']'.repeat(500)}`],
  ])('a call keeps the value of its handler unchanged: %s', async (_, value) => {
    const calls = asyncCalls();
    const id = await calls.submit(submission());
    await (await next()).run(Buffer.from(value));
    await expect.poll(() => statusOf(calls, id)).toBe('completed');
    const json = asyncAnswerJson(await calls.get(null, id));
    expect(json).toContain(`"status":"completed",`);
    expect(json.endsWith(`,"result":${value}}`)).toBe(true);
  });

  it('a call fails with 4007 when a large value is not JSON', async () => {
    const calls = asyncCalls();
    const id = await calls.submit(submission());
    await (await next()).run(Buffer.from(`"${'x'.repeat(CHECKED_BYTES)}\0"`));
    await expect.poll(() => statusOf(calls, id)).toBe('failed');
    expect((await calls.get(null, id)).error?.code).toBe(4007);
  });

  it('a call has the same id for its caller and for its handler', async () => {
    const calls = asyncCalls();
    const id = await calls.submit(submission());
    expect((await next()).invocation.call.header.requestId).toBe(id);
  });

  it('a call of another tenant is unknown (200404)', async () => {
    const calls = asyncCalls();
    const id = await calls.submit(submission());
    await expect(calls.get('b', id)).rejects.toMatchObject({ number: 200404 });
    await expect(calls.get(null, 'nosuch')).rejects.toMatchObject({ number: 200404 });
  });

  it('a call without a slot is retried and fails only when it is too old', async () => {
    const calls = asyncCalls();
    const id = await calls.submit(submission());
    (await next()).refuse(unavailable('no instance was free', { number: 150431 }));
    (await next()).refuse(resourceExhausted('all busy', { number: 150429 }));
    expect(await statusOf(calls, id)).toBe('queued');
    const last = await next();
    nowMs += 3_600_000;
    last.refuse(unavailable('no instance was free', { number: 150431 }));
    await expect.poll(() => statusOf(calls, id)).toBe('failed');
    expect((await calls.get(null, id)).error?.code).toBe(150431);
  });
});

it('a call that no instance could ever fit fails at once', async () => {
  const calls = asyncCalls();
  const id = await calls.submit(submission());
  (await next()).refuse(failedPrecondition('larger than the machine', { number: 150510, retryAfterSeconds: 60 }));
  await expect.poll(() => statusOf(calls, id)).toBe('failed');
  expect((await calls.get(null, id)).error).toEqual({ code: 150510, message: 'larger than the machine' });
});

describe('limits of asynchronous calls', () => {
  it('waiting calls have a limit for each tenant and in total (429, 150429), and an end frees capacity', async () => {
    const calls = asyncCalls({ maxOpen: 3, maxOpenPerTenant: 2 });
    const first = await calls.submit(submission());
    await calls.submit(submission());
    await expect(calls.submit(submission())).rejects.toMatchObject({ number: 150429, retryAfterSeconds: 1 });
    await calls.submit(submission({ tenant: 'b' }));
    await expect(calls.submit(submission({ tenant: 'c' }))).rejects.toMatchObject({ number: 150429 });
    await (await next()).run(1);
    await expect.poll(() => statusOf(calls, first)).toBe('completed');
    await expect.poll(() => calls.submit(submission()).catch(() => '')).toMatch(/-/);
  });

  it('kept events, results and errors have a limit of bytes, and a dropped one frees its bytes', async () => {
    const calls = asyncCalls({ maxBytes: 4 * 20_000 });
    await calls.start();
    const large = 'x'.repeat(15_000);
    const header = { traceId: 't', traceparent: '', requestId: 'r', headers: { 'x-large': large } };
    await calls.submit({ ...submission(), header });
    await expect(calls.submit({ ...submission(), header })).rejects.toMatchObject({ number: 150429 });
    (await next()).refuse(unavailable(large, { number: 150427 }));
    await expect.poll(() => calls.submit(submission()).catch(() => '')).toMatch(/-/);
    await (await next()).run(1);
    await expect(calls.submit({ ...submission(), header })).rejects.toMatchObject({ number: 150429 });
    nowMs += 3_600_001;
    await calls.dropOld();
    await calls.submit({ ...submission(), header });
  });

  it('kept calls without content count towards the limit of bytes with the size of their record', async () => {
    const calls = asyncCalls({ maxBytes: 4 * 3 * 512 });
    await calls.start();
    const end = async () => {
      const id = await calls.submit({ ...submission(), body: Buffer.alloc(0) });
      await (await next()).run(1);
      await expect.poll(() => statusOf(calls, id)).toBe('completed');
    };
    const seen: string[] = [];
    for (let n = 0; n < 10; n++) {
      seen.push(
        await end().then(
          () => 'kept',
          () => 'refused',
        ),
      );
    }
    expect(seen.slice(0, 2)).toEqual(['kept', 'kept']);
    expect(seen.at(-1)).toBe('refused');
  });

  it('old results are dropped without a scan of the others', async () => {
    let sums = 0;
    const watched = database.withPlugin({
      transformQuery({ node }) {
        if (SelectQueryNode.is(node) && node.groupBy !== undefined) sums += 1;
        return node;
      },
      transformResult: async ({ result }) => result,
    });
    const calls = asyncCalls({ database: watched });
    await calls.start();
    for (let looks = 0; looks < 3; looks++) await calls.dropOld();
    expect(sums).toBe(1);
  });

  it('calls of a function that wait for a slot have a limit, and other calls continue meanwhile', async () => {
    const calls = asyncCalls({ maxRunning: 8 });
    for (let n = 0; n < 20; n++) await calls.submit(submission({ urn: 'urn:stuck' }));
    await calls.submit(submission({ tenant: 'b', urn: 'urn:free' }));
    await expect.poll(() => handed.some(({ invocation }) => invocation.urn === 'urn:free')).toBe(true);
    expect(handed.filter(({ invocation }) => invocation.urn === 'urn:stuck')).toHaveLength(2);
  });
});

describe('asynchronous calls after a crash', () => {
  it('after a crash, waiting calls run in order and running calls fail with an unknown outcome', async () => {
    const before = asyncCalls({ maxRunning: 1 });
    const ids: string[] = [];
    for (const n of [1, 2, 3]) {
      nowMs += 1;
      ids.push(await before.submit(submission({ event: n })));
    }
    await (await next()).invocation.beforeRun?.();
    handed = [];
    const after = asyncCalls({ maxRunning: 1 });
    await after.start();
    expect(await after.get(null, ids[0] ?? '')).toMatchObject({
      status: 'failed',
      error: { code: 150427, message: expect.stringContaining('not known') },
    });
    for (const n of [2, 3]) {
      const call = await next();
      expect(call.invocation.call.body.toString()).toBe(String(n));
      await call.run(n);
    }
    await expect.poll(() => statusOf(after, ids[2] ?? '')).toBe('completed');
  });

  it('a call that an earlier server started is not started again', async () => {
    const first = asyncCalls();
    const id = await first.submit(submission());
    const mine = await next();
    const second = asyncCalls();
    await second.start();
    const theirs = await next();
    await mine.invocation.beforeRun?.();
    await expect(theirs.invocation.beforeRun?.()).rejects.toThrow('no longer queued');
    expect(await statusOf(first, id)).toBe('processing');
  });

  it('results are removed after their retention time', async () => {
    const before = asyncCalls();
    const id = await before.submit(submission());
    await (await next()).run(1);
    await expect.poll(() => statusOf(before, id)).toBe('completed');
    nowMs += 3_599_999;
    const kept = asyncCalls();
    await kept.start();
    expect(await statusOf(kept, id)).toBe('completed');
    nowMs += 2;
    const gone = asyncCalls();
    await gone.start();
    await expect(gone.get(null, id)).rejects.toMatchObject({ number: 200404 });
  });
});

describe('webhooks of asynchronous calls', () => {
  let server: Server;
  let posted: unknown[];
  let statuses: number[];
  beforeEach(async () => {
    posted = [];
    statuses = [];
    server = createServer((request, response) => {
      let body = '';
      request.on('data', chunk => {
        body += String(chunk);
      });
      request.on('end', () => {
        posted.push(JSON.parse(body));
        response.writeHead(statuses.shift() ?? 204).end();
      });
    });
    await new Promise<void>(resolve => server.listen(0, '127.0.0.1', resolve));
  });
  afterEach(async () => {
    server.closeAllConnections();
    await new Promise(resolve => server.close(resolve));
  });
  const url = () => `http://127.0.0.1:${(server.address() as AddressInfo).port}/`;
  const deliver = (to: string, answer: Parameters<typeof deliverWebhook>[1]) =>
    deliverWebhook(to, answer, { warn: () => undefined });

  it('a webhook receives the end of a call as the API answers it, again until it is accepted', async () => {
    statuses = [503];
    const calls = asyncCalls({ deliver });
    const id = await calls.submit(submission({ webhookUrl: url() }));
    await (await next()).run('done');
    await expect.poll(() => posted.length).toBe(2);
    expect(posted[1]).toMatchObject({ requestId: id, status: 'completed', result: 'done' });
  });

  it('a webhook that does not answer delays no call', async () => {
    const calls = asyncCalls({ deliver: () => new Promise(() => undefined), maxRunning: 1 });
    await calls.submit(submission({ webhookUrl: url() }));
    const second = await calls.submit(submission());
    await (await next()).run(1);
    await (await next()).run(2);
    await expect.poll(() => statusOf(calls, second)).toBe('completed');
  });

  it('the next server reports once an end that the previous server had not reported', async () => {
    const before = asyncCalls({ deliver: () => new Promise(() => undefined) });
    const id = await before.submit(submission({ webhookUrl: url() }));
    await (await next()).run('done');
    await expect.poll(() => statusOf(before, id)).toBe('completed');
    await before.close(0);
    await asyncCalls({ deliver }).start();
    await expect.poll(() => posted).toMatchObject([{ requestId: id, status: 'completed', result: 'done' }]);
    await expect.poll(() => listUntoldAsyncCalls(database, null)).toEqual([]);
    await asyncCalls({ deliver }).start();
    expect(posted.length).toBe(1);
  });

  it('a webhook also receives calls that a crash interrupted', async () => {
    const before = asyncCalls();
    const id = await before.submit(submission({ webhookUrl: url() }));
    await (await next()).invocation.beforeRun?.();
    await asyncCalls({ deliver }).start();
    await expect.poll(() => posted).toMatchObject([{ requestId: id, status: 'failed' }]);
  });
});

describe('asynchronous calls while the disk is full', () => {
  /** Makes durable writes that fail with a full disk while the test sets `isFull`. */
  function fullDisk() {
    const state = { isFull: false, refused: 0, only: '' };
    const writes: DurableWrites = {
      ...durable,
      write: async (work, ...args) => {
        if (state.isFull && work.name.startsWith(state.only)) {
          state.refused += 1;
          throw unavailable('the disk is full');
        }
        return await durable.write(work, ...args);
      },
      problem: () => null,
      close: () => durable.close(),
    };
    return { state, writes };
  }

  it('the end of a call is written repeatedly until it is stored while the disk is full', async () => {
    const { state, writes } = fullDisk();
    const calls = asyncCalls({ durable: writes });
    const id = await calls.submit(submission());
    const call = await next();
    Object.assign(state, { isFull: true, only: 'finish' });
    await call.run(7);
    await expect.poll(() => state.refused).toBeGreaterThan(1);
    expect(await statusOf(calls, id)).toBe('processing');
    state.isFull = false;
    await expect.poll(() => statusOf(calls, id)).toBe('completed');
    expect(await calls.get(null, id)).toMatchObject({ resultJson: '7' });
  });

  it('a call that could not be marked as running waits, and runs once the disk has space', async () => {
    const { state, writes } = fullDisk();
    const calls = asyncCalls({ durable: writes });
    const id = await calls.submit(submission({ event: { n: 1 } }));
    const first = await next();
    state.isFull = true;
    await expect(first.invocation.beforeRun?.()).rejects.toThrow('the disk is full');
    first.refuse(unavailable('the disk is full'));
    // The call has not failed, and is retried only after a pause.
    expect(await statusOf(calls, id)).toBe('queued');
    state.isFull = false;
    const second = await next();
    await second.run('ran');
    await expect.poll(() => statusOf(calls, id)).toBe('completed');
    expect(handed).toEqual([]);
  });

  it('a call whose mark as running was stored without an acknowledgement runs once', async () => {
    const { writes } = fullDisk();
    let isLost = true;
    const lossy: DurableWrites = {
      ...writes,
      write: async (work, ...args) => {
        const result = await durable.write(work, ...args);
        if (isLost && work.name === 'claimAsyncCall') {
          isLost = false;
          throw unavailable('the disk did not confirm');
        }
        return result;
      },
    };
    const calls = asyncCalls({ durable: lossy });
    const id = await calls.submit(submission());
    const first = await next();
    await expect(first.invocation.beforeRun?.()).rejects.toThrow('did not confirm');
    first.refuse(unavailable('the disk did not confirm'));
    await (await next()).run('once');
    await expect.poll(() => statusOf(calls, id)).toBe('completed');
    expect(handed).toEqual([]);
  });
});

describe('asynchronous calls of several replicas', () => {
  const shards = (held: { isHeld: boolean }) => ({
    held: () => (held.isHeld ? { fence: null, isHeld: () => held.isHeld } : null),
  });

  it('a replica runs a call when it holds the shard, and refuses a submit otherwise', async () => {
    const state = { isHeld: true };
    const calls = asyncCalls({ shards: shards(state) });
    await calls.start();
    const id = await calls.submit(submission());
    await (await next()).run('here');
    await expect.poll(() => statusOf(calls, id)).toBe('completed');
    state.isHeld = false;
    await expect(calls.submit(submission())).rejects.toMatchObject({ code: 'unavailable' });
  });

  it('waiting calls of a transferred shard run once, on the next owner', async () => {
    const state = { isHeld: true };
    const before = asyncCalls({ shards: shards(state), maxRunning: 1 });
    const after = asyncCalls({ shards: shards({ isHeld: true }) });
    await Promise.all([before.start(), after.start()]);
    const ids = [await before.submit(submission()), await before.submit(submission())];
    const first = await next();
    state.isHeld = false;
    const released = before.release([shardOfUrn('urn:f')], 60_000);
    await first.run('before');
    await released;
    await after.acquired([shardOfUrn('urn:f')]);
    await (await next()).run('after');
    await expect.poll(() => Promise.all(ids.map(id => statusOf(after, id)))).toEqual(['completed', 'completed']);
    expect(handed).toEqual([]);
  });

  it('a call that waits for an instance runs on the next owner when its shard is lost', async () => {
    const state = { isHeld: true };
    const before = asyncCalls({ shards: shards(state) });
    const after = asyncCalls({ shards: shards({ isHeld: true }) });
    const id = await before.submit(submission());
    const waiting = await next();
    state.isHeld = false;
    before.lost([shardOfUrn('urn:f')]);
    waiting.refuse(unavailable('another replica is taking over the function'));
    await after.acquired([shardOfUrn('urn:f')]);
    await (await next()).run('after');
    await expect.poll(() => statusOf(after, id)).toBe('completed');
    expect(handed).toEqual([]);
  });

  it('a late end from a former owner does not overwrite the result of the next owner', async () => {
    const state = { isHeld: true };
    const before = asyncCalls({ shards: shards(state) });
    const after = asyncCalls({ shards: shards({ isHeld: true }) });
    const id = await before.submit(submission());
    const slept = await next();
    await slept.invocation.beforeRun?.();
    state.isHeld = false;
    before.lost([shardOfUrn('urn:f')]);
    await after.acquired([shardOfUrn('urn:f')]);
    expect(await statusOf(after, id)).toBe('failed');
    slept.refuse(unavailable('instance exited'));
    await before.close(1000);
    expect(await after.get(null, id)).toMatchObject({ status: 'failed', error: { code: 150427 } });
  });

  it('a replica that could not read the waiting calls of a new shard retries, and does not run its running calls again', async () => {
    const before = asyncCalls({ shards: shards({ isHeld: true }) });
    const left = await before.submit(submission());
    const slept = await next();
    await slept.invocation.beforeRun?.();
    const waits = await before.submit(submission());
    await next();
    let isAway = true;
    const noQueries = new Proxy(database, {
      get: (target, name) => {
        if (isAway && name === 'updateTable') throw unavailable('the database cannot be reached');
        const found = Reflect.get(target, name) as unknown;
        return typeof found === 'function' ? found.bind(target) : found;
      },
    });
    const after = asyncCalls({ shards: shards({ isHeld: true }), database: noQueries });
    const acquired = after.acquired([shardOfUrn('urn:f')]);
    const fresh = await after.submit(submission());
    const running = await next();
    await running.invocation.beforeRun?.();
    isAway = false;
    await acquired;
    expect([await statusOf(after, left), await statusOf(after, fresh)]).toEqual(['failed', 'processing']);
    await (await next()).run('found');
    await expect.poll(() => statusOf(after, waits)).toBe('completed');
  });

  it('a submit is written under the lease of its shard, so that the next owner finds the call', async () => {
    const fence = { name: 'shard-01', epoch: 7, nodeId: 'a', nodeEpoch: 1 };
    const asked: unknown[] = [];
    const calls = asyncCalls({
      shards: { held: () => ({ fence, isHeld: () => true }) },
      durable: {
        ...durable,
        write: async (work, ...args) => {
          asked.push(work.name, args.at(-1));
          throw unavailable('this replica does not own it any more');
        },
      },
    });
    await expect(calls.submit(submission())).rejects.toMatchObject({ code: 'unavailable' });
    expect(asked).toEqual(['insertAsyncCall', fence]);
  });
});
