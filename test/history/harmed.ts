import type { Random } from '../parts/random.ts';
import type { Client } from './client.ts';

export interface Harm {
  readonly name: string;
  /** Lines of logs of its time may be missing. */
  readonly fillsDisk?: boolean;
  /** May go on after it resolved: `recovered` waits for that. */
  run(): Promise<void>;
}

/** What a history is about: a service that is done harm to while clients use it. */
export interface Harmed {
  readonly client: Client;
  /** Between two harms: time to begin work that the next one hits. */
  readonly restMs: readonly [number, number];
  /** One to be done now, `part` (0 to 1) of the history being over; null: enough is done to it at the moment. */
  harm(random: Random, part: number): Harm | null;
  /** Resolves when nothing is done to it any more, and all of it answers. */
  recovered(): Promise<void>;
  /** Ends it and everything of it, and answers what is left, a sentence each. */
  end(): Promise<readonly string[]>;
}
