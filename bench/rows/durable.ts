import type { Bed, BenchRow } from '../bed.ts';
import { atLeast, atMost, delay, type Measurement, median, percentile } from '../measure.ts';
import { AGENT_CODE, type Rookery } from '../rookery.ts';

const SMALL = 1024;
const LARGE = 64 * 1024;
/** Pause in milliseconds after each start, in which the service prepares its next worker. */
const PAUSE_MS = 20;
const CALLERS = 8;
const KEEP = { handler: 'handler.keep' };
/** Such agents sleep on request only, so that each sleep is one that is measured. */
const DURABLE = { durable: { sleep_after_seconds: 0 } };

/** Measures durable agents beside agents that are not durable: calls, sleeps and wakes. */
export const durable: BenchRow = {
  name: 'durable',
  async measure(bed: Bed): Promise<readonly Measurement[]> {
    const rookery = await bed.rookery();
    const small = await wakes(rookery, SMALL, bed.isQuick ? 20 : 150);
    const large = await wakes(rookery, LARGE, bed.isQuick ? 20 : 150);
    const calls = await callsOf(rookery, bed.isQuick ? 200 : 2000);
    const rate = await rates(rookery, bed.isQuick ? 40 : 200);
    bed.raw.durable = { small, large, calls, rate };
    return [
      ...wakeRows('1 KiB', small, 12, 30),
      ...wakeRows('64 KiB', large, 15, 35),
      ...callRows(calls),
      rateRow(rate),
    ];
  },
};

/** Times in milliseconds of agents that wake and sleep, in turn with agents that are created and deleted. */
interface Wakes {
  readonly wakeMs: readonly number[];
  readonly sleepMs: readonly number[];
  readonly createMs: readonly number[];
}

async function wakes(rookery: Rookery, bytes: number, count: number): Promise<Wakes> {
  const [wakeMs, sleepMs, createMs]: [number[], number[], number[]] = [[], [], []];
  const id = await newDurable(rookery, bytes);
  for (let done = -5; done < count; done += 1) {
    const sleep = await timed(() => rookery.sleep(id));
    await delay(PAUSE_MS);
    const wake = await timed(() => rookery.invoke(id, 0));
    await delay(PAUSE_MS);
    let plain = '';
    const create = await timed(async () => {
      plain = await rookery.create();
      await rookery.invoke(plain, 0);
    });
    await rookery.deleteAll([plain]);
    await delay(PAUSE_MS);
    if (done < 0) continue;
    wakeMs.push(wake);
    sleepMs.push(sleep);
    createMs.push(create);
  }
  await rookery.deleteAll([id]);
  return { wakeMs, sleepMs, createMs };
}

function wakeRows(size: string, { wakeMs, sleepMs, createMs }: Wakes, p50: number, p99: number): Measurement[] {
  const row = (what: string, of: readonly number[], share: number, bound: number): Measurement => ({
    ...{ what: `${what} with ${size} of state, ${share === 0.5 ? 'p50' : 'p99'}`, value: percentile(of, share) },
    ...{ unit: 'ms', against: { what: 'create and first call', value: percentile(createMs, share) } },
    target: atMost('value', bound),
  });
  return [
    row('wake by a call → answer', wakeMs, 0.5, p50),
    row('wake by a call → answer', wakeMs, 0.99, p99),
    row('sleep on request', sleepMs, 0.5, 15),
  ];
}

/** Medians of calls in milliseconds, by what they write. */
interface Calls {
  readonly plain: number;
  readonly nothing: number;
  readonly small: number;
  readonly large: number;
}

async function callsOf(rookery: Rookery, count: number): Promise<Calls> {
  const plain = await rookery.create();
  const small = await newDurable(rookery, SMALL);
  const large = await newDurable(rookery, LARGE);
  const sides = { plain: [plain, 0], nothing: [small, 0], small: [small, SMALL], large: [large, LARGE] } as const;
  const times: Record<keyof Calls, number[]> = { plain: [], nothing: [], small: [], large: [] };
  for (let done = 0; done < count; done += 1) {
    // In random order, because a call after a large save is slower.
    const order = (Object.keys(sides) as (keyof Calls)[]).map(side => ({ side, at: Math.random() }));
    for (const { side } of order.sort((a, b) => a.at - b.at)) {
      const [id, bytes] = sides[side];
      times[side].push(await timed(() => rookery.invoke(id, bytes)));
    }
  }
  await rookery.deleteAll([plain, small, large]);
  return {
    ...{ plain: median(times.plain), nothing: median(times.nothing) },
    ...{ small: median(times.small), large: median(times.large) },
  };
}

function callRows({ plain, nothing, small, large }: Calls): Measurement[] {
  return [
    {
      ...{ what: 'call of a durable agent that changes nothing, p50', value: nothing, unit: 'ms' },
      against: { what: 'agent that is not durable', value: plain },
      target: atMost('ratio', 1.05),
    },
    {
      ...{ what: 'added to a call that changes 1 KiB, p50', value: small - plain, unit: 'ms' },
      target: atMost('value', 0.4),
    },
    {
      ...{ what: 'added to a call that changes 64 KiB, p50', value: large - plain, unit: 'ms' },
      target: atMost('value', 2),
    },
  ];
}

/** Operations per second of eight callers. */
interface Rates {
  readonly wakes: number;
  readonly creates: number;
}

async function rates(rookery: Rookery, count: number): Promise<Rates> {
  const ids: string[] = [];
  for (let made = 0; made < count; made++) ids.push(await newDurable(rookery, SMALL));
  for (const id of ids) await rookery.sleep(id);
  const left = [...ids];
  const caller = async () => {
    for (let id = left.pop(); id !== undefined; id = left.pop()) await rookery.invoke(id, 0);
  };
  const wakeMs = await timed(() => Promise.all(Array.from({ length: CALLERS }, caller)));
  await rookery.deleteAll(ids);
  let plain: readonly string[] = [];
  const createMs = await timed(async () => {
    plain = await rookery.createMany(count, CALLERS);
  });
  await rookery.deleteAll(plain);
  return { wakes: (count * 1000) / wakeMs, creates: (count * 1000) / createMs };
}

function rateRow({ wakes: perSecond, creates }: Rates): Measurement {
  return {
    ...{ what: 'wakes per second, 8 callers', value: perSecond, unit: '/s' },
    against: { what: 'creates', value: creates },
    target: atLeast('ratio', 0.9),
  };
}

/** Creates a durable agent whose state has about `bytes`. */
async function newDurable(rookery: Rookery, bytes: number): Promise<string> {
  const { id } = await rookery.createTimed(AGENT_CODE, KEEP, DURABLE);
  await rookery.invoke(id, bytes);
  return id;
}

async function timed(work: () => Promise<unknown>): Promise<number> {
  const startedAt = performance.now();
  await work();
  return performance.now() - startedAt;
}
