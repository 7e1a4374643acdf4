/**
 * The memory that the bodies of open calls take together: of those that instances have, and of those that wait for an instance. One for a
 * process, whatever the calls are for.
 */
export class OpenCallBytes {
  readonly max: number;
  #taken = 0;

  constructor(max: number) {
    this.max = max;
  }

  get taken(): number {
    return this.#taken;
  }

  fits(bytes: number): boolean {
    return this.#taken + bytes <= this.max;
  }

  take(bytes: number): void {
    this.#taken += bytes;
  }

  give(bytes: number): void {
    this.#taken -= bytes;
  }
}
