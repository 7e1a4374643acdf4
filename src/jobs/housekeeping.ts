import { messageOf } from '../core/error.ts';
import { packagesOf } from '../core/runtime-env.ts';
import { Interval } from '../lib/interval.ts';
import type { Log } from '../lib/log.ts';
import type { JobNode } from './cluster.ts';
import type { JobLogs } from './job-logs.ts';
import type { Jobs } from './jobs.ts';
import type { LogUploads } from './log-uploads.ts';
import type { NodeJobs } from './node-jobs.ts';
import type { PackagePlaces } from './package-places.ts';
import type { JobPackages } from './packages.ts';
import type { PythonEnvironments } from './python-environments.ts';
import type { JobSchedules } from './schedules.ts';

export interface HousekeepingOptions {
  readonly node: JobNode;
  readonly jobs: Jobs;
  readonly own: NodeJobs;
  readonly logs: JobLogs;
  readonly uploads: LogUploads;
  readonly places: PackagePlaces | null;
  readonly schedules: JobSchedules;
  readonly packages: JobPackages;
  readonly environments: PythonEnvironments;
  /** Time that ended jobs are kept, milliseconds, and their maximum number. */
  readonly keepMs: number;
  readonly keepCount: number;
  readonly intervalMs: number;
  readonly log: Log;
}

const SWEEP_MS = 3_600_000;

/**
 * Removes old jobs, packages and environments. Each node removes its own files. The node that submits for
 * schedules also removes the data that all nodes share.
 */
export class Housekeeping {
  readonly #options: HousekeepingOptions;
  readonly #interval: Interval;
  #sweptAtMs = 0;

  constructor(options: HousekeepingOptions) {
    this.#options = options;
    this.#interval = new Interval(options.intervalMs, () => this.run());
  }

  start(): void {
    this.#interval.start();
  }

  close(): Promise<void> {
    return this.#interval.close();
  }

  /** Runs one pass. Never rejects. */
  async run(): Promise<void> {
    const { node, jobs, own, uploads, schedules, packages, environments, log } = this.#options;
    try {
      if (node.cluster?.isHeld() !== false) await this.#shared();
      // Another node may have removed the jobs.
      if (node.cluster !== null) await this.#options.logs.sweep(sequences => jobs.known(sequences));
      await packages.collect(key => own.needsPackage(key) || schedules.needsPackage(key));
      await environments.collect();
      await uploads.run();
    } catch (error) {
      log.warn({ reason: messageOf(error) }, 'cannot remove all old jobs; retrying');
    }
  }

  async #shared(): Promise<void> {
    const { jobs, logs, places, packages, keepMs, keepCount } = this.#options;
    const bounds = { endedBeforeMs: Date.now() - keepMs, keep: keepCount };
    while (!this.#interval.isClosed && (await jobs.dropOld(bounds))) {
      // Each call removes a bounded number of jobs.
    }
    await places?.collect(packages.unusedBeforeMs(), () => this.#needed());
    if (Date.now() - this.#sweptAtMs < SWEEP_MS) return;
    this.#sweptAtMs = Date.now();
    await places?.sweep();
    await logs.sweepStore(sequences => jobs.known(sequences));
  }

  /** Returns the packages that open jobs of all nodes and schedules need, as `<tenant>/<name>`. */
  async #needed(): Promise<ReadonlySet<string>> {
    const { jobs, schedules } = this.#options;
    const needed = new Set(schedules.packages());
    for (const { tenant, spec } of await jobs.open()) {
      for (const name of packagesOf(spec.runtimeEnv)) needed.add(`${tenant}/${name}`);
    }
    return needed;
  }
}
