/** Steps that are all tried, also when one before them has failed. `failed` hears of each failure. */
export class Steps {
  readonly #failed: (error: unknown) => void;
  readonly #errors: unknown[] = [];

  constructor(failed: (error: unknown) => void) {
    this.#failed = failed;
  }

  /** What the step gives; undefined when it failed. Never rejects. */
  async take<T>(step: () => T | Promise<T>): Promise<T | undefined> {
    try {
      return await step();
    } catch (error) {
      this.#errors.push(error);
      this.#failed(error);
      return undefined;
    }
  }

  /** Fails with what failed first. */
  end(): void {
    if (this.#errors.length > 0) throw this.#errors[0];
  }
}
