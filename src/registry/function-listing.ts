import { LRUCache } from 'lru-cache';
import type { FunctionFilter, FunctionStore } from '../storage/queries/functions.ts';

/** Renders a page as response bytes, from the total and the records' JSON texts. */
export type RenderPage = (total: number, records: readonly string[]) => Buffer;

interface KeptPage {
  readonly bytes: Buffer;
  readonly lastChange: number;
}

const MAX_KEPT_BYTES = 16 * 1024 * 1024;

/**
 * Cached pages of the function list. A page is cached as response bytes, until the tenant's next change. Each
 * read checks the store for a newer change, because other processes may write to it.
 */
export class FunctionListing {
  readonly #store: FunctionStore;
  readonly #render: RenderPage;
  readonly #pages = new LRUCache<string, KeptPage>({
    maxSize: MAX_KEPT_BYTES,
    sizeCalculation: (page, key) => page.bytes.length + key.length + 1,
  });

  constructor(store: FunctionStore, render: RenderPage) {
    this.#store = store;
    this.#render = render;
  }

  /** Returns a page as response bytes; `pageIndex` counts from 1. */
  async page(filter: FunctionFilter, pageIndex: number, pageSize: number): Promise<Buffer> {
    // Read before the page: a change in between makes the page newer than its mark, never older.
    const { total, lastChange } = await this.#store.totals(filter);
    const key = JSON.stringify([filter.tenant, filter.version, filter.namePart, pageIndex, pageSize]);
    const kept = this.#pages.get(key);
    if (kept?.lastChange === lastChange) return kept.bytes;
    const records = await this.#store.page(filter, pageSize, (pageIndex - 1) * pageSize);
    const found = filter.namePart === '' ? total : await this.#store.countFound(filter);
    const bytes = this.#render(found, records);
    this.#pages.set(key, { bytes, lastChange });
    return bytes;
  }
}
