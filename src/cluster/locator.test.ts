import { describe, expect, test, vi } from 'vitest';
import { shardOf } from '../core/shard.ts';
import type { LivingNode } from './contract.ts';
import { type LocatorOptions, NodeLocator } from './locator.ts';

const FUNCTION = 'sn:cn:yrk:default:function:0@svc@hello';
const SELF = { nodeId: 'a', address: 'a:1' };
const OTHER = { nodeId: 'b', address: 'b:1' };

const node = (id: string, roles = ['frontend', 'worker']): LivingNode => ({
  ...{ id, epoch: 1, advertise: `${id}:1`, roles, version: '0', joinedAtMs: 0, expiresInMs: 8000 },
});

/** A cluster whose state the test sets. */
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

describe('an instance', () => {
  test('that takes calls here is here, and nobody is asked', () => {
    const { state, locator, nodeOfInstance } = cluster();
    state.live.add('i');
    expect(locator.locate('agent', 'i', 't')).toBeNull();
    expect(nodeOfInstance).not.toHaveBeenCalled();
  });

  test('of another node is with it: the database is asked once, and not for each call', async () => {
    const { state, locator, nodeOfInstance } = cluster();
    state.rows.set('i', 'b');
    expect(await locator.locate('agent', 'i', 't')).toEqual(OTHER);
    expect(locator.locate('agent', 'i', 't')).toEqual(OTHER);
    expect(nodeOfInstance).toHaveBeenCalledTimes(1);
  });

  test('that is nowhere is answered here, and looked for anew each time: it may come', async () => {
    const { state, locator } = cluster();
    expect(await locator.locate('agent', 'i', 't')).toBeNull();
    state.rows.set('i', 'b');
    expect(await locator.locate('agent', 'i', 't')).toEqual(OTHER);
  });

  test.each([
    ['is dead', []],
    ['is about to end', [node('b', [])]],
  ])('whose node %s waits for it to come back', async (_, living) => {
    const { state, locator } = cluster();
    state.rows.set('i', 'b');
    state.living = [node('a'), ...living];
    const found = locator.locate('agent', 'i', 't');
    state.living = [node('a'), node('b')];
    expect(await found).toEqual(OTHER);
  });

  test('whose node stays away is 503, and not 404', async () => {
    const { state, locator } = cluster({ waitMs: 0 });
    state.rows.set('i', 'b');
    state.living = [node('a')];
    await expect(locator.locate('agent', 'i', 't')).rejects.toMatchObject({
      code: 'unavailable',
      retryAfterSeconds: 1,
    });
  });

  test('that another node takes over while a request waits for its own is found there', async () => {
    const { state, locator, nodeOfInstance } = cluster({ waitMs: 10_000 });
    state.rows.set('i', 'gone');
    const located = locator.locate('agent', 'i', 't');
    await vi.waitFor(() => expect(nodeOfInstance).toHaveBeenCalled());
    state.rows.set('i', 'b');
    expect(await located).toEqual(OTHER);
  });

  test('whose node is lost is what the database says of it', async () => {
    const { state, locator } = cluster();
    state.rows.set('i', 'b');
    state.lost.add('b');
    state.living = [node('a')];
    expect(await locator.locate('agent', 'i', 't')).toBeNull();
  });

  test('that was not where it was said to be is looked up anew; if it is here by now, this replica’s own listener gets it', async () => {
    const { state, locator, nodeOfInstance } = cluster();
    state.rows.set('i', 'b');
    await locator.locate('agent', 'i', 't');
    state.rows.set('i', 'a');
    expect(await locator.refresh('agent', 'i', 't')).toEqual(SELF);
    expect(nodeOfInstance).toHaveBeenCalledTimes(2);
  });
});

describe('a function', () => {
  test('is where its shard is served', () => {
    const { state, locator } = cluster();
    state.owner = node('b');
    expect(locator.locate('function', FUNCTION, 't')).toEqual(OTHER);
    state.served.add(shardOf(FUNCTION));
    expect(locator.locate('function', FUNCTION, 't')).toBeNull();
  });

  test.each([
    ['nobody has', null],
    ['this replica is just handing over', node('a')],
  ])('whose shard %s waits for its next owner', async (_, owner) => {
    const { state, locator } = cluster();
    state.owner = owner;
    const found = locator.locate('function', FUNCTION, 't');
    state.owner = node('b');
    expect(await found).toEqual(OTHER);
  });

  test('whose shard nobody takes is 503', async () => {
    const { locator } = cluster({ waitMs: 0 });
    await expect(locator.locate('function', FUNCTION, 't')).rejects.toMatchObject({ code: 'unavailable' });
  });
});

describe('anything new', () => {
  test('runs here, unless this replica runs nothing: then on one that does', async () => {
    expect(cluster().locator.locate('worker', '', 't')).toBeNull();
    const { state, locator } = cluster({ isWorker: false });
    state.living = [node('a', ['frontend']), node('b')];
    expect(await locator.locate('worker', '', 't')).toEqual(OTHER);
  });

  test('without any replica that runs things is 503', async () => {
    const { state, locator } = cluster({ isWorker: false, waitMs: 0 });
    state.living = [node('a', ['frontend'])];
    await expect(locator.locate('worker', '', 't')).rejects.toMatchObject({ code: 'unavailable' });
  });
});

test('where a job is may change, so it is asked each time', async () => {
  const { state, locator } = cluster();
  state.rows.set('j', 'b');
  expect(await locator.locate('job', 'j', 't')).toEqual(OTHER);
  state.rows.delete('j');
  expect(await locator.locate('job-log', 'j', 't')).toBeNull();
});
