/**
 * Where the time of one operation goes, stage by stage. Whoever takes part says when its stage is over; a stage that others measured (the
 * inside of a sandbox) is added with its time.
 */
export class Stages {
  readonly #taken: [name: string, ms: number][] = [];
  #sinceMs: number;

  /** `sinceMs`: when the first stage began, as `performance.now` has it. */
  constructor(sinceMs = performance.now()) {
    this.#sinceMs = sinceMs;
  }

  /** The stage that ran until now is over, and the next one begins. */
  over(name: string): void {
    const nowMs = performance.now();
    this.#taken.push([name, nowMs - this.#sinceMs]);
    this.#sinceMs = nowMs;
  }

  /** The same for a stage of which somebody else has measured parts: they count under their own names, and `name` has the rest. */
  overWith(name: string, parts: Readonly<Record<string, number>>): void {
    const nowMs = performance.now();
    let restMs = nowMs - this.#sinceMs;
    const inside: [string, number][] = [];
    for (const [part, ms] of Object.entries(parts)) {
      // Clocks of others may be wrong: a budget never has more than the time that went by.
      const counted = Math.min(Math.max(0, ms), restMs);
      inside.push([part, counted]);
      restMs -= counted;
    }
    this.#taken.push([name, restMs], ...inside);
    this.#sinceMs = nowMs;
  }

  /** The value of `Server-Timing` (W3C), in milliseconds. */
  toString(): string {
    return this.#taken.map(([name, ms]) => `${name};dur=${ms.toFixed(3)}`).join(', ');
  }
}
