import type { Bed, Row } from '../bed.ts';
import { delay, type Measurement, percentile } from '../measure.ts';

const EVENT = { name: 'Ada' };
/** As in `create`. */
const PAUSE_MS = 20;
/** What the caller sees beside what the service tells: connections, parsing, the answer on its way. */
const OUTSIDE = 'outside';
const FIRST_CALL = 'first call';

/** The budget of a create and of a delete, stage by stage: what the service answers in `Server-Timing`, and what is left of the caller's time. */
export const createStages: Row = {
  name: 'create-stages',
  async measure(bed: Bed): Promise<readonly Measurement[]> {
    const rookery = await bed.rookery();
    const count = bed.isQuick ? 30 : 200;
    const creating = new Budget();
    const deleting = new Budget();
    for (let done = -5; done < count; done += 1) {
      const startedAt = performance.now();
      const { id, timing } = await rookery.createTimed();
      const createdAt = performance.now();
      await rookery.invoke(id, EVENT);
      const answeredAt = performance.now();
      const deleteTiming = await rookery.deleteTimed(id);
      const deletedAt = performance.now();
      if (done >= 0) {
        creating.addTold(timing, createdAt - startedAt);
        creating.add(FIRST_CALL, answeredAt - createdAt);
        creating.add('all', answeredAt - startedAt);
        deleting.addTold(deleteTiming, deletedAt - answeredAt);
        deleting.add('all', deletedAt - answeredAt);
      }
      await delay(PAUSE_MS);
    }
    bed.raw['create-stages'] = creating.raw;
    bed.raw['delete-stages'] = deleting.raw;
    return [...creating.rows('create'), ...deleting.rows('delete')];
  },
};

/** Times of one operation by its stages. */
class Budget {
  readonly #stages = new Map<string, number[]>();

  get raw(): Readonly<Record<string, readonly number[]>> {
    return Object.fromEntries(this.#stages);
  }

  add(name: string, ms: number): void {
    const known = this.#stages.get(name);
    if (known === undefined) this.#stages.set(name, [ms]);
    else known.push(ms);
  }

  /** What the service tells, and what is left of the `seenMs` of the caller. */
  addTold(timing: string, seenMs: number): void {
    const told = readTiming(timing);
    for (const [name, ms] of told) this.add(name, ms);
    this.add(OUTSIDE, seenMs - told.reduce((sum, [, ms]) => sum + ms, 0));
  }

  rows(operation: string): readonly Measurement[] {
    return [...this.#stages].flatMap(([name, ms]): Measurement[] => [
      { what: `${operation}, stage ${name}, p50`, value: percentile(ms, 0.5), unit: 'ms' },
      { what: `${operation}, stage ${name}, p99`, value: percentile(ms, 0.99), unit: 'ms' },
    ]);
  }
}

/** `http;dur=0.412, checks;dur=0.208` as names and milliseconds. */
function readTiming(timing: string): [name: string, ms: number][] {
  return timing.split(', ').map(stage => {
    const [name = '', ms = ''] = stage.split(';dur=');
    if (!Number.isFinite(Number(ms)) || ms === '') throw new Error(`not a Server-Timing: ${timing}`);
    return [name, Number(ms)];
  });
}
