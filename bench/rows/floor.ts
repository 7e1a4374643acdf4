import { type Bed, type BenchRow, interleave } from '../bed.ts';
import { load } from '../load.ts';
import { type Measurement, median } from '../measure.ts';
import { BODY, RAW_FLOOR } from './warm-invoke.ts';

/** Measures the floor alone, which shows the speed of this machine. */
export const floorAlone: BenchRow = {
  name: 'floor',
  async measure(bed: Bed): Promise<readonly Measurement[]> {
    const [floor, raw] = await Promise.all([bed.floor(8), bed.floor(8, 'raw')]);
    const one = { body: BODY, durationMs: bed.turnMs, paths: ['/0'], connections: 1 };
    const many = { body: BODY, durationMs: bed.turnMs, paths: floor.paths, connections: 32 };
    const sides = await interleave(bed, {
      one: () => load({ ...one, url: floor.url }),
      rawOne: () => load({ ...one, url: raw.url }),
      many: () => load({ ...many, url: floor.url }),
      rawMany: () => load({ ...many, url: raw.url }),
    });
    bed.raw.floor = sides;
    const p50 = (side: keyof typeof sides) => median(sides[side].map(result => result.p50Micros)) / 1000;
    const perSecond = (side: keyof typeof sides) =>
      median(sides[side].map(({ requests, seconds }) => requests / seconds));
    return [
      {
        what: 'floor, 1 caller, p50',
        value: p50('one'),
        unit: 'ms',
        against: { what: RAW_FLOOR, value: p50('rawOne') },
      },
      { what: 'floor, 1 caller, p99', value: median(sides.one.map(result => result.p99Micros)) / 1000, unit: 'ms' },
      {
        what: 'floor, 32 callers over 8 loops',
        value: perSecond('many'),
        unit: '/s',
        against: { what: RAW_FLOOR, value: perSecond('rawMany') },
      },
    ];
  },
};
