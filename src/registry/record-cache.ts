import { LRUCache } from 'lru-cache';
import type { FunctionRow } from '../storage/functions.ts';

export type CachedRecord = Pick<FunctionRow, 'record' | 'host_code_path'>;

const MAX_CHARS = 16 * 1024 * 1024;

/**
 * Records that were read, while nothing changes them. Only right where this process is the only one that writes to the database.
 *
 * A change happens at some moment between the begin and the end of `changing`: what is read meanwhile may be the old or the new,
 * and is not kept.
 */
export class RecordCache {
  readonly #records = new LRUCache<string, CachedRecord>({
    maxSize: MAX_CHARS,
    sizeCalculation: ({ record }, key) => record.length + key.length + 1,
  });
  #changes = 0;
  #generation = 0;

  async read(key: string, load: () => Promise<CachedRecord | null>): Promise<CachedRecord | null> {
    const known = this.#records.get(key);
    if (known !== undefined) return known;
    const generation = this.#generation;
    const loaded = await load();
    if (loaded !== null && this.#changes === 0 && generation === this.#generation) this.#records.set(key, loaded);
    return loaded;
  }

  /** Runs `change`, which changes or deletes records; new ones need not be announced, since only what is there is kept. */
  async changing<T>(change: () => Promise<T>): Promise<T> {
    this.#changes += 1;
    this.#records.clear();
    try {
      return await change();
    } finally {
      this.#changes -= 1;
      this.#generation += 1;
    }
  }
}
