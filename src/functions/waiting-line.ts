/** Somebody in a line. The fields are those of the line. */
export interface InLine<T> {
  isInLine: boolean;
  before: T | undefined;
  behind: T | undefined;
}

/**
 * Who waits, in order; anybody may leave. No `Set`: one that lives long and changes with every call is made anew all the time, and what it
 * was made from is collected late. Who has left leads to nobody.
 */
export class WaitingLine<T extends InLine<T>> {
  #first: T | undefined;
  #last: T | undefined;
  #size = 0;

  get size(): number {
    return this.#size;
  }

  get first(): T | undefined {
    return this.#first;
  }

  join(one: T): void {
    one.isInLine = true;
    one.before = this.#last;
    if (this.#last === undefined) this.#first = one;
    else this.#last.behind = one;
    this.#last = one;
    this.#size += 1;
  }

  /** False: it is not there. */
  leave(one: T): boolean {
    if (!one.isInLine) return false;
    const { before, behind } = one;
    if (before === undefined) this.#first = behind;
    else before.behind = behind;
    if (behind === undefined) this.#last = before;
    else behind.before = before;
    one.isInLine = false;
    one.before = undefined;
    one.behind = undefined;
    this.#size -= 1;
    return true;
  }
}
