import type { OpenCall } from './open-call.ts';

const FIRST_PLACES = 16;
const MAX_ID = 0xffff_ffff;

/**
 * The unanswered calls of a channel by id, and the source of the ids.
 * Each id has a slot in an array, and ids with an occupied slot are skipped. A long-lived `Map` that changes
 * with every call would be rebuilt often, and its old tables are collected late.
 */
export class OpenCalls {
  #places: (OpenCall | undefined)[] = new Array(FIRST_PLACES).fill(undefined);
  #nextId = 1;
  #size = 0;

  get size(): number {
    return this.#size;
  }

  /**
   * Returns the id of the next call, which must be added before any other operation.
   * `isTaken` is true for an id that another call still uses.
   */
  nextId(isTaken: (id: number) => boolean): number {
    if (2 * this.#size >= this.#places.length) this.#grow();
    for (;;) {
      const id = this.#nextId;
      this.#nextId = id === MAX_ID ? 1 : id + 1;
      if (this.#places[this.#placeOf(id)] === undefined && !isTaken(id)) return id;
    }
  }

  add(call: OpenCall): void {
    this.#places[this.#placeOf(call.id)] = call;
    this.#size += 1;
  }

  get(id: number): OpenCall | undefined {
    const call = this.#places[this.#placeOf(id)];
    return call?.id === id ? call : undefined;
  }

  remove({ id }: OpenCall): void {
    this.#places[this.#placeOf(id)] = undefined;
    this.#size -= 1;
  }

  /** Removes all calls, and returns them in the order in which they were added. */
  removeAll(): OpenCall[] {
    const calls = this.#places.filter(call => call !== undefined);
    this.#places.fill(undefined);
    this.#size = 0;
    // Ids wrap around, so the order is the distance from the next id: the oldest call has the smallest.
    return calls.sort((one, other) => ((one.id - this.#nextId) >>> 0) - ((other.id - this.#nextId) >>> 0));
  }

  #placeOf(id: number): number {
    return id & (this.#places.length - 1);
  }

  #grow(): void {
    const calls = this.#places;
    this.#places = new Array(2 * calls.length).fill(undefined);
    for (const call of calls) if (call !== undefined) this.#places[this.#placeOf(call.id)] = call;
  }
}
