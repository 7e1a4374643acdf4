import { LRUCache } from 'lru-cache';
import type { FunctionFilter, FunctionStore } from '../storage/functions.ts';

export interface ListedFunctions {
  readonly total: number;
  /** The records of the page as a JSON array, in UTF-8. */
  readonly functions: Buffer;
}

const MAX_KEPT_BYTES = 16 * 1024 * 1024;

/**
 * Pages of the function list. A page that was read is kept as the bytes that are answered, and is good until the tenant's next
 * change, for which the store is asked each time: another process may share it.
 */
export class FunctionListing {
  readonly #store: FunctionStore;
  readonly #pages = new LRUCache<string, ListedFunctions & { readonly lastChange: number }>({
    maxSize: MAX_KEPT_BYTES,
    sizeCalculation: (page, key) => page.functions.length + key.length + 1,
  });

  constructor(store: FunctionStore) {
    this.#store = store;
  }

  async page(filter: FunctionFilter, pageIndex: number, pageSize: number): Promise<ListedFunctions> {
    // Read before the page: a change in between makes the page newer than its mark, never older.
    const { total, lastChange } = await this.#store.totals(filter);
    const key = JSON.stringify([filter.tenant, filter.version, filter.namePart, pageIndex, pageSize]);
    const kept = this.#pages.get(key);
    if (kept?.lastChange === lastChange) return kept;
    const records = await this.#store.page(filter, pageSize, (pageIndex - 1) * pageSize);
    const page = {
      total: filter.namePart === '' ? total : await this.#store.countFound(filter),
      functions: Buffer.from(`[${records.join(',')}]`),
      lastChange,
    };
    this.#pages.set(key, page);
    return page;
  }
}
