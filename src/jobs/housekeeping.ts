import { messageOf } from '../core/error.ts';
import type { InstanceLog } from '../instances/contract.ts';
import { Rounds } from '../lib/rounds.ts';
import type { Jobs } from './jobs.ts';
import type { Packages } from './packages.ts';
import type { PythonEnvironments } from './python-environments.ts';
import type { JobSchedules } from './schedules.ts';

export interface HousekeepingOptions {
  readonly jobs: Jobs;
  readonly schedules: JobSchedules;
  readonly packages: Packages;
  readonly environments: PythonEnvironments;
  /** How long jobs that are over are kept, and how many. */
  readonly keepMs: number;
  readonly keepCount: number;
  readonly intervalMs: number;
  readonly log: InstanceLog;
}

/** Removes what is too old: jobs that are over, packages and environments that nobody needs. */
export class Housekeeping {
  readonly #options: HousekeepingOptions;
  readonly #rounds: Rounds;

  constructor(options: HousekeepingOptions) {
    this.#options = options;
    this.#rounds = new Rounds(options.intervalMs, () => this.run());
  }

  start(): void {
    this.#rounds.start();
  }

  close(): Promise<void> {
    return this.#rounds.close();
  }

  /** Once. Never rejects. */
  async run(): Promise<void> {
    const { jobs, schedules, packages, environments, keepMs, keepCount, log } = this.#options;
    try {
      const bounds = { endedBeforeMs: Date.now() - keepMs, keep: keepCount };
      while (!this.#rounds.isClosed && (await jobs.dropOld(bounds))) {
        // Each round forgets a bounded number of them.
      }
      await packages.collect(key => jobs.needsPackage(key) || schedules.needsPackage(key));
      await environments.collect();
    } catch (error) {
      log.warn({ reason: messageOf(error) }, 'old jobs were not all removed; it is tried again');
    }
  }
}
