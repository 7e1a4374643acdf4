import { type Bed, interleave, type Row } from '../bed.ts';
import { load } from '../load.ts';
import { type Measurement, median } from '../measure.ts';
import { BODY } from './warm-invoke.ts';

/** The floor alone: what this machine can do at all. */
export const floorAlone: Row = {
  name: 'floor',
  async measure(bed: Bed): Promise<readonly Measurement[]> {
    const floor = await bed.floor(8);
    const common = { url: floor.url, body: BODY, durationMs: bed.roundMs };
    const sides = await interleave(bed, {
      one: () => load({ ...common, paths: ['/0'], connections: 1 }),
      many: () => load({ ...common, paths: floor.paths, connections: 32 }),
    });
    bed.raw.floor = sides;
    return [
      { what: 'floor, 1 caller, p50', value: median(sides.one.map(result => result.p50Micros)) / 1000, unit: 'ms' },
      { what: 'floor, 1 caller, p99', value: median(sides.one.map(result => result.p99Micros)) / 1000, unit: 'ms' },
      {
        what: 'floor, 32 callers over 8 loops',
        value: median(sides.many.map(({ requests, seconds }) => requests / seconds)),
        unit: '/s',
      },
    ];
  },
};
