import { type Bed, type BenchRow, interleave } from '../bed.ts';
import { readyInstances, registerFunction } from '../functions.ts';
import { load } from '../load.ts';
import { atLeast, atMost, delay, type Measurement, median, percentile } from '../measure.ts';
import { BODY, RAW_FLOOR } from './warm-invoke.ts';

const CALLERS = 32;
const INSTANCES = 4;

/** Measures a single caller of a function with a ready instance, against the floor. */
export const functionWarm: BenchRow = {
  name: 'function-warm',
  async measure(bed: Bed): Promise<readonly Measurement[]> {
    const [floor, rookery] = await Promise.all([bed.floor(8), bed.rookery()]);
    const path = await registerFunction(rookery, bed.python.version, 'warm', { minInstance: 1 });
    const one = { body: BODY, connections: 1, durationMs: bed.turnMs };
    const sides = await interleave(bed, {
      floor: () => load({ ...one, url: floor.url, paths: ['/0'] }),
      warm: () => load({ ...one, url: rookery.url, paths: [path] }),
    });
    bed.raw['function-warm'] = sides;
    const ms = (side: keyof typeof sides, what: 'p50Micros' | 'p99Micros') =>
      median(sides[side].map(result => result[what])) / 1000;
    return (['p50Micros', 'p99Micros'] as const).map(what => ({
      what: `warm call of a function, 1 caller, ${what.slice(0, 3)}`,
      value: ms('warm', what),
      unit: 'ms',
      against: { what: 'floor', value: ms('floor', what) },
      target: atMost('ratio', what === 'p50Micros' ? 2.2 : 1.5),
    }));
  },
};

/** Path of the API of AWS Lambda that calls the function of `path`. */
function lambdaPath(path: string): string {
  const name = /0@bench@([^:]+):/.exec(path)?.[1] ?? '';
  return `/lambda/2015-03-31/functions/bench@${name}/invocations`;
}

/** Measures a single caller of a handler of AWS Lambda, against the same code in the native runtime. */
export const functionLambda: BenchRow = {
  name: 'function-lambda',
  async measure(bed: Bed): Promise<readonly Measurement[]> {
    const rookery = await bed.rookery();
    const { version } = bed.python;
    const native = await registerFunction(rookery, version, 'native', { minInstance: 1 });
    const lambda = await registerFunction(rookery, version, 'lambda', { minInstance: 1, runtime: 'lambda' });
    const one = { body: BODY, connections: 1, durationMs: bed.turnMs, url: rookery.url };
    const sides = await interleave(bed, {
      native: () => load({ ...one, paths: [native] }),
      handler: () => load({ ...one, paths: [lambda] }),
      invoke: () => load({ ...one, paths: [lambdaPath(lambda)] }),
    });
    bed.raw['function-lambda'] = sides;
    const p50Ms = (side: keyof typeof sides) => median(sides[side].map(result => result.p50Micros)) / 1000;
    const against = { what: 'native runtime', value: p50Ms('native') };
    return [
      { what: 'warm call of a Lambda handler, 1 caller, p50', value: p50Ms('handler'), unit: 'ms', against },
      { what: 'the same below /lambda', value: p50Ms('invoke'), unit: 'ms', against },
    ];
  },
};

/** Measures many callers of a function, whose calls the service distributes over its instances. */
export const functionThroughput: BenchRow = {
  name: 'function-throughput',
  async measure(bed: Bed): Promise<readonly Measurement[]> {
    const [floor, raw, rookery] = await Promise.all([bed.floor(8), bed.floor(8, 'raw'), bed.rookery()]);
    const path = await registerFunction(rookery, bed.python.version, 'many', {
      concurrentNum: CALLERS / INSTANCES,
      minInstance: INSTANCES,
      maxInstance: INSTANCES,
    });
    await ready(() => readyInstances(rookery, path), INSTANCES);
    const many = { body: BODY, connections: CALLERS, durationMs: bed.turnMs };
    const sides = await interleave(bed, {
      floor: () => load({ ...many, url: floor.url, paths: floor.paths.slice(0, INSTANCES) }),
      raw: () => load({ ...many, url: raw.url, paths: raw.paths.slice(0, INSTANCES) }),
      many: () => load({ ...many, url: rookery.url, paths: [path] }),
    });
    bed.raw['function-throughput'] = sides;
    const perSecond = (side: keyof typeof sides) =>
      median(sides[side].map(({ requests, seconds }) => requests / seconds));
    return [
      {
        what: `warm calls of a function per second, ${CALLERS} callers over ${INSTANCES} instances`,
        value: perSecond('many'),
        unit: '/s',
        against: { what: 'floor', value: perSecond('floor') },
        target: atLeast('ratio', 0.8),
      },
      {
        what: 'the same',
        value: perSecond('many'),
        unit: '/s',
        against: { what: RAW_FLOOR, value: perSecond('raw') },
      },
    ];
  },
};

/** Measures one call of a function without instances. Each call has a new function. */
export const functionColdStart: BenchRow = {
  name: 'function-cold-start',
  async measure(bed: Bed): Promise<readonly Measurement[]> {
    const rookery = await bed.rookery();
    const count = bed.isQuick ? 30 : 100;
    const paths: string[] = [];
    for (let index = 0; index < count + 3; index += 1) {
      const scale = { autoScaleConfig: { scaleDownTime: 1000 } };
      paths.push(await registerFunction(rookery, bed.python.version, `cold-${index}`, scale));
    }
    const tookMs: number[] = [];
    for (const path of paths) {
      const startedAt = performance.now();
      const response = await fetch(rookery.url + path, { method: 'POST', body: BODY });
      await response.text();
      tookMs.push(performance.now() - startedAt);
      if (response.status !== 200) throw new Error(`a cold start answered ${response.status}`);
      // Pauses as a person does. The server prepares its next worker in this time.
      await delay(40);
    }
    const counted = tookMs.slice(3);
    bed.raw['function-cold-start'] = counted;
    return [
      {
        what: 'cold start of a function: nothing runs → result, p50',
        value: percentile(counted, 0.5),
        unit: 'ms',
        target: atMost('value', 12),
      },
      { what: 'the same, p99', value: percentile(counted, 0.99), unit: 'ms' },
    ];
  },
};

const PEAK_CALLERS = 100;
const OVERLOAD_CALLERS = 500;
/** Queue limit of the function: the calls of the peak that do not run at once fit in it. */
const QUEUE = 72;
/** Pause of a refused caller: the time that `Retry-After` names, or a tenth of it. */
const HEEDING_PAUSE_MS = 1000;
const HASTY_PAUSE_MS = 100;
const MAX_CALL_MS = 5000;

/**
 * Measures five times the callers that fit.
 * The throughput must stay, other calls must be refused at once, and no successful call may take long.
 */
export const functionOverload: BenchRow = {
  name: 'function-overload',
  async measure(bed: Bed): Promise<readonly Measurement[]> {
    const rookery = await bed.rookery();
    const path = await registerFunction(rookery, bed.python.version, 'overload', {
      concurrentNum: CALLERS / INSTANCES,
      minInstance: INSTANCES,
      maxInstance: INSTANCES,
      autoScaleConfig: { burstScaleNum: QUEUE },
    });
    await ready(() => readyInstances(rookery, path), INSTANCES);
    const common = { url: rookery.url, paths: [path], body: BODY, durationMs: bed.longTurnMs };
    const overload = (refusedPauseMs: number) => () =>
      load({ ...common, connections: OVERLOAD_CALLERS, refusedPauseMs });
    const sides = await interleave(
      bed,
      {
        peak: () => load({ ...common, connections: PEAK_CALLERS, refusedPauseMs: HASTY_PAUSE_MS }),
        heeding: overload(HEEDING_PAUSE_MS),
        overload: overload(HASTY_PAUSE_MS),
      },
      bed.longTurns,
    );
    bed.raw['function-overload'] = sides;
    const goodput = (side: keyof typeof sides) =>
      median(sides[side].map(({ requests, seconds }) => requests / seconds));
    const carried = (side: 'heeding' | 'overload', which: string): Measurement => ({
      what: `function, ${OVERLOAD_CALLERS} callers who ${which}, successes per second`,
      value: goodput(side),
      unit: '/s',
      against: { what: `${PEAK_CALLERS} callers`, value: goodput('peak') },
      target: atLeast('ratio', 0.9),
    });
    return [
      carried('heeding', 'heed Retry-After'),
      carried('overload', `come again after ${HASTY_PAUSE_MS} ms`),
      {
        what: `function, ${OVERLOAD_CALLERS} callers, slowest success`,
        value: Math.max(...sides.overload.map(({ maxMicros }) => maxMicros)) / 1000,
        unit: 'ms',
        target: atMost('value', MAX_CALL_MS),
      },
      {
        what: `function, ${OVERLOAD_CALLERS} callers, p99 of refusals (429 and 503 only)`,
        value: median(sides.overload.map(result => result.refusedP99Micros ?? 0)) / 1000,
        unit: 'ms',
      },
    ];
  },
};

/** Waits until `count` returns `wanted`. Throws after 100 tries, about 5 s. */
async function ready(count: () => Promise<number>, wanted: number): Promise<void> {
  for (let tries = 0; tries < 100; tries += 1) {
    if ((await count()) === wanted) return;
    await delay(50);
  }
  throw new Error(`${wanted} instances were not ready in time`);
}
