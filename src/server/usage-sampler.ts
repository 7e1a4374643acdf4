import { MEBIBYTE } from '../core/units.ts';
import type { LiveInstance } from '../instances/live-instance.ts';
import { within } from '../lib/deadline.ts';
import { Interval } from '../lib/interval.ts';
import { forEachOf } from '../lib/parallel.ts';

/** Usage of a sandbox at its newest reading. */
export interface SandboxUsage {
  /** Null at the first reading, which has nothing to compare. */
  readonly cpuMillis: number | null;
  readonly memoryMb: number;
}

interface Reading extends SandboxUsage {
  readonly epoch: number;
  readonly atMs: number;
  readonly cpuMicros: number;
}

type Sampled = Pick<LiveInstance, 'id' | 'epoch' | 'handle'> & {
  readonly driver: Pick<LiveInstance['driver'], 'stats'>;
};

export interface UsageSamplerOptions<T extends Sampled> {
  /** Returns the live instances of this process. */
  readonly live: () => readonly T[];
  /** Most instances that have a reading. */
  readonly most: number;
  readonly now?: () => number;
}

const ROUND_MS = 10_000;
/** Instances read in a round. With more, a round continues after the last one of the round before. */
const READ_AT_MOST = 64;
const READ_AT_ONCE = 4;
const READ_MS = 2000;

/** Reads CPU and memory of live sandboxes every 10 s, also without a client that requests them. */
export class UsageSampler<T extends Sampled> {
  readonly #options: UsageSamplerOptions<T>;
  readonly #now: () => number;
  readonly #readings = new Map<string, Reading>();
  readonly #rounds = new Interval(ROUND_MS, () => this.round());
  #position = 0;

  constructor(options: UsageSamplerOptions<T>) {
    this.#options = options;
    this.#now = options.now ?? (() => performance.now());
  }

  start(): void {
    this.#rounds.start();
  }

  async close(): Promise<void> {
    await this.#rounds.close();
  }

  /** Yields each live instance that has a reading, with its reading. */
  *all(): Iterable<readonly [T, SandboxUsage]> {
    for (const live of this.#options.live()) {
      const reading = this.#readings.get(live.id);
      if (reading !== undefined && reading.epoch === live.epoch) yield [live, reading];
    }
  }

  /** Reads the next instances. Never rejects. */
  async round(): Promise<void> {
    const live = this.#options.live().slice(0, this.#options.most);
    const ids = new Set(live.map(({ id }) => id));
    for (const id of this.#readings.keys()) if (!ids.has(id)) this.#readings.delete(id);
    const begin = this.#position < live.length ? this.#position : 0;
    const read = live.slice(begin, begin + READ_AT_MOST);
    this.#position = begin + read.length;
    await forEachOf(read, READ_AT_ONCE, async one => {
      if (this.#rounds.isClosed) return;
      const reading = await this.#read(one).catch(() => undefined);
      if (reading === undefined) this.#readings.delete(one.id);
      else this.#readings.set(one.id, reading);
    });
  }

  async #read({ id, epoch, driver, handle }: T): Promise<Reading> {
    const { cpuMicros, memoryBytes } = await within(driver.stats(handle), READ_MS, 'no answer');
    const atMs = this.#now();
    const before = this.#readings.get(id);
    const isComparable = before?.epoch === epoch && cpuMicros >= before.cpuMicros && atMs > before.atMs;
    return {
      epoch,
      atMs,
      cpuMicros,
      memoryMb: memoryBytes / MEBIBYTE,
      // Microseconds per millisecond are thousandths of a processor.
      cpuMillis: isComparable ? (cpuMicros - before.cpuMicros) / (atMs - before.atMs) : null,
    };
  }
}
