import { expect, test, vi } from 'vitest';
import { TestCluster, type TestReplica } from '../../test/http/cluster-bed.ts';
import { fakeServices, URN } from '../../test/http/cluster-world.ts';
import { servedElsewhere } from '../functions/active-versions.ts';
import type { FunctionInvocation } from '../functions/function-invoker.ts';

const WAYS = [
  ['by the fast path', `/serverless/v1/functions/${URN}/invocations`, {}],
  ['by the router', '/invocations/default/svc/hello/', {}],
  ['asynchronous', `/serverless/v1/functions/${URN}/invocations`, { 'X-Invoke-Type': 'async' }],
] as const;

/** Starts a cluster. `moves` runs just before the next call gets its instance, and makes that call move. */
async function start() {
  const seen: FunctionInvocation[] = [];
  const state: { moves: (() => void) | null } = { moves: null };
  const services = fakeServices(seen);
  const service = services.service as NonNullable<typeof services.service>;
  const leaves = () => {
    const { moves } = state;
    state.moves = null;
    moves?.();
    return moves !== null;
  };
  const functions = {
    ...service.functions,
    invoke: async (invocation: FunctionInvocation) => {
      if (leaves()) throw servedElsewhere();
      return await service.functions.invoke(invocation);
    },
  };
  const submitted: string[] = [];
  const asyncCalls = {
    submit: async () => {
      if (leaves()) throw servedElsewhere();
      submitted.push('request-1');
      return 'request-1';
    },
  };
  const cluster = await TestCluster.start({
    ...services,
    service: { ...service, functions: functions as never, asyncCalls: asyncCalls as never },
  });
  const runs = () => seen.length + submitted.length;
  return Object.assign(state, { cluster, runs, [Symbol.asyncDispose]: () => cluster[Symbol.asyncDispose]() });
}

const call = ({ url }: TestReplica, path: string, headers: Readonly<Record<string, string>>) =>
  fetch(url + path, { method: 'POST', headers, body: '{"size":3}' });

test.each(WAYS)(
  'a call whose function moves before the call has an instance runs once on the new owner: %s',
  async (_, path, headers) => {
    await using world = await start();
    const { first, owner } = world.cluster;
    first.locator.target = null;
    world.moves = () => {
      first.locator.target = owner.target;
    };
    const answer = await call(first, path, headers);
    expect(answer.ok).toBe(true);
    expect(world.runs()).toBe(1);
    expect(first.results).toEqual(['answered']);
  },
);

test.each(WAYS)(
  'a call forwarded to a former owner is sent back and runs once on the current owner: %s',
  async (_, path, headers) => {
    await using world = await start();
    const { first } = world.cluster;
    world.moves = () => undefined;
    const answer = await call(first, path, headers);
    expect(answer.ok).toBe(true);
    expect(world.runs()).toBe(1);
    expect(first.results).toEqual(['not_here', 'answered']);
  },
);

test.each(WAYS)('a call whose function moves and comes back runs once: %s', async (_, path, headers) => {
  await using world = await start();
  const { owner } = world.cluster;
  world.moves = () => undefined;
  const answer = await call(owner, path, headers);
  expect(answer.ok).toBe(true);
  expect(world.runs()).toBe(1);
});

test('a draining replica keeps its connections open and sends new requests back unrun', async () => {
  await using world = await start();
  const { first, owner } = world.cluster;
  const path = WAYS[0][1];
  expect((await call(first, path, {})).status).toBe(200);
  expect(first.peers.openConnections).toBe(1);
  owner.listener.drain();
  // The function has moved to the first replica.
  first.locator.refresh = async () => {
    first.locator.target = null;
    return first.target;
  };
  expect((await call(first, path, {})).status).toBe(200);
  expect(world.runs()).toBe(2);
  expect(first.results).toEqual(['answered', 'not_here', 'answered']);
});

test('a connection on which a call was sent back does not delay the shutdown of the sending replica', async () => {
  await using world = await start();
  const { first, owner } = world.cluster;
  owner.locator.target = { nodeId: 'node-c', address: '127.0.0.1:1' };
  expect((await call(first, WAYS[0][1], {})).status).toBe(503);
  expect(first.results).toContain('not_here');
  expect(first.peers.openConnections).toBe(1);
  await owner.app.close();
  await vi.waitFor(() => expect(first.peers.openConnections).toBe(0), 20_000);
});
