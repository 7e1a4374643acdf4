import { expect, test } from 'vitest';
import { SHARD_COUNT, SHARD_NAMES, shardOf } from './lease.ts';

test('shardOf returns the same shard for a function in every release', () => {
  expect({
    empty: shardOf(''),
    a: shardOf('a'),
    hello: shardOf('sn:cn:yrk:default:function:0@faaspy@hello'),
    other: shardOf('sn:cn:yrk:default:function:0@faaspy@hellp'),
    tenant: shardOf('sn:cn:yrk:acme:function:0@faaspy@hello'),
  }).toEqual({ empty: 'shard-25', a: 'shard-32', hello: 'shard-60', other: 'shard-48', tenant: 'shard-39' });
});

test('shardOf spreads functions over all shards', () => {
  const counts = new Map<string, number>();
  for (let index = 0; index < 6400; index++) {
    const shard = shardOf(`sn:cn:yrk:default:function:0@svc@fn-${index}`);
    counts.set(shard, (counts.get(shard) ?? 0) + 1);
  }
  expect([...counts.keys()].toSorted()).toEqual(SHARD_NAMES);
  expect(SHARD_NAMES).toHaveLength(SHARD_COUNT);
  expect(Math.max(...counts.values())).toBeLessThan(200);
  expect(Math.min(...counts.values())).toBeGreaterThan(30);
});
