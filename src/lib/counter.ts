/** Counts per key. A key with a count of 0 takes no memory. */
export class Counter<K = string> {
  readonly #counts = new Map<K, number>();

  /** Returns 0 for a key that was never counted. */
  get(key: K): number {
    return this.#counts.get(key) ?? 0;
  }

  has(key: K): boolean {
    return this.#counts.has(key);
  }

  /** Changes the count, which never falls below 0, and returns the new one. */
  add(key: K, change = 1): number {
    const count = this.get(key) + change;
    if (count > 0) this.#counts.set(key, count);
    else this.#counts.delete(key);
    return Math.max(0, count);
  }

  clear(): void {
    this.#counts.clear();
  }
}
