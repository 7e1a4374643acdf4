import type { WriteTransaction } from '../storage/database.ts';
import { publish } from '../storage/queries/feed.ts';

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
