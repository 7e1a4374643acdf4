import { type Bed, type BenchRow, interleave } from '../bed.ts';
import { type LoadResult, load } from '../load.ts';
import { atLeast, atMost, type Measurement, median } from '../measure.ts';
import { cpuSeconds } from '../processes.ts';
import { invokePath } from '../rookery.ts';
import { BODY } from './warm-invoke.ts';

const CALLERS = 32;
const INSTANCES = 8;

/** Settings of each side. `full` records every call up to 1000 per second of each agent. */
const SIDES = { off: ['history.days=0'], sampled: [], full: ['history.perSecond=1000'] } as const;
type Side = keyof typeof SIDES;

/** A turn with the service's processor time per call. Other work of the machine changes it little. */
interface CountedLoad extends LoadResult {
  readonly cpuMicros: number;
}

/** Measures what the call history costs a warm call: it is off, has its defaults, or records all calls. */
export const callHistory: BenchRow = {
  name: 'call-history',
  async measure(bed: Bed): Promise<readonly Measurement[]> {
    const sideOf = async (side: Side) => {
      const rookery = await bed.rookery({ settings: SIDES[side] });
      return { rookery, ids: await rookery.createMany(INSTANCES) };
    };
    const [off, sampled, full] = [await sideOf('off'), await sideOf('sampled'), await sideOf('full')];
    const sides = { off, sampled, full };
    const turnsOf = (connections: number, instances: number) => {
      const turn = (side: Side) => async (): Promise<CountedLoad> => {
        const { rookery, ids } = sides[side];
        const paths = ids.slice(0, instances).map(invokePath);
        const before = cpuSeconds([rookery.served.pid]);
        const result = await load({ body: BODY, connections, durationMs: bed.turnMs, url: rookery.url, paths });
        const cpuMicros = ((cpuSeconds([rookery.served.pid]) - before) * 1e6) / result.requests;
        return { ...result, cpuMicros };
      };
      return interleave(bed, { off: turn('off'), sampled: turn('sampled'), full: turn('full') });
    };
    const one = await turnsOf(1, 1);
    const many = await turnsOf(CALLERS, INSTANCES);
    bed.raw['call-history'] = { one, many };
    for (const { rookery, ids } of Object.values(sides)) await rookery.deleteAll(ids);
    const cpu = (results: readonly CountedLoad[]) => median(results.map(({ cpuMicros }) => cpuMicros));
    const p50 = (results: readonly LoadResult[]) => median(results.map(({ p50Micros }) => p50Micros)) / 1000;
    const perSecond = (results: readonly LoadResult[]) =>
      median(results.map(({ requests, seconds }) => requests / seconds));
    return (['sampled', 'full'] as const).flatMap(side => [
      {
        what: `warm invoke, 1 caller, call history ${side}, p50`,
        value: p50(one[side]),
        unit: 'ms',
        against: { what: 'history off', value: p50(one.off) },
        target: atMost('ratio', 1.03),
      },
      {
        what: `warm invokes per second, ${CALLERS} callers over ${INSTANCES} agents, call history ${side}`,
        value: perSecond(many[side]),
        unit: '/s',
        against: { what: 'history off', value: perSecond(many.off) },
        target: atLeast('ratio', 0.97),
      },
      {
        what: 'the same: processor time of the service per call',
        value: cpu(many[side]),
        unit: 'µs',
        against: { what: 'history off', value: cpu(many.off) },
      },
    ]);
  },
};
