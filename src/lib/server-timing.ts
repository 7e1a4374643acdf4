/**
 * Measures how the time of an operation is spent, stage by stage. Each participant reports the end of its
 * stage. Parts that another program measured (inside a sandbox) are added with their times.
 */
export class ServerTiming {
  readonly #taken: [name: string, ms: number][] = [];
  #sinceMs: number;

  /** `sinceMs`: the begin of the first stage, on the clock of `performance.now`. */
  constructor(sinceMs = performance.now()) {
    this.#sinceMs = sinceMs;
  }

  /** Ends the current stage under this name and begins the next one. */
  end(name: string): void {
    const nowMs = performance.now();
    this.#taken.push([name, nowMs - this.#sinceMs]);
    this.#sinceMs = nowMs;
  }

  /**
   * Ends a stage in which another program measured parts. Each part counts under its own name, and `name`
   * gets the rest.
   */
  endWith(name: string, parts: Readonly<Record<string, number>>): void {
    const nowMs = performance.now();
    let restMs = nowMs - this.#sinceMs;
    const inside: [string, number][] = [];
    for (const [part, ms] of Object.entries(parts)) {
      // Other clocks may be wrong: the parts never exceed the elapsed time.
      const counted = Math.min(Math.max(0, ms), restMs);
      inside.push([part, counted]);
      restMs -= counted;
    }
    this.#taken.push([name, restMs], ...inside);
    this.#sinceMs = nowMs;
  }

  /** Returns the value of `Server-Timing` (W3C), in milliseconds. */
  toString(): string {
    return this.#taken.map(([name, ms]) => `${name};dur=${ms.toFixed(3)}`).join(', ');
  }
}
