import type { Random } from '../parts/random.ts';
import type { Client } from './client.ts';

export interface Harm {
  readonly name: string;
  /** True if lines may be missing from logs of that time. */
  readonly fillsDisk?: boolean;
  /** Injects the fault. Its effect may outlast the promise; `recovered` waits for the end. */
  run(): Promise<void>;
}

/** A service that gets faults while clients use it. */
export interface Harmed {
  readonly client: Client;
  /** Bounds of the pause between two faults. New work begins in the pause, and the next fault hits it. */
  readonly restMs: readonly [number, number];
  /**
   * Returns the next fault, or null while enough faults are active. `part` (0 to 1) is the elapsed part of
   * the history.
   */
  harm(random: Random, part: number): Harm | null;
  /** Resolves when no fault is active and every replica answers. */
  recovered(): Promise<void>;
  /** Stops the service with everything that belongs to it. Returns a sentence for each thing that remains. */
  end(): Promise<readonly string[]>;
}
