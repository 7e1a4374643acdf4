import { expect, test } from 'vitest';
import type { SandboxStats } from '../sandbox/driver.ts';
import { UsageSampler } from './usage-sampler.ts';

const MIB = 1024 * 1024;

function bed(count: number) {
  const state = { nowMs: 0, epoch: 1, micros: 0, read: [] as string[], fails: false };
  const stats = async (id: string): Promise<SandboxStats> => {
    state.read.push(id);
    if (state.fails) throw new Error('the sandbox does not answer');
    return { memoryBytes: 3 * MIB, cpuMicros: state.micros, processes: 1 };
  };
  const live = () =>
    Array.from({ length: count }, (_, at) => ({
      ...{ id: `i${at}`, epoch: state.epoch, handle: {} as never },
      driver: { stats: () => stats(`i${at}`) },
    }));
  const sampler = new UsageSampler({ live, most: 100, now: () => state.nowMs });
  const round = async (laterMs: number, micros: number) => {
    state.nowMs += laterMs;
    state.micros += micros;
    await sampler.round();
    return [...sampler.all()].map(([, { cpuMillis, memoryMb }]) => [cpuMillis, memoryMb]);
  };
  return { state, round };
}

test('CPU is the difference between two readings, and unknown at the first one', async () => {
  const { round } = bed(1);
  expect(await round(0, 5000)).toEqual([[null, 3]]);
  expect(await round(10_000, 2_500_000)).toEqual([[250, 3]]);
});

test('CPU is unknown at the first reading after a restart of the sandbox', async () => {
  const { state, round } = bed(1);
  await round(0, 5000);
  state.epoch = 2;
  expect(await round(10_000, 1000)).toEqual([[null, 3]]);
});

test('a sandbox that does not answer has no reading', async () => {
  const { state, round } = bed(1);
  await round(0, 5000);
  state.fails = true;
  expect(await round(10_000, 1000)).toEqual([]);
});

test('a round reads 64 sandboxes, the next round the others up to the bound', async () => {
  const { state, round } = bed(120);
  expect(await round(0, 0)).toHaveLength(64);
  expect(await round(10_000, 0)).toHaveLength(100);
  expect(new Set(state.read).size).toBe(100);
  await round(10_000, 0);
  expect(state.read.slice(100)).toEqual(Array.from({ length: 64 }, (_, at) => `i${at}`));
});
