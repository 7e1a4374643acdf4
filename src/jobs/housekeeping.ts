import { messageOf } from '../core/error.ts';
import type { InstanceLog } from '../instances/contract.ts';
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
  #timer: NodeJS.Timeout | undefined;
  #running: Promise<void> = Promise.resolve();
  #isClosed = false;

  constructor(options: HousekeepingOptions) {
    this.#options = options;
  }

  start(): void {
    this.#timer = setTimeout(() => {
      this.#running = this.run().finally(() => {
        if (!this.#isClosed) this.start();
      });
    }, this.#options.intervalMs).unref();
  }

  async close(): Promise<void> {
    this.#isClosed = true;
    clearTimeout(this.#timer);
    await this.#running;
  }

  /** Once. Never rejects. */
  async run(): Promise<void> {
    const { jobs, schedules, packages, environments, keepMs, keepCount, log } = this.#options;
    try {
      const bounds = { endedBeforeMs: Date.now() - keepMs, keep: keepCount };
      while (!this.#isClosed && (await jobs.dropOld(bounds))) {
        // Each round forgets a bounded number of them.
      }
      await packages.collect(key => jobs.needsPackage(key) || schedules.needsPackage(key));
      await environments.collect();
    } catch (error) {
      log.warn({ reason: messageOf(error) }, 'old jobs were not all removed; it is tried again');
    }
  }
}
