import { LRUCache } from 'lru-cache';
import type { FunctionRow } from '../storage/functions.ts';

export type CachedRecord = Pick<FunctionRow, 'record' | 'host_code_path'>;

const MAX_CHARS = 16 * 1024 * 1024;

/**
 * Records that were read, while nothing changes. Only right where this process is the only one that writes to the database.
 *
 * `changing` is called inside the transaction of a change, which no query of a reader can overtake: who reads afterwards reads the
 * change, and who read before it may no longer keep what was read.
 */
export class RecordCache {
  readonly #records = new LRUCache<string, CachedRecord>({
    maxSize: MAX_CHARS,
    sizeCalculation: ({ record }, key) => record.length + key.length + 1,
  });
  #generation = 0;

  async read(key: string, load: () => Promise<CachedRecord | null>): Promise<CachedRecord | null> {
    const known = this.#records.get(key);
    if (known !== undefined) return known;
    const generation = this.#generation;
    const loaded = await load();
    if (loaded !== null && generation === this.#generation) this.#records.set(key, loaded);
    return loaded;
  }

  changing(): void {
    this.#generation += 1;
    this.#records.clear();
  }
}
