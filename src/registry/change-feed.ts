import { LRUCache } from 'lru-cache';
import type { WriteTransaction } from '../storage/database.ts';
import { publish } from '../storage/queries/feed.ts';
import type { FunctionRow } from '../storage/queries/functions.ts';

/** Stored change of a function. */
export interface FunctionChange {
  /** Kind of the change. `elsewhere`: one of the other kinds, by another replica. */
  readonly kind: 'registered' | 'updated' | 'published' | 'deleted' | 'reserved' | 'elsewhere';
  readonly tenant: string;
  readonly name: string;
  /** Version that changed; null: every version. */
  readonly version: string | null;
  /** False if the function certainly keeps no instances without calls, so that no listener needs to check. */
  readonly mayKeepInstances: boolean;
}

/** Listener of changes. Must not throw and must be fast, because the caller of the change waits for it. */
export type ChangeListener = (change: FunctionChange) => void;

/** Topic of notifications between replicas about changed functions. */
export const TOPIC_FUNCTIONS = 'functions';

/**
 * Notifies the other replicas of a change when it is committed. Must be the last step of a write operation.
 */
export function publishChange(transaction: WriteTransaction, tenant: string, name: string): Promise<void> {
  return publish(transaction, TOPIC_FUNCTIONS, `${tenant} ${name}`);
}

/** Notifies subscribers of changes, in the order of the changes of each function. */
export class ChangeFeed {
  readonly #listeners = new Set<ChangeListener>();
  readonly #onUnknown = new Set<() => void>();

  /**
   * Handles a notification of another replica. `key` is from `publishChange`; null: any function may have
   * changed.
   */
  changedElsewhere(key: string | null): void {
    if (key === null) {
      for (const listener of this.#onUnknown) listener();
      return;
    }
    const [tenant = '', name = ''] = key.split(' ');
    this.emit({ kind: 'elsewhere', tenant, name, version: null, mayKeepInstances: true });
  }

  /**
   * Subscribes to notifications that any function may have changed. Returns the function that unsubscribes.
   */
  onUnknown(listener: () => void): () => void {
    this.#onUnknown.add(listener);
    return () => void this.#onUnknown.delete(listener);
  }

  /** Subscribes to changes. Returns the function that unsubscribes. */
  onChange(listener: ChangeListener): () => void {
    this.#listeners.add(listener);
    return () => void this.#listeners.delete(listener);
  }

  emit(change: FunctionChange): void {
    for (const listener of this.#listeners) listener(change);
  }
}

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
