import { describe, expect, it } from 'vitest';
import { settle } from '../../test/fakes/fake-clock.ts';
import { call, functionDefinition, InvokerHarness, running, URN } from '../../test/functions/harness.ts';
import type { Lease } from '../core/lease.ts';
import { SHARD_NAMES } from '../core/lease.ts';
import { shardOfUrn } from './active-versions.ts';

const SHARD = shardOfUrn(URN);
const ELSEWHERE = { code: 'unavailable', number: 150431, retryAfterSeconds: 1 };

/** Replica whose shards and lease the test controls. */
class Replica extends InvokerHarness {
  readonly lease: Lease & { isLost: boolean };
  readonly shards: { isHeld: boolean };

  constructor(isHeld = true) {
    const lease = { fence: null, isLost: false, isHeld: () => !lease.isLost };
    const shards = { isHeld };
    super({ shards: { held: shard => (shards.isHeld && shard === SHARD ? lease : null) } });
    this.lease = lease;
    this.shards = shards;
  }
}

describe('the shard of a function', () => {
  it('all versions of a function have the same shard, which never changes', () => {
    const of = (name: string) => shardOfUrn(`sn:cn:yrk:default:function:0@svc@${name}`);
    expect(['a', 'b', 'hello', 'other'].map(of)).toEqual([of('a'), of('b'), SHARD, of('other')]);
    expect(shardOfUrn('sn:cn:yrk:default:function:0@svc@hello:v1')).toBe(SHARD);
    expect(shardOfUrn('sn:cn:yrk:default:function:0@svc@hello:latest')).toBe(SHARD);
    expect({ hello: SHARD, a: of('a'), b: of('b') }).toMatchInlineSnapshot(`
      {
        "a": "shard-41",
        "b": "shard-28",
        "hello": "shard-60",
      }
    `);
  });

  it('shardOfUrn spreads functions evenly over the shards', () => {
    const counts = new Map<string, number>(SHARD_NAMES.map(name => [name, 0]));
    for (let n = 0; n < 6400; n++) {
      const shard = shardOfUrn(`sn:cn:yrk:default:function:0@svc@f${n}`);
      counts.set(shard, (counts.get(shard) ?? 0) + 1);
    }
    expect(counts.size).toBe(64);
    expect(Math.min(...counts.values())).toBeGreaterThan(50);
    expect(Math.max(...counts.values())).toBeLessThan(160);
  });
});

describe('a replica with a share of the shards', () => {
  it('a replica refuses calls of a shard that it does not hold, without reading the function', async () => {
    const replica = new Replica(false);
    await replica.invoker.start();
    await expect(replica.invoke()).rejects.toMatchObject(ELSEWHERE);
    expect(replica.catalog.finds).toBe(0);
    expect(replica.launcher.launched).toEqual([]);
  });

  it('a replica starts the minimum of instances only for functions of acquired shards', async () => {
    const replica = new Replica(false);
    replica.catalog.functions.set(URN, functionDefinition({}, { minInstances: 2 }));
    const other = functionDefinition({ urn: URN.replace('hello', 'other') }, { minInstances: 1 });
    replica.catalog.functions.set(other.urn, other);
    await replica.invoker.start();
    expect(replica.launcher.launched).toEqual([]);
    replica.shards.isHeld = true;
    await replica.invoker.acquired([SHARD]);
    expect(replica.launcher.launched.map(({ urn }) => urn)).toEqual([URN, URN]);
  });

  it('a replica that releases a shard refuses new calls, lets running calls end, then ends its instances', async () => {
    const replica = new Replica();
    await replica.invoker.start();
    const { result, instance } = await running(replica);
    replica.shards.isHeld = false;
    const released = replica.invoker.release([SHARD], 60_000);
    let isReleased = false;
    void released.then(() => {
      isReleased = true;
    });
    await expect(replica.invoke()).rejects.toMatchObject(ELSEWHERE);
    await settle();
    expect([isReleased, instance.isStopped]).toEqual([false, false]);
    instance.calls[0]?.finish();
    expect((await result).outcome.ok).toBe(true);
    await released;
    expect(replica.launcher.live).toEqual([]);
  });

  it('a replica that lost a shard ends its instances immediately and refuses further calls', async () => {
    const replica = new Replica();
    await replica.invoker.start();
    const { instance } = await running(replica);
    replica.shards.isHeld = false;
    replica.lease.isLost = true;
    replica.invoker.lost([SHARD]);
    await settle();
    expect(instance.isStopped).toBe(true);
    await expect(replica.invoke()).rejects.toMatchObject(ELSEWHERE);
  });

  it('a replica that slept refuses calls of a lost shard before the loss is reported', async () => {
    const replica = new Replica();
    await replica.invoker.start();
    await call(replica);
    replica.lease.isLost = true;
    await expect(replica.invoke()).rejects.toMatchObject(ELSEWHERE);
    expect(replica.invoker.refusal(URN, null)).toBeUndefined();
  });

  it('a replica that acquires a released shard again starts new instances', async () => {
    const replica = new Replica();
    await replica.invoker.start();
    await call(replica);
    replica.shards.isHeld = false;
    await replica.invoker.release([SHARD], 1000);
    replica.shards.isHeld = true;
    await replica.invoker.acquired([SHARD]);
    await call(replica);
    expect(replica.launcher.launched).toHaveLength(2);
    expect(replica.launcher.live).toHaveLength(1);
  });
});
