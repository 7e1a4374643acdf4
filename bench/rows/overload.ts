import { type Bed, type BenchRow, interleave } from '../bed.ts';
import { load } from '../load.ts';
import { atLeast, type Measurement, median } from '../measure.ts';
import { invokePath } from '../rookery.ts';
import { BODY } from './warm-invoke.ts';

const INSTANCES = 8;
const PEAK_CALLERS = 100;
const OVERLOAD_CALLERS = 500;
/** Limit of waiting calls per agent. 100 callers fit, and 500 do not. */
const MAX_WAITING = 16;
/** Pause of a refused caller in milliseconds, much shorter than `Retry-After` asks for. */
const REFUSED_PAUSE_MS = 100;

/**
 * Measures five times the callers that fit. The throughput must stay, and other calls must be refused at
 * once.
 */
export const overload: BenchRow = {
  name: 'overload',
  async measure(bed: Bed): Promise<readonly Measurement[]> {
    const rookery = await bed.rookery({ settings: [`maxWaitingCalls=${MAX_WAITING}`] });
    const ids = await rookery.createMany(INSTANCES);
    const common = {
      url: rookery.url,
      paths: ids.map(invokePath),
      body: BODY,
      durationMs: bed.longTurnMs,
      refusedPauseMs: REFUSED_PAUSE_MS,
    };
    const sides = await interleave(
      bed,
      {
        peak: () => load({ ...common, connections: PEAK_CALLERS }),
        overload: () => load({ ...common, connections: OVERLOAD_CALLERS }),
      },
      bed.longTurns,
    );
    bed.raw.overload = sides;
    await rookery.deleteAll(ids);
    const goodput = (side: keyof typeof sides) =>
      median(sides[side].map(({ requests, seconds }) => requests / seconds));
    const p99 = (side: keyof typeof sides) => median(sides[side].map(result => result.p99Micros)) / 1000;
    const refusals = sides.overload.map(result => result.refused / result.seconds);
    const refusedMs = median(sides.overload.map(result => result.refusedP99Micros ?? 0)) / 1000;
    return [
      {
        what: `${OVERLOAD_CALLERS} callers, successes per second`,
        value: goodput('overload'),
        unit: '/s',
        against: { what: `${PEAK_CALLERS} callers`, value: goodput('peak') },
        target: atLeast('ratio', 0.9),
      },
      {
        what: `${OVERLOAD_CALLERS} callers, p99 of successes`,
        value: p99('overload'),
        unit: 'ms',
        against: { what: `${PEAK_CALLERS} callers`, value: p99('peak') },
      },
      { what: `${OVERLOAD_CALLERS} callers, refusals per second`, value: median(refusals), unit: '/s' },
      { what: `${OVERLOAD_CALLERS} callers, p99 of refusals`, value: refusedMs, unit: 'ms' },
    ];
  },
};
