/** Bounds of a run. A fuzzer stops at the first bound that it reaches. */
export interface FuzzOptions {
  readonly seed: number;
  readonly maxIterations: number;
  readonly maxSeconds: number;
}

export interface FuzzReport {
  readonly iterations: number;
  /** Violations of rules, each with the seed of its iteration; empty when there are none. */
  readonly faults: readonly string[];
  /** More numbers to print, for example `{ frames: 12000 }`. */
  readonly counts: Readonly<Record<string, number>>;
}

export type Fuzzer = (options: FuzzOptions) => Promise<FuzzReport>;

/** Returns every error that escaped from the code under test while `work` ran. The list must be empty. */
export async function escapesOf(work: () => Promise<void>): Promise<string[]> {
  const escapes: string[] = [];
  const onEscape = (error: unknown) =>
    escapes.push(error instanceof Error ? (error.stack ?? error.message) : String(error));
  // Vitest listens too and would blame the wrong test.
  const others = (['uncaughtException', 'unhandledRejection'] as const).map(event => {
    const listeners = process.listeners(event as 'uncaughtException');
    process.removeAllListeners(event);
    process.on(event, onEscape);
    return { event, listeners };
  });
  try {
    await work();
    // Errors of the last callbacks surface in this turn.
    await new Promise(resolve => setImmediate(resolve));
  } finally {
    for (const { event, listeners } of others) {
      process.off(event, onEscape);
      for (const listener of listeners) process.on(event, listener);
    }
  }
  return escapes;
}
