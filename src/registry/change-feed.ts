/** What happened to a function, after it is stored for good. */
export interface FunctionChange {
  readonly kind: 'registered' | 'updated' | 'published' | 'deleted' | 'reserved';
  readonly tenant: string;
  readonly name: string;
  /** The version that it happened to; null: to every version. */
  readonly version: string | null;
  /** False: it is known that nothing of it keeps instances without a call, so that nobody has to look. */
  readonly mayKeepInstances: boolean;
}

/** May not throw, and is to be quick: the caller of the change waits for it. */
export type ChangeListener = (change: FunctionChange) => void;

/** Tells everyone who asked, in the order of the changes of one function. */
export class ChangeFeed {
  readonly #listeners = new Set<ChangeListener>();

  /** The returned function ends it. */
  onChange(listener: ChangeListener): () => void {
    this.#listeners.add(listener);
    return () => void this.#listeners.delete(listener);
  }

  emit(change: FunctionChange): void {
    for (const listener of this.#listeners) listener(change);
  }
}
