/** Lets so many begin in one turn of the event loop, first come first served: what each does then holds up others no longer than that. */
export class Turns {
  readonly #inOne: number;
  readonly #waiting: (() => void)[] = [];
  #isTurning = false;

  constructor(inOne: number) {
    this.#inOne = inOne;
  }

  /** Resolves in the turn of whoever asks. */
  async next(): Promise<void> {
    await new Promise<void>(resolve => {
      this.#waiting.push(resolve);
      if (!this.#isTurning) this.#turn();
    });
  }

  #turn(): void {
    this.#isTurning = true;
    setImmediate(() => {
      for (const begin of this.#waiting.splice(0, this.#inOne)) begin();
      this.#isTurning = false;
      if (this.#waiting.length > 0) this.#turn();
    });
  }
}
