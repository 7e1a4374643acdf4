import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { Bed, BenchRow } from '../bed.ts';
import { SandboxFloor, type SandboxTimes } from '../floor/sandbox-floor.ts';
import { atLeast, atMost, delay, type Measurement, median, percentile } from '../measure.ts';
import { AGENT_CODE } from '../rookery.ts';
import { dockerRunMs } from './docker-run.ts';

const EVENT = { name: 'Ada' };
/**
 * Pause between two creates in milliseconds, as a person makes. The server prepares its next worker in this
 * time.
 */
const PAUSE_MS = 20;
/** Largest ratio of a create and of a delete to the floor, at the median. */
const CREATE_RATIO = 0.56;
const DELETE_RATIO = 3.3;

/**
 * Measures the time from a create to the first result of new code, and the delete. Creates run one at a time,
 * in turn with the floor: a fork of a warm interpreter into a sandbox, without a service.
 */
export const createToResult: BenchRow = {
  name: 'create',
  async measure(bed: Bed): Promise<readonly Measurement[]> {
    const rookery = await bed.rookery();
    const floor = await SandboxFloor.tryStart(bed.python.path);
    const count = bed.isQuick ? 30 : 200;
    const createMs: number[] = [];
    const totalMs: number[] = [];
    const deleteMs: number[] = [];
    const floorMs: SandboxTimes[] = [];
    try {
      for (let done = -5; done < count; done += 1) {
        const startedAt = performance.now();
        const id = await rookery.create();
        const createdAt = performance.now();
        await rookery.invoke(id, EVENT);
        const answeredAt = performance.now();
        await rookery.deleteAll([id]);
        const deletedAt = performance.now();
        await delay(PAUSE_MS);
        const floorTimes = await floor?.time(AGENT_CODE, EVENT);
        await delay(PAUSE_MS);
        if (done < 0) continue;
        if (floorTimes !== undefined) floorMs.push(floorTimes);
        createMs.push(createdAt - startedAt);
        totalMs.push(answeredAt - startedAt);
        deleteMs.push(deletedAt - answeredAt);
      }
    } finally {
      await floor?.stop();
    }
    bed.raw.create = { createMs, totalMs, deleteMs, floorMs };
    const p50 = percentile(totalMs, 0.5);
    const rows: Measurement[] = [
      {
        what: 'create → first result, process, p50',
        value: p50,
        unit: 'ms',
        ...(floor !== null && {
          against: {
            what: 'a fork into a sandbox, without a service',
            value: median(floorMs.map(turn => turn.createMs)),
          },
        }),
        target: atMost('ratio', CREATE_RATIO),
      },
      { what: 'create → first result, process, p99', value: percentile(totalMs, 0.99), unit: 'ms' },
      { what: 'create → first result, process, max', value: Math.max(...totalMs), unit: 'ms' },
      {
        what: 'delete, process, p50',
        value: percentile(deleteMs, 0.5),
        unit: 'ms',
        ...(floor !== null && {
          against: { what: 'the end of that sandbox', value: median(floorMs.map(turn => turn.deleteMs)) },
        }),
        target: atMost('ratio', DELETE_RATIO),
      },
      { what: 'delete, process, p99', value: percentile(deleteMs, 0.99), unit: 'ms' },
    ];
    const byHand = await dockerRunMs(bed);
    if (byHand === null) return rows;
    bed.raw['docker-run'] = byHand;
    return [
      ...rows,
      {
        what: 'create → first result, process, against `docker run`, p50',
        value: p50,
        unit: 'ms',
        against: { what: '`docker run` of the same handler', value: percentile(byHand, 0.5) },
        target: atMost('ratio', 1 / 30),
      },
    ];
  },
};

const NODE_CODE = "export const handle = event => 'hello ' + event.name;";
/**
 * Longest wait for the next prepared Node.js process, in milliseconds. The service starts one after each
 * create.
 */
const NODE_PAUSE_MS = 400;

/** Measures the time from a create to the first result of new JavaScript code. */
export const createNodeToResult: BenchRow = {
  name: 'create-node',
  async measure(bed: Bed): Promise<readonly Measurement[]> {
    const rookery = await bed.rookery();
    const code = await mkdtemp(join(tmpdir(), 'rookery-bench-'));
    try {
      await writeFile(join(code, 'index.mjs'), NODE_CODE);
      const totalMs: number[] = [];
      for (let done = -3; done < (bed.isQuick ? 15 : 60); done += 1) {
        await delay(NODE_PAUSE_MS);
        const startedAt = performance.now();
        const id = await rookery.create(code, { runtime: 'nodejs', handler: 'index.handle', memory: undefined });
        await rookery.invoke(id, EVENT);
        if (done >= 0) totalMs.push(performance.now() - startedAt);
        await rookery.deleteAll([id]);
      }
      bed.raw['create-node'] = totalMs;
      const p50 = percentile(totalMs, 0.5);
      return [
        { what: 'create → first result, process, Node.js, p50', value: p50, unit: 'ms', target: atMost('value', 25) },
        { what: 'create → first result, process, Node.js, p99', value: percentile(totalMs, 0.99), unit: 'ms' },
      ];
    } finally {
      await rm(code, { recursive: true });
    }
  },
};

/** Measures the creates per second of eight callers without pauses. */
export const createRate: BenchRow = {
  name: 'creates-per-second',
  async measure(bed: Bed): Promise<readonly Measurement[]> {
    const rookery = await bed.rookery();
    const count = bed.isQuick ? 100 : 300;
    const rates: number[] = [];
    for (let round = 0; round < bed.rounds; round += 1) {
      const startedAt = performance.now();
      const ids = await rookery.createMany(count);
      rates.push(count / ((performance.now() - startedAt) / 1000));
      await rookery.deleteAll(ids);
    }
    bed.raw['creates-per-second'] = rates;
    return [
      {
        what: `creates per second, process, 8 callers, ${count} agents`,
        value: percentile(rates, 0.5),
        unit: '/s',
        target: atLeast('value', 150),
      },
    ];
  },
};
