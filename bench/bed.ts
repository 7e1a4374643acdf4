import type { Interpreter } from '../src/sandbox/host/interpreters.ts';
import { Floor, type FloorKind } from './floor/floor.ts';
import type { LoadResult } from './load.ts';
import type { Measurement } from './measure.ts';
import { Rookery, type RookeryOptions } from './rookery.ts';

/** One row of the bench: something that the design promises, with a name for `--only`. */
export interface Row {
  readonly name: string;
  /** Fails when this machine cannot measure it: the text is shown instead of numbers. */
  measure(bed: Bed): Promise<readonly Measurement[]>;
}

/** Thrown by a row that this machine has not the means for. */
export class NotHere extends Error {}

/** What the rows share: how long to measure, and the floors and servers, which start on first use and end together. */
export class Bed {
  readonly python: Interpreter;
  readonly isQuick: boolean;
  /** How often a row that is no ratio is measured. */
  readonly rounds: number;
  /** Turns of sides whose callers wait for up to a second: longer ones, and fewer. */
  readonly longTurns: number;
  readonly longTurnMs: number;
  /** How often the sides of a ratio take turns: short ones and many, since the speed of a machine drifts. */
  readonly turns: number;
  readonly turnMs = 1000;
  /** Raw numbers, for the JSON file. */
  readonly raw: Record<string, unknown> = {};
  /** Flags of node for each server that is measured: its profiler. */
  readonly nodeArgs: readonly string[];
  readonly #floors = new Map<string, Promise<Floor>>();
  readonly #servers = new Map<string, Promise<Rookery>>();

  /** `profileDir`: where each server writes a CPU profile of itself; `''` for none. */
  constructor(options: { python: Interpreter; isQuick: boolean; rounds: number; profileDir: string }) {
    this.python = options.python;
    this.isQuick = options.isQuick;
    this.rounds = options.rounds;
    this.longTurns = options.isQuick ? options.rounds : 2 * options.rounds;
    this.longTurnMs = options.isQuick ? 1000 : 3000;
    this.turns = options.isQuick ? options.rounds : 3 * options.rounds;
    this.nodeArgs = options.profileDir === '' ? [] : ['--cpu-prof', '--cpu-prof-dir', options.profileDir];
  }

  floor(loops: number, kind: FloorKind = 'http'): Promise<Floor> {
    return this.#once(this.#floors, `${kind} ${loops}`, () => Floor.start(this.python.path, loops, kind));
  }

  rookery(options: RookeryOptions = {}): Promise<Rookery> {
    return this.#once(this.#servers, JSON.stringify(options), () =>
      Rookery.start(this.python, { ...options, nodeArgs: this.nodeArgs }),
    );
  }

  async close(): Promise<void> {
    const floors = await Promise.allSettled(this.#floors.values());
    const servers = await Promise.allSettled(this.#servers.values());
    const endings = [
      ...floors.map(floor => (floor.status === 'fulfilled' ? floor.value.stop() : undefined)),
      ...servers.map(server => (server.status === 'fulfilled' ? server.value.remove() : undefined)),
    ];
    for (const ending of await Promise.allSettled(endings)) {
      if (ending.status === 'rejected') console.error(`bench: ${String(ending.reason)}`);
    }
  }

  #once<K, V>(made: Map<K, Promise<V>>, key: K, make: () => Promise<V>): Promise<V> {
    let found = made.get(key);
    if (found === undefined) {
      found = make();
      made.set(key, found);
    }
    return found;
  }
}

/** Lets the sides take turns (A B C A B C …), so that a busy moment of the machine hits all of them; the first turns only warm up. */
export async function interleave<K extends string>(
  bed: Bed,
  sides: Readonly<Record<K, () => Promise<LoadResult>>>,
  turns = bed.turns,
): Promise<Record<K, readonly LoadResult[]>> {
  const names = Object.keys(sides) as K[];
  const results = Object.fromEntries(names.map(name => [name, [] as LoadResult[]])) as Record<K, LoadResult[]>;
  for (let turn = -1; turn < turns; turn += 1) {
    for (const name of names) {
      const result = await sides[name]();
      if (result.failed > 0) throw new Error(`${name}: ${result.failed} requests failed`);
      if (turn >= 0) results[name].push(result);
    }
  }
  return results;
}
