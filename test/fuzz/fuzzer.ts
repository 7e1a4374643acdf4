/** How long a fuzzer goes on: until either bound is met. */
export interface FuzzOptions {
  readonly seed: number;
  readonly maxIterations: number;
  readonly maxSeconds: number;
}

export interface FuzzReport {
  readonly iterations: number;
  /** What broke a rule, each with the iteration's own seed; empty when nothing did. */
  readonly faults: readonly string[];
  /** More numbers for people: `{ frames: 12000 }`. */
  readonly counts: Readonly<Record<string, number>>;
}

export type Fuzzer = (options: FuzzOptions) => Promise<FuzzReport>;

/** Numbers that look random and follow from a seed (xorshift32), so that a fault can be seen again. */
export class Dice {
  #state: number;

  constructor(seed: number) {
    // Neighbouring seeds should not begin alike, and a state of 0 would stay 0.
    this.#state = Math.imul(seed ^ 0x9e37_79b9, 0x85eb_ca6b) >>> 0 || 1;
  }

  /** A whole number below `bound`, which is at most 2^32. */
  below(bound: number): number {
    let state = this.#state;
    state ^= state << 13;
    state ^= state >>> 17;
    state ^= state << 5;
    this.#state = state >>> 0;
    return Math.floor((this.#state / 0x1_0000_0000) * bound);
  }

  chance(probability: number): boolean {
    return this.below(0x1_0000_0000) < probability * 0x1_0000_0000;
  }

  pick<T>(items: readonly T[]): T {
    return items[this.below(items.length)] as T;
  }

  bytes(length: number): Buffer {
    return Buffer.from(Array.from({ length }, () => this.below(256)));
  }
}

/** Everything that escaped from the code under test while `work` ran: none of it may. */
export async function escapesOf(work: () => Promise<void>): Promise<string[]> {
  const escapes: string[] = [];
  const onEscape = (error: unknown) =>
    escapes.push(error instanceof Error ? (error.stack ?? error.message) : String(error));
  // Vitest listens too, and would blame the wrong test.
  const others = (['uncaughtException', 'unhandledRejection'] as const).map(event => {
    const listeners = process.listeners(event as 'uncaughtException');
    process.removeAllListeners(event);
    process.on(event, onEscape);
    return { event, listeners };
  });
  try {
    await work();
    // What was thrown in the last callbacks comes out now.
    await new Promise(resolve => setImmediate(resolve));
  } finally {
    for (const { event, listeners } of others) {
      process.off(event, onEscape);
      for (const listener of listeners) process.on(event, listener);
    }
  }
  return escapes;
}
