import type { Bed, BenchRow } from '../bed.ts';
import { delay, type Measurement, percentile } from '../measure.ts';

const EVENT = { name: 'Ada' };
/** Pause between two creates in milliseconds, equal to the row `create`. */
const PAUSE_MS = 20;
/** Name of the time outside of the service: connections, parsing, and the transfer of the answer. */
const OUTSIDE = 'outside';
const FIRST_CALL = 'first call';

/**
 * Measures each stage of a create and of a delete with `Server-Timing`.
 * The rest of the client's time is reported as one more stage.
 */
export const createStages: BenchRow = {
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

/** Times of a create or a delete, in milliseconds by stage. */
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

  /** Adds the stages of `Server-Timing`, and the rest of the `seenMs` that the client measured. */
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

/** Parses `http;dur=0.412, checks;dur=0.208` to names and milliseconds. Throws if the header is malformed. */
function readTiming(timing: string): [name: string, ms: number][] {
  return timing.split(', ').map(stage => {
    const [name = '', ms = ''] = stage.split(';dur=');
    if (!Number.isFinite(Number(ms)) || ms === '') throw new Error(`not a Server-Timing: ${timing}`);
    return [name, Number(ms)];
  });
}
