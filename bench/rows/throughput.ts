import { type Bed, type BenchRow, interleave } from '../bed.ts';
import { load } from '../load.ts';
import { atLeast, type Measurement, median } from '../measure.ts';
import { invokePath } from '../rookery.ts';
import { BODY, RAW_FLOOR } from './warm-invoke.ts';

const CALLERS = 32;
const INSTANCES = 8;

/** Measures many callers of several agents, where the server's event loop is the limit. */
export const throughput: BenchRow = {
  name: 'throughput',
  async measure(bed: Bed): Promise<readonly Measurement[]> {
    const [floor, raw, rookery] = await Promise.all([bed.floor(INSTANCES), bed.floor(INSTANCES, 'raw'), bed.rookery()]);
    const ids = await rookery.createMany(INSTANCES);
    const many = { body: BODY, connections: CALLERS, durationMs: bed.turnMs };
    const sides = await interleave(bed, {
      floor: () => load({ ...many, url: floor.url, paths: floor.paths }),
      raw: () => load({ ...many, url: raw.url, paths: raw.paths }),
      rookery: () => load({ ...many, url: rookery.url, paths: ids.map(invokePath) }),
    });
    bed.raw.throughput = sides;
    await rookery.deleteAll(ids);
    const perSecond = (side: keyof typeof sides) =>
      median(sides[side].map(({ requests, seconds }) => requests / seconds));
    const p99 = (side: keyof typeof sides) => median(sides[side].map(result => result.p99Micros)) / 1000;
    return [
      {
        what: `warm invokes per second, ${CALLERS} callers over ${INSTANCES} agents`,
        value: perSecond('rookery'),
        unit: '/s',
        against: { what: 'floor', value: perSecond('floor') },
        target: atLeast('ratio', 1.1),
      },
      {
        what: 'the same',
        value: perSecond('rookery'),
        unit: '/s',
        against: { what: RAW_FLOOR, value: perSecond('raw') },
      },
      {
        what: 'the same, p99',
        value: p99('rookery'),
        unit: 'ms',
        against: { what: 'floor', value: p99('floor') },
      },
    ];
  },
};
