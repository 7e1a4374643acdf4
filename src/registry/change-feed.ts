import type { WriteTransaction } from '../storage/database.ts';
import { publish } from '../storage/feed.ts';

/** A change of a function, after it is stored for good. */
export interface FunctionChange {
  /** `elsewhere`: another replica did one of the others. */
  readonly kind: 'registered' | 'updated' | 'published' | 'deleted' | 'reserved' | 'elsewhere';
  readonly tenant: string;
  readonly name: string;
  /** The version that it happened to; null: to every version. */
  readonly version: string | null;
  /** False: it is known that nothing of it keeps instances without a call, so that nobody has to look. */
  readonly mayKeepInstances: boolean;
}

/** May not throw, and is to be quick: the caller of the change waits for it. */
export type ChangeListener = (change: FunctionChange) => void;

/** Under which replicas tell each other of functions that changed. */
export const TOPIC_FUNCTIONS = 'functions';

/** Tells the other replicas of a change with its commit: the last thing that a write operation does. */
export function publishChange(transaction: WriteTransaction, tenant: string, name: string): Promise<void> {
  return publish(transaction, TOPIC_FUNCTIONS, `${tenant} ${name}`);
}

/** Tells everyone who asked, in the order of the changes of one function. */
export class ChangeFeed {
  readonly #listeners = new Set<ChangeListener>();
  readonly #onUnknown = new Set<() => void>();

  /** `key` as `publishChange` wrote it; null: any function may have changed. */
  changedElsewhere(key: string | null): void {
    if (key === null) {
      for (const listener of this.#onUnknown) listener();
      return;
    }
    const [tenant = '', name = ''] = key.split(' ');
    this.emit({ kind: 'elsewhere', tenant, name, version: null, mayKeepInstances: true });
  }

  /** Calls `listener` when any function may have changed. The returned function ends it. */
  onUnknown(listener: () => void): () => void {
    this.#onUnknown.add(listener);
    return () => void this.#onUnknown.delete(listener);
  }

  /** The returned function ends it. */
  onChange(listener: ChangeListener): () => void {
    this.#listeners.add(listener);
    return () => void this.#listeners.delete(listener);
  }

  emit(change: FunctionChange): void {
    for (const listener of this.#listeners) listener(change);
  }
}
