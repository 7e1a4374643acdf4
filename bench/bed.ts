import type { Interpreter } from '../src/sandbox/host/interpreters.ts';
import { Floor, type FloorKind } from './floor/floor.ts';
import type { LoadResult } from './load.ts';
import type { Measurement } from './measure.ts';
import { Rookery, type RookeryOptions } from './rookery.ts';

/** Row of the bench: a promise of the design, with a name for `--only`. */
export interface BenchRow {
  readonly name: string;
  /**
   * Measures the row. Throws NotHere if this machine cannot measure it; the report then shows the text
   * instead of numbers.
   */
  measure(bed: Bed): Promise<readonly Measurement[]>;
}

/** Error of a row that needs a program or a service which this machine lacks. */
export class NotHere extends Error {}

/**
 * State that all rows share: durations, floors and servers. Floors and servers start on first use and end
 * together.
 */
export class Bed {
  readonly python: Interpreter;
  readonly isQuick: boolean;
  /** Number of repetitions of a row that is not a ratio. */
  readonly rounds: number;
  /** Number of turns for sides whose callers wait up to a second. These turns are longer and fewer. */
  readonly longTurns: number;
  readonly longTurnMs: number;
  /**
   * Number of turns of each side of a ratio. Turns are short and many, because the speed of a machine drifts.
   */
  readonly turns: number;
  readonly turnMs = 1000;
  /** Raw numbers by row, for the JSON file. */
  readonly raw: Record<string, unknown> = {};
  /** Flags of Node.js for each measured server. They switch on its profiler. */
  readonly nodeArgs: readonly string[];
  readonly #floors = new Map<string, Promise<Floor>>();
  readonly #servers = new Map<string, Promise<Rookery>>();

  /** `profileDir` is the directory to which each server writes its CPU profile, or `''` for no profile. */
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

/**
 * Measures the sides in turn (A B C A B C …), so that a busy moment affects each side.
 * The first turn only warms up. Throws if a request fails.
 */
export async function interleave<K extends string, R extends LoadResult = LoadResult>(
  bed: Bed,
  sides: Readonly<Record<K, () => Promise<R>>>,
  turns = bed.turns,
): Promise<Record<K, readonly R[]>> {
  const names = Object.keys(sides) as K[];
  const results = Object.fromEntries(names.map(name => [name, [] as R[]])) as Record<K, R[]>;
  for (let turn = -1; turn < turns; turn += 1) {
    for (const name of names) {
      const result = await sides[name]();
      if (result.failed > 0) throw new Error(`${name}: ${result.failed} requests failed`);
      if (turn >= 0) results[name].push(result);
    }
  }
  return results;
}
