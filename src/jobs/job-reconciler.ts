import { messageOf } from '../core/error.ts';
import { Interval } from '../lib/interval.ts';
import type { Log } from '../lib/log.ts';
import type { JobCluster } from './cluster.ts';
import type { NodeJobs } from './node-jobs.ts';
import type { JobPackages } from './packages.ts';
import type { JobSchedules } from './schedules.ts';

export interface JobReconcilerOptions {
  readonly cluster: JobCluster;
  readonly own: Pick<NodeJobs, 'reconcile'>;
  readonly schedules: Pick<JobSchedules, 'reload'>;
  readonly packages: Pick<JobPackages, 'announce'>;
  readonly intervalMs: number;
  readonly log: Log;
}

/**
 * Reads the changes of other nodes to jobs, on each notification and at regular intervals. Without these
 * reads a node would act on outdated memory.
 */
export class JobReconciler {
  readonly #options: JobReconcilerOptions;
  readonly #interval: Interval;
  #passing: Promise<void> | undefined;
  #isWanted = false;
  #epoch: number;
  #isFailing = false;

  constructor(options: JobReconcilerOptions) {
    this.#options = options;
    this.#epoch = options.cluster.epoch();
    this.#interval = new Interval(options.intervalMs, () => this.run());
  }

  start(): void {
    this.#options.cluster.onChange(() => void this.run());
    this.#interval.start();
  }

  async close(): Promise<void> {
    await this.#interval.close();
    await this.#passing;
  }

  /** Runs a pass that begins after the call. Never rejects. */
  run(): Promise<void> {
    this.#isWanted = true;
    this.#passing ??= this.#reconcile().finally(() => {
      this.#passing = undefined;
    });
    return this.#passing;
  }

  async #reconcile(): Promise<void> {
    const { cluster, own, schedules, packages, log } = this.#options;
    while (this.#isWanted && !this.#interval.isClosed) {
      this.#isWanted = false;
      try {
        const epoch = cluster.epoch();
        // The node was considered dead, so the records of its packages were removed.
        if (epoch !== this.#epoch) await packages.announce();
        this.#epoch = epoch;
        await own.reconcile();
        await schedules.reload();
        this.#isFailing = false;
      } catch (error) {
        if (!this.#isFailing)
          log.warn({ reason: messageOf(error) }, 'cannot read job changes of other replicas; retrying');
        this.#isFailing = true;
      }
    }
  }
}
