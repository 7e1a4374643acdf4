import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, expect, test, vi } from 'vitest';
import { CpuLatency, type CpuLatencyFiles } from './cpu-latency.ts';

const ANY = 2_000_000_000;
let directory: string;
let files: CpuLatencyFiles;

beforeEach(async () => {
  directory = await mkdtemp(join(tmpdir(), 'cpu-latency-'));
  files = { driver: join(directory, 'driver'), request: join(directory, 'request') };
  await writeFile(files.driver, 'haltpoll\n');
  await writeFile(files.request, '');
  vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout', 'performance'] });
});

afterEach(async () => {
  vi.useRealTimers();
  await rm(directory, { recursive: true });
});

/** What was asked for, one after the other, in microseconds. */
async function asked(): Promise<number[]> {
  const bytes = await readFile(files.request);
  return Array.from({ length: bytes.length / 4 }, (_, index) => bytes.readInt32LE(index * 4));
}

test('no processor sleeps for 25 ms after the last request, and nothing is asked for before and after that', async () => {
  const latency = CpuLatency.open(files, 2);
  expect(await asked()).toEqual([ANY]);
  latency?.lower();
  vi.advanceTimersByTime(20);
  latency?.lower();
  vi.advanceTimersByTime(20);
  expect(await asked()).toEqual([ANY, 0]);
  vi.advanceTimersByTime(10);
  expect(await asked()).toEqual([ANY, 0, ANY]);
  latency?.lower();
  expect(await asked()).toEqual([ANY, 0, ANY, 0]);
  latency?.close();
});

test('once closed it asks for nothing', async () => {
  const latency = CpuLatency.open(files, 2);
  latency?.lower();
  latency?.close();
  latency?.close();
  latency?.lower();
  vi.advanceTimersByTime(100);
  expect(await asked()).toEqual([ANY, 0]);
});

test('there is none where it is not known to help: other processors, many of them, nobody to ask', async () => {
  expect(CpuLatency.open(files, 17)).toBeNull();
  await writeFile(files.driver, 'intel_idle\n');
  expect(CpuLatency.open(files, 2)).toBeNull();
  await writeFile(files.driver, 'haltpoll\n');
  expect(CpuLatency.open({ ...files, request: join(directory, 'missing') }, 2)).toBeNull();
  expect(CpuLatency.open({ ...files, driver: join(directory, 'missing') }, 2)).toBeNull();
});
