import { failedPrecondition, messageOf, unavailable } from '../core/error.ts';
import type { JobResources } from '../core/job.ts';
import type { SecretSource } from '../core/secret.ts';
import type { InstanceLog } from '../instances/contract.ts';
import type { Instances } from '../instances/instances.ts';
import type { Ledger } from '../instances/ledger.ts';
import type { SandboxRules } from '../instances/sandbox-spec.ts';
import type { Removals } from '../lib/removals.ts';
import type { SandboxDriver } from '../sandbox/driver.ts';
import type { Database } from '../storage/database.ts';
import type { DurableWrites } from '../storage/durable.ts';
import type { ObjectStore } from '../storage/object-store.ts';
import type { UnpackLimits } from '../storage/unpack.ts';
import type { JobCluster, JobNode } from './cluster.ts';
import { Housekeeping } from './housekeeping.ts';
import { type JobChange, JobChanges } from './job-changes.ts';
import { JobFiles, type JobFilesOptions } from './job-files.ts';
import { JobLogs } from './job-logs.ts';
import { JobLookOut } from './job-look-out.ts';
import type { JobMetrics } from './job-metrics.ts';
import { JobRunner } from './job-runner.ts';
import { sizeOfSandbox } from './job-sandbox.ts';
import { Jobs } from './jobs.ts';
import { LogUploads } from './log-uploads.ts';
import { type JobsLeft, NodeJobs } from './node-jobs.ts';
import { PackagePlaces } from './package-places.ts';
import { Packages } from './packages.ts';
import { JobPaths } from './paths.ts';
import { type JobPython, provePython } from './python.ts';
import { PythonEnvironments } from './python-environments.ts';
import { JobQueue, type QueueLimits } from './queue.ts';
import { JobSchedules } from './schedules.ts';
import { StoredLogs } from './stored-logs.ts';

export interface JobServiceOptions {
  readonly database: Database;
  readonly writes: DurableWrites;
  readonly instances: Instances;
  readonly ledger: Ledger;
  /** In which jobs run. */
  readonly driver: () => Promise<SandboxDriver>;
  readonly dataDir: string;
  /** Absent: there are no secrets. */
  readonly secrets?: SecretSource;
  readonly removals: Removals;
  readonly nodeId: string;
  /** null: this is the only node of the database. */
  readonly cluster: JobCluster | null;
  /** For packages and logs; null: they stay on the node that has them. Closed with the service. */
  readonly store: ObjectStore | null;
  /** `sys.executable` of the interpreter that is `python` in jobs. Rejects when there is none. */
  readonly python: () => Promise<string>;
  /** What that driver runs: the files of this machine, or an image. */
  readonly rootfs: 'host' | 'image';
  /** null: jobs may not name paths of the host. */
  readonly openHostPath: JobFilesOptions['openHostPath'];
  readonly sandbox: SandboxRules;
  readonly environment: Readonly<Record<string, string>>;
  /** Variables for pip beside it: how it reaches its index from this machine. */
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
  /** Hears of every new state of a job, once it is written. It does not throw. */
  readonly jobChanged?: (change: JobChange) => void;
  readonly log: InstanceLog;
}

/** Everything about jobs that an HTTP entry needs. */
export interface JobService {
  readonly jobs: Jobs;
  readonly packages: Packages;
  readonly schedules: JobSchedules;
  readonly housekeeping: Housekeeping;
  start(): Promise<void>;
  /** Running jobs run on; with `stopRunningMs` they are ended, within that time. */
  close(stopRunningMs: number | null): Promise<JobsLeft | null>;
}

/** How long an uploaded package is kept that no job needs: Ray's clients count on 10 minutes. */
const PACKAGE_KEEP_MS = 600_000;
const ENVIRONMENT_KEEP_MS = 24 * 3_600_000;
const HOUSEKEEPING_MS = 60_000;
/** How soon a node finds what others left for it in its rows, when nobody wakes it. */
const LOOK_AGAIN_MS = 1_000;
const MAX_PACKAGES_PER_TENANT = 10_000;
const MAX_SCHEDULES_PER_TENANT = 1000;

/** Builds the parts of jobs. Nothing runs before `start`. */
export function createJobs(options: JobServiceOptions): JobService {
  const { database, writes, driver, dataDir, ledger, metrics, log, nodeId, cluster, store } = options;
  const node: JobNode = { id: nodeId, cluster };
  const paths = new JobPaths(dataDir);
  const changes = new JobChanges(options.jobChanged);
  const logs = new JobLogs({
    directory: paths.logs,
    changes,
    removals: options.removals,
    nodeId,
    stored: store === null ? null : new StoredLogs(store),
  });
  const uploads = new LogUploads({ database, writes, nodeId, logs, hasStore: store !== null, log });
  const isAlone = cluster === null && store === null;
  const places = isAlone
    ? null
    : new PackagePlaces({ database, writes, node, store, maxPackagesPerTenant: MAX_PACKAGES_PER_TENANT });
  const packages = new Packages({
    dataDir,
    removals: options.removals,
    maxBytes: options.maxPackageBytes,
    keepMs: PACKAGE_KEEP_MS,
    maxPackagesPerTenant: MAX_PACKAGES_PER_TENANT,
    node,
    places,
  });
  const files = new JobFiles({
    paths,
    packages,
    removals: options.removals,
    limits: options.unpack,
    openHostPath: options.openHostPath,
    takesHostDirectories: options.rootfs === 'host',
  });
  const rules = {
    ...options.sandbox,
    environment: options.environment,
    cpuMillis: options.cpuMillis,
    memoryMb: options.memoryMb,
    rootfs: options.rootfs,
  };
  const environments = new PythonEnvironments({
    paths,
    removals: options.removals,
    instances: options.instances,
    ledger,
    driver,
    rules,
    environment: { ...options.pipEnvironment, ...options.environment },
    timeoutMs: options.setupTimeoutMs,
    keepMs: ENVIRONMENT_KEEP_MS,
  });
  const runner = new JobRunner({
    database,
    writes,
    node,
    instances: options.instances,
    driver,
    files,
    environments,
    ...(options.secrets && { secrets: options.secrets }),
    prepare: once(async () => {
      const probe = await (await driver()).probe();
      if (!probe.available) throw probe.mayPass === true ? unavailable(probe.reason) : failedPrecondition(probe.reason);
      paths.hasMounts = probe.capabilities.mounts;
    }),
    // An image brings its own.
    python:
      options.rootfs === 'image'
        ? async () => null
        : orNull(async () => await provePython(await options.python(), paths), log),
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
  const shared = { database, writes, node, queue, files, packages, changes, metrics };
  const own = new NodeJobs({ ...shared, runner, uploads, log });
  ledger.onGiven(() => own.pump());
  const bounds = { maxOpen: options.maxOpen, maxOpenPerTenant: options.maxOpenPerTenant };
  const jobs = new Jobs({
    ...shared,
    instances: options.instances,
    own,
    logs,
    bounds,
    keepsSecrets: options.secrets !== undefined,
  });
  const schedules = new JobSchedules({ database, writes, node, jobs, maxPerTenant: MAX_SCHEDULES_PER_TENANT, log });
  const housekeeping = new Housekeeping({
    node,
    jobs,
    own,
    logs,
    uploads,
    places,
    schedules,
    packages,
    environments,
    keepMs: options.keepMs,
    keepCount: options.keepCount,
    intervalMs: HOUSEKEEPING_MS,
    log,
  });
  const lookOut =
    cluster === null ? null : new JobLookOut({ cluster, own, schedules, packages, intervalMs: LOOK_AGAIN_MS, log });
  return {
    jobs,
    packages,
    schedules,
    housekeeping,
    async start() {
      if (cluster !== null && store === null) log.warn({}, WITHOUT_STORE);
      await packages.start();
      await environments.start();
      await own.start();
      await logs.sweep(sequences => jobs.known(sequences));
      await schedules.start();
      housekeeping.start();
      lookOut?.start();
      void uploads.run();
    },
    async close(stopRunningMs) {
      schedules.close();
      await lookOut?.close();
      await housekeeping.close();
      const left = await own.close(stopRunningMs);
      await uploads.close();
      store?.close();
      return left;
    },
  };
}

const WITHOUT_STORE =
  'jobs.store names no object store: packages and logs of jobs stay on the replica that took them, so a job that needs a package runs where the package was uploaded, and the log of a job cannot be read while its replica is away';

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
