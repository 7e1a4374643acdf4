import { type Bed, type BenchRow, interleave } from '../bed.ts';
import { load } from '../load.ts';
import { atMost, type Measurement, median } from '../measure.ts';
import { invokePath } from '../rookery.ts';

export const BODY = '{"name":"Ada","numbers":[1,2,3],"note":"a small event"}';
/** Name of the floor without `node:http` in the report. */
export const RAW_FLOOR = 'floor on raw sockets';

/** Measures a single caller of an existing agent, which shows the cost of the platform itself. */
export const warmInvoke: BenchRow = {
  name: 'warm-invoke',
  async measure(bed: Bed): Promise<readonly Measurement[]> {
    const [floor, raw, open, guarded] = await Promise.all([
      bed.floor(8),
      bed.floor(8, 'raw'),
      bed.rookery(),
      bed.rookery({ withAuth: true }),
    ]);
    const [openId, guardedId] = await Promise.all([open.create(), guarded.create()]);
    const one = { body: BODY, connections: 1, durationMs: bed.turnMs };
    const sides = await interleave(bed, {
      floor: () => load({ ...one, url: floor.url, paths: ['/0'] }),
      raw: () => load({ ...one, url: raw.url, paths: ['/0'] }),
      open: () => load({ ...one, url: open.url, paths: [invokePath(openId)] }),
      guarded: () => {
        const token = guarded.token ?? '';
        return load({ ...one, url: guarded.url, paths: [invokePath(guardedId)], token });
      },
    });
    bed.raw['warm-invoke'] = sides;
    await Promise.all([open.deleteAll([openId]), guarded.deleteAll([guardedId])]);
    const ms = (side: keyof typeof sides, what: 'p50Micros' | 'p99Micros' | 'maxMicros') =>
      median(sides[side].map(result => result[what])) / 1000;
    const row = (side: 'open' | 'guarded', title: string, bound: number): Measurement[] => [
      {
        what: `${title}, p50`,
        value: ms(side, 'p50Micros'),
        unit: 'ms',
        against: { what: 'floor', value: ms('floor', 'p50Micros') },
        target: atMost('ratio', bound),
      },
      {
        what: `${title}, p50`,
        value: ms(side, 'p50Micros'),
        unit: 'ms',
        against: { what: RAW_FLOOR, value: ms('raw', 'p50Micros') },
      },
      {
        what: `${title}, p99`,
        value: ms(side, 'p99Micros'),
        unit: 'ms',
        against: { what: 'floor', value: ms('floor', 'p99Micros') },
        target: atMost('ratio', 1.5),
      },
      {
        what: `${title}, max`,
        value: ms(side, 'maxMicros'),
        unit: 'ms',
        against: { what: 'floor', value: ms('floor', 'maxMicros') },
      },
    ];
    return [
      ...row('open', 'warm invoke, 1 caller', 2),
      ...row('guarded', 'warm invoke, 1 caller, authentication on', 2.5),
    ];
  },
};
