import { describe, expect, test, vi } from 'vitest';
import { shardOf } from '../core/lease.ts';
import type { LivingNode } from './contract.ts';
import { type LocatorOptions, NodeLocator } from './locator.ts';

const FUNCTION = 'sn:cn:yrk:default:function:0@svc@hello';
const SELF = { nodeId: 'a', address: 'a:1' };
const OTHER = { nodeId: 'b', address: 'b:1' };

const node = (id: string, roles = ['frontend', 'worker']): LivingNode => ({
  ...{ id, epoch: 1, advertise: `${id}:1`, roles, version: '0', joinedAtMs: 0, expiresInMs: 8000 },
});

/** Makes a locator over a cluster whose state the test sets. */
function cluster(changes: Partial<LocatorOptions> = {}) {
  const state = {
    living: [node('a'), node('b')],
    owner: null as LivingNode | null,
    served: new Set<string>(),
    live: new Set<string>(),
    rows: new Map<string, string>(),
    lost: new Set<string>(),
  };
  const nodeOfInstance = vi.fn(async (id: string) => state.rows.get(id) ?? null);
  const locator = new NodeLocator({
    self: SELF,
    isWorker: true,
    membership: { living: () => state.living },
    shards: { ownerOf: () => state.owner },
    isLive: id => state.live.has(id),
    isServed: shard => state.served.has(shard),
    nodeOfInstance,
    nodeOfJob: async (_tenant, id) => state.rows.get(id) ?? null,
    isLost: id => state.lost.has(id),
    waitMs: 1000,
    ...changes,
  });
  return { state, locator, nodeOfInstance };
}

describe('the locator of an instance', () => {
  test('a live instance of this replica is located without a database query', () => {
    const { state, locator, nodeOfInstance } = cluster();
    state.live.add('i');
    expect(locator.locate('agent', 'i', 't')).toBeNull();
    expect(nodeOfInstance).not.toHaveBeenCalled();
  });

  test('an instance of another node is located with one database query for all calls', async () => {
    const { state, locator, nodeOfInstance } = cluster();
    state.rows.set('i', 'b');
    expect(await locator.locate('agent', 'i', 't')).toEqual(OTHER);
    expect(locator.locate('agent', 'i', 't')).toEqual(OTHER);
    expect(nodeOfInstance).toHaveBeenCalledTimes(1);
  });

  test('an unknown instance is answered here, and looked up again for each request', async () => {
    const { state, locator } = cluster();
    expect(await locator.locate('agent', 'i', 't')).toBeNull();
    state.rows.set('i', 'b');
    expect(await locator.locate('agent', 'i', 't')).toEqual(OTHER);
  });

  test.each([
    ['is dead', []],
    ['is about to end', [node('b', [])]],
  ])('locating an instance whose node %s waits until the node is back', async (_, living) => {
    const { state, locator } = cluster();
    state.rows.set('i', 'b');
    state.living = [node('a'), ...living];
    const found = locator.locate('agent', 'i', 't');
    state.living = [node('a'), node('b')];
    expect(await found).toEqual(OTHER);
  });

  test('locating an instance fails with unavailable when its node stays away', async () => {
    const { state, locator } = cluster({ waitMs: 0 });
    state.rows.set('i', 'b');
    state.living = [node('a')];
    await expect(locator.locate('agent', 'i', 't')).rejects.toMatchObject({
      code: 'unavailable',
      retryAfterSeconds: 1,
    });
  });

  test('a waiting request finds an instance that another node has taken over', async () => {
    const { state, locator, nodeOfInstance } = cluster({ waitMs: 10_000 });
    state.rows.set('i', 'gone');
    const located = locator.locate('agent', 'i', 't');
    await vi.waitFor(() => expect(nodeOfInstance).toHaveBeenCalled());
    state.rows.set('i', 'b');
    expect(await located).toEqual(OTHER);
  });

  test('a request for an instance of a lost node is answered here', async () => {
    const { state, locator } = cluster();
    state.rows.set('i', 'b');
    state.lost.add('b');
    state.living = [node('a')];
    expect(await locator.locate('agent', 'i', 't')).toBeNull();
  });

  test('refresh queries the database again, and returns this replica when the instance has moved here', async () => {
    const { state, locator, nodeOfInstance } = cluster();
    state.rows.set('i', 'b');
    await locator.locate('agent', 'i', 't');
    state.rows.set('i', 'a');
    expect(await locator.refresh('agent', 'i', 't')).toEqual(SELF);
    expect(nodeOfInstance).toHaveBeenCalledTimes(2);
  });
});

describe('the locator of a function', () => {
  test('a function is located on the replica that serves its shard', () => {
    const { state, locator } = cluster();
    state.owner = node('b');
    expect(locator.locate('function', FUNCTION, 't')).toEqual(OTHER);
    state.served.add(shardOf(FUNCTION));
    expect(locator.locate('function', FUNCTION, 't')).toBeNull();
  });

  test.each([
    ['nobody has', null],
    ['this replica is just handing over', node('a')],
  ])('locating a function whose shard %s waits for the next owner', async (_, owner) => {
    const { state, locator } = cluster();
    state.owner = owner;
    const found = locator.locate('function', FUNCTION, 't');
    state.owner = node('b');
    expect(await found).toEqual(OTHER);
  });

  test('locating a function fails with unavailable when its shard gets no owner', async () => {
    const { locator } = cluster({ waitMs: 0 });
    await expect(locator.locate('function', FUNCTION, 't')).rejects.toMatchObject({ code: 'unavailable' });
  });
});

describe('the locator of a new resource', () => {
  test('a new resource is placed on this replica, or on a worker when this replica has another role', async () => {
    expect(cluster().locator.locate('worker', '', 't')).toBeNull();
    const { state, locator } = cluster({ isWorker: false });
    state.living = [node('a', ['frontend']), node('b')];
    expect(await locator.locate('worker', '', 't')).toEqual(OTHER);
  });

  test('placing a new resource fails with unavailable when no worker exists', async () => {
    const { state, locator } = cluster({ isWorker: false, waitMs: 0 });
    state.living = [node('a', ['frontend'])];
    await expect(locator.locate('worker', '', 't')).rejects.toMatchObject({ code: 'unavailable' });
  });
});

test('the node of a job is queried for each request', async () => {
  const { state, locator } = cluster();
  state.rows.set('j', 'b');
  expect(await locator.locate('job', 'j', 't')).toEqual(OTHER);
  state.rows.delete('j');
  expect(await locator.locate('job-log', 'j', 't')).toBeNull();
});
