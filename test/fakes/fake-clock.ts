import type { Clock } from '../../src/functions/policy.ts';

/** Clock that advances only when a test advances it. */
export class FakeClock implements Clock {
  #now = 0;
  #timers: { atMs: number; fire: () => void }[] = [];

  now(): number {
    return this.#now;
  }

  after(ms: number, fire: () => void): () => void {
    const timer = { atMs: this.#now + ms, fire };
    this.#timers.push(timer);
    return () => {
      this.#timers = this.#timers.filter(other => other !== timer);
    };
  }

  async advance(ms: number): Promise<void> {
    const end = this.#now + ms;
    for (let steps = 0; steps < 10_000; steps++) {
      await settle();
      const next = this.#timers.filter(timer => timer.atMs <= end).sort((a, b) => a.atMs - b.atMs)[0];
      if (!next) break;
      this.#timers = this.#timers.filter(timer => timer !== next);
      this.#now = Math.max(this.#now, next.atMs);
      next.fire();
    }
    this.#now = end;
    await settle();
  }

  get pending(): number {
    return this.#timers.length;
  }
}

/** Runs all callbacks of promises that are resolved. */
export async function settle(): Promise<void> {
  for (let turn = 0; turn < 50; turn++) await Promise.resolve();
}
