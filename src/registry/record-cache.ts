import { LRUCache } from 'lru-cache';
import type { FunctionRow } from '../storage/queries/functions.ts';

export type CachedRecord = Pick<FunctionRow, 'record' | 'host_code_path'>;

const MAX_CHARS = 16 * 1024 * 1024;

/**
 * Cache of records until a change. Correct only if this process alone writes to the database.
 *
 * A change happens at an unknown moment between the start and the end of `changing`. A read in between may
 * return the old or the new record, so its result is not cached.
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

  /**
   * Runs `change`, which changes or deletes records. An insert does not need this method, because missing
   * records are not cached.
   */
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
