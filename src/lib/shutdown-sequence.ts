/** Runs every step, even after an earlier one has failed. Calls `failed` for each failure. */
export class ShutdownSequence {
  readonly #failed: (error: unknown) => void;
  readonly #errors: unknown[] = [];

  constructor(failed: (error: unknown) => void) {
    this.#failed = failed;
  }

  /** Returns the result of a step; undefined when it failed. Never rejects. */
  async run<T>(step: () => T | Promise<T>): Promise<T | undefined> {
    try {
      return await step();
    } catch (error) {
      this.#errors.push(error);
      this.#failed(error);
      return undefined;
    }
  }

  /** Throws the first error of the steps, if any. */
  end(): void {
    if (this.#errors.length > 0) throw this.#errors[0];
  }
}
