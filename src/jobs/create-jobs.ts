import { failedPrecondition, messageOf, unavailable } from '../core/error.ts';
import type { JobResources } from '../core/job.ts';
import type { InstanceLog } from '../instances/contract.ts';
import type { Instances } from '../instances/instances.ts';
import type { Ledger } from '../instances/ledger.ts';
import type { SandboxRules } from '../instances/sandbox-spec.ts';
import type { Removals } from '../lib/removals.ts';
import type { SandboxDriver } from '../sandbox/driver.ts';
import type { Database } from '../storage/database.ts';
import type { DurableWrites } from '../storage/durable.ts';
import type { UnpackLimits } from '../storage/unpack.ts';
import { Housekeeping } from './housekeeping.ts';
import { JobChanges } from './job-changes.ts';
import { JobFiles, type JobFilesOptions } from './job-files.ts';
import { JobLogs } from './job-logs.ts';
import type { JobMetrics } from './job-metrics.ts';
import { JobRunner } from './job-runner.ts';
import { sizeOfSandbox } from './job-sandbox.ts';
import { Jobs, type JobsLeft } from './jobs.ts';
import { Packages } from './packages.ts';
import { JobPaths } from './paths.ts';
import { type JobPython, provePython } from './python.ts';
import { PythonEnvironments } from './python-environments.ts';
import { JobQueue, type QueueLimits } from './queue.ts';
import { JobSchedules } from './schedules.ts';

export interface JobServiceOptions {
  readonly database: Database;
  readonly writes: DurableWrites;
  readonly instances: Instances;
  readonly ledger: Ledger;
  /** Of the process sandbox. */
  readonly driver: () => Promise<SandboxDriver>;
  readonly dataDir: string;
  readonly removals: Removals;
  readonly nodeId: string;
  /** `sys.executable` of the interpreter that is `python` in jobs. Rejects when there is none. */
  readonly python: () => Promise<string>;
  /** null: jobs may not name paths of the host. */
  readonly openHostPath: JobFilesOptions['openHostPath'];
  readonly sandbox: SandboxRules;
  readonly environment: Readonly<Record<string, string>>;
  /** What pip gets beside it: how it reaches its index from this machine. */
  readonly pipEnvironment: Readonly<Record<string, string>>;
  readonly cpuMillis: number;
  readonly memoryMb: number;
  readonly limits: QueueLimits;
  readonly maxOpen: number;
  readonly maxOpenPerTenant: number;
  readonly maxPackageBytes: number;
  readonly unpack: UnpackLimits;
  readonly startTimeoutMs: number;
  readonly setupTimeoutMs: number;
  readonly stopGraceMs: number;
  readonly keepMs: number;
  readonly keepCount: number;
  readonly metrics: JobMetrics;
  readonly log: InstanceLog;
}

/** Everything about jobs that an HTTP entry needs. */
export interface JobService {
  readonly jobs: Jobs;
  readonly packages: Packages;
  readonly schedules: JobSchedules;
  start(): Promise<void>;
  /** Running jobs run on; with `stopRunningMs` they are ended, within that time. */
  close(stopRunningMs: number | null): Promise<JobsLeft>;
}

/** How long an uploaded package is kept that no job needs: Ray's clients count on 10 minutes. */
const PACKAGE_KEEP_MS = 600_000;
const ENVIRONMENT_KEEP_MS = 24 * 3_600_000;
const HOUSEKEEPING_MS = 60_000;
const MAX_PACKAGES_PER_TENANT = 10_000;
const MAX_SCHEDULES_PER_TENANT = 1000;

/** Builds the parts of jobs. Nothing runs before `start`. */
export function createJobs(options: JobServiceOptions): JobService {
  const { database, writes, driver, dataDir, ledger, metrics, log } = options;
  const paths = new JobPaths(dataDir);
  const changes = new JobChanges();
  const logs = new JobLogs(paths.logs, changes, options.removals);
  const packages = new Packages({
    dataDir,
    removals: options.removals,
    maxBytes: options.maxPackageBytes,
    keepMs: PACKAGE_KEEP_MS,
    maxPackagesPerTenant: MAX_PACKAGES_PER_TENANT,
  });
  const files = new JobFiles({
    paths,
    packages,
    removals: options.removals,
    limits: options.unpack,
    openHostPath: options.openHostPath,
  });
  const rules = {
    ...options.sandbox,
    environment: options.environment,
    cpuMillis: options.cpuMillis,
    memoryMb: options.memoryMb,
  };
  const environments = new PythonEnvironments({
    paths,
    removals: options.removals,
    instances: options.instances,
    ledger,
    driver,
    rules: { ...rules, environment: { ...options.pipEnvironment, ...options.environment } },
    timeoutMs: options.setupTimeoutMs,
    keepMs: ENVIRONMENT_KEEP_MS,
  });
  const runner = new JobRunner({
    database,
    writes,
    instances: options.instances,
    driver,
    files,
    environments,
    prepare: once(async () => {
      const probe = await (await driver()).probe();
      if (!probe.available) throw probe.mayPass === true ? unavailable(probe.reason) : failedPrecondition(probe.reason);
      paths.hasMounts = probe.capabilities.mounts;
    }),
    python: orNull(async () => await provePython(await options.python(), paths), log),
    logs,
    changes,
    metrics,
    rules,
    startTimeoutMs: options.startTimeoutMs,
    stopGraceMs: options.stopGraceMs,
    log,
  });
  const sizeOf = (resources: JobResources) => ({
    ...sizeOfSandbox(resources, rules),
    processes: rules.maxProcesses,
  });
  const queue = new JobQueue(options.limits, {
    isFull: resources => !ledger.fits(sizeOf(resources)),
    take: resources => ledger.take('job', sizeOf(resources)),
    give: resources => ledger.give('job', sizeOf(resources)),
  });
  const jobs = new Jobs({
    database,
    writes,
    instances: options.instances,
    nodeId: options.nodeId,
    queue,
    runner,
    files,
    logs,
    changes,
    metrics,
    maxOpen: options.maxOpen,
    maxOpenPerTenant: options.maxOpenPerTenant,
    log,
  });
  ledger.onGiven(() => jobs.pump());
  const schedules = new JobSchedules({ database, writes, jobs, maxPerTenant: MAX_SCHEDULES_PER_TENANT, log });
  const housekeeping = new Housekeeping({
    jobs,
    schedules,
    packages,
    environments,
    keepMs: options.keepMs,
    keepCount: options.keepCount,
    intervalMs: HOUSEKEEPING_MS,
    log,
  });
  return {
    jobs,
    packages,
    schedules,
    async start() {
      await packages.start();
      await environments.start();
      await jobs.start();
      await schedules.start();
      housekeeping.start();
    },
    async close(stopRunningMs) {
      schedules.close();
      await housekeeping.close();
      return await jobs.close(stopRunningMs);
    },
  };
}

/** A step that has succeeded is not done again. */
function once<T>(work: () => Promise<T>): () => Promise<T> {
  let done: Promise<T> | undefined;
  return () => {
    done ??= work().catch((error: unknown) => {
      done = undefined;
      throw error;
    });
    return done;
  };
}

/** A machine that has no interpreter is asked again by the next job. */
function orNull(prove: () => Promise<JobPython>, log: InstanceLog): () => Promise<JobPython | null> {
  const proveOnce = once(prove);
  return () =>
    proveOnce().catch((error: unknown) => {
      log.warn({ reason: messageOf(error) }, 'jobs have no Python');
      return null;
    });
}
