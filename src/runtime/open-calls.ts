import type { OpenCall } from './open-call.ts';

const FIRST_PLACES = 16;
const MAX_ID = 0xffff_ffff;

/**
 * The calls of a channel that are not answered, by their ids, and the ids themselves. An id has its place in an array, and ids whose place is
 * taken are passed over. No `Map`: one that lives long and changes with every call is made anew all the time, and what it was made from
 * is collected late.
 */
export class OpenCalls {
  #places: (OpenCall | undefined)[] = new Array(FIRST_PLACES).fill(undefined);
  #nextId = 1;
  #size = 0;

  get size(): number {
    return this.#size;
  }

  /** The id of the next call, which is to be added before anything else happens. `isTaken`: another call has it still. */
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

  /** Removes all; in the order in which they were added. */
  removeAll(): OpenCall[] {
    const calls = this.#places.filter(call => call !== undefined);
    this.#places.fill(undefined);
    this.#size = 0;
    // Ids begin again at some time: the one that comes next is the farthest from the one that came last.
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
