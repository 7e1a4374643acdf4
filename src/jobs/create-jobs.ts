import type { UnpackLimits } from '../code/unpack.ts';
import { failedPrecondition, messageOf, unavailable } from '../core/error.ts';
import type { JobResources } from '../core/job.ts';
import type { SecretSource } from '../core/secret.ts';
import type { Instances } from '../instances/instances.ts';
import type { Ledger } from '../instances/ledger.ts';
import type { SandboxRules } from '../instances/sandbox-spec.ts';
import type { Log } from '../lib/log.ts';
import type { Removals } from '../lib/removals.ts';
import type { TenantDisk } from '../lib/tenant-disk.ts';
import type { ObjectStore } from '../object-store/object-store.ts';
import type { SandboxDriver } from '../sandbox/driver.ts';
import type { Database } from '../storage/database.ts';
import type { DurableWrites } from '../storage/writes/durable.ts';
import type { JobCluster, JobNode } from './cluster.ts';
import { Housekeeping } from './housekeeping.ts';
import { type JobChange, JobChanges } from './job-changes.ts';
import { JobFiles, type JobFilesOptions } from './job-files.ts';
import { JobLogs } from './job-logs.ts';
import { JobReconciler } from './job-reconciler.ts';
import { JobRunner } from './job-runner.ts';
import { type JobPython, type JobSandboxRules, provePython, sizeOfSandbox } from './job-sandbox.ts';
import type { JobMetrics } from './job-states.ts';
import { Jobs } from './jobs.ts';
import { LogUploads } from './log-uploads.ts';
import { type JobsLeft, NodeJobs } from './node-jobs.ts';
import { PackagePlaces } from './package-places.ts';
import { JobPackages } from './packages.ts';
import { JobPaths } from './paths.ts';
import { PythonEnvironments } from './python-environments.ts';
import { JobQueue, type QueueLimits } from './queue.ts';
import { JobSchedules } from './schedules.ts';
import { StoredLogs } from './stored-logs.ts';

export interface JobServiceOptions {
  readonly database: Database;
  readonly writes: DurableWrites;
  readonly instances: Instances;
  readonly ledger: Ledger;
  /** Driver of the sandboxes in which jobs run. */
  readonly driver: () => Promise<SandboxDriver>;
  readonly dataDir: string;
  /** Absent: no secrets exist. */
  readonly secrets?: SecretSource;
  readonly removals: Removals;
  readonly nodeId: string;
  /** null: this is the only node of the database. */
  readonly cluster: JobCluster | null;
  /** Object store for packages and logs; null: they stay on their node. Closed with the service. */
  readonly store: ObjectStore | null;
  /**
   * Returns `sys.executable` of the interpreter that is `python` in jobs. Rejects when the machine has none.
   */
  readonly python: () => Promise<string>;
  /** Root file system of the sandboxes: the files of this machine, or an image. */
  readonly rootfs: 'host' | 'image';
  /** null: jobs must not name paths of the host. */
  readonly openHostPath: JobFilesOptions['openHostPath'];
  readonly sandbox: SandboxRules;
  readonly environment: Readonly<Record<string, string>>;
  /** Additional variables for pip, with which it reaches its index from this machine. */
  readonly pipEnvironment: Readonly<Record<string, string>>;
  readonly cpuMillis: number;
  readonly memoryMb: number;
  readonly limits: QueueLimits;
  readonly maxOpen: number;
  readonly maxOpenPerTenant: number;
  readonly maxPackageBytes: number;
  readonly unpack: UnpackLimits;
  readonly disk: TenantDisk;
  /** Maximum size of a Python environment, and of all unused environments together. */
  readonly environmentLimits: { readonly maxBytes: number; readonly maxUnusedBytes: number };
  readonly startTimeoutMs: number;
  readonly setupTimeoutMs: number;
  readonly stopGraceMs: number;
  readonly keepMs: number;
  readonly keepCount: number;
  readonly metrics: JobMetrics;
  /** Called with every new state of a job after it was stored. Must not throw. */
  readonly jobChanged?: (change: JobChange) => void;
  readonly log: Log;
}

/** Parts of jobs that an HTTP entry uses. */
export interface JobService {
  readonly jobs: Jobs;
  readonly packages: JobPackages;
  readonly schedules: JobSchedules;
  readonly housekeeping: Housekeeping;
  start(): Promise<void>;
  /**
   * Closes all parts and leaves running jobs alone. With `stopRunningMs` the running jobs end within that
   * time.
   */
  close(stopRunningMs: number | null): Promise<JobsLeft | null>;
}

/** Time that an unneeded package is kept. Ray's clients rely on 10 minutes. */
const PACKAGE_KEEP_MS = 600_000;
const ENVIRONMENT_KEEP_MS = 24 * 3_600_000;
const HOUSEKEEPING_MS = 60_000;
/** Interval at which a node reads the records that other nodes changed, in addition to notifications. */
const RECONCILE_MS = 1_000;
const MAX_PACKAGES_PER_TENANT = 10_000;
const MAX_SCHEDULES_PER_TENANT = 1000;

/** Builds the parts of jobs. Nothing runs before `start`. */
export function createJobs(options: JobServiceOptions): JobService {
  const { database, writes, ledger, metrics, log, nodeId, cluster, store } = options;
  const node: JobNode = { id: nodeId, cluster };
  const paths = new JobPaths(options.dataDir);
  const rules = {
    ...options.sandbox,
    environment: options.environment,
    cpuMillis: options.cpuMillis,
    memoryMb: options.memoryMb,
    rootfs: options.rootfs,
  };
  const stored = createStoredParts(options, node, paths);
  const environments = createEnvironments(options, paths, rules);
  const runner = createRunner(options, { ...stored, node, paths, rules, environments });
  const queue = createQueue(options, rules);
  const { logs, uploads, places, packages, files, changes } = stored;
  const shared = { database, writes, node, queue, files, packages, changes, metrics };
  const own = new NodeJobs({ ...shared, runner, uploads, log });
  ledger.onRelease(() => own.pump());
  const jobs = new Jobs({
    ...shared,
    instances: options.instances,
    own,
    logs,
    bounds: { maxOpen: options.maxOpen, maxOpenPerTenant: options.maxOpenPerTenant },
    keepsSecrets: options.secrets !== undefined,
  });
  const schedules = new JobSchedules({ database, writes, node, jobs, maxPerTenant: MAX_SCHEDULES_PER_TENANT, log });
  const kept = { logs, uploads, places, schedules, packages, environments };
  const { keepMs, keepCount } = options;
  const housekeeping = new Housekeeping({
    ...kept,
    node,
    jobs,
    own,
    keepMs,
    keepCount,
    intervalMs: HOUSEKEEPING_MS,
    log,
  });
  const reconciler =
    cluster === null ? null : new JobReconciler({ cluster, own, schedules, packages, intervalMs: RECONCILE_MS, log });
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
      reconciler?.start();
      void uploads.run();
    },
    async close(stopRunningMs) {
      schedules.close();
      await reconciler?.close();
      await housekeeping.close();
      const left = await own.close(stopRunningMs);
      await uploads.close();
      store?.close();
      return left;
    },
  };
}

/** Builds the parts that keep files of jobs: logs, packages and working directories. */
function createStoredParts(options: JobServiceOptions, node: JobNode, paths: JobPaths) {
  const { database, writes, removals, disk, nodeId, cluster, store, log } = options;
  const changes = new JobChanges(options.jobChanged);
  const stored = store === null ? null : new StoredLogs(store);
  const logs = new JobLogs({ directory: paths.logs, changes, removals, nodeId, stored });
  const uploads = new LogUploads({ database, writes, nodeId, logs, hasStore: store !== null, log });
  const isAlone = cluster === null && store === null;
  const maxPackagesPerTenant = MAX_PACKAGES_PER_TENANT;
  const places = isAlone ? null : new PackagePlaces({ database, writes, node, store, maxPackagesPerTenant });
  const packages = new JobPackages({
    dataDir: options.dataDir,
    removals,
    maxBytes: options.maxPackageBytes,
    keepMs: PACKAGE_KEEP_MS,
    maxPackagesPerTenant,
    disk,
    node,
    places,
  });
  const files = new JobFiles({
    paths,
    packages,
    removals,
    limits: options.unpack,
    disk,
    openHostPath: options.openHostPath,
    takesHostDirectories: options.rootfs === 'host',
  });
  return { changes, logs, uploads, places, packages, files };
}

function createEnvironments(options: JobServiceOptions, paths: JobPaths, rules: JobSandboxRules): PythonEnvironments {
  const { removals, instances, ledger, driver, disk } = options;
  return new PythonEnvironments({
    paths,
    removals,
    instances,
    ledger,
    driver,
    rules,
    environment: { ...options.pipEnvironment, ...options.environment },
    timeoutMs: options.setupTimeoutMs,
    keepMs: ENVIRONMENT_KEEP_MS,
    disk,
    ...options.environmentLimits,
  });
}

interface RunnerParts extends Pick<ReturnType<typeof createStoredParts>, 'files' | 'logs' | 'changes'> {
  readonly node: JobNode;
  readonly paths: JobPaths;
  readonly rules: JobSandboxRules;
  readonly environments: PythonEnvironments;
}

function createRunner(options: JobServiceOptions, parts: RunnerParts): JobRunner {
  const { database, writes, instances, driver, metrics, log, startTimeoutMs, stopGraceMs } = options;
  const { node, paths, rules, files, environments, logs, changes } = parts;
  return new JobRunner({
    database,
    writes,
    node,
    instances,
    driver,
    files,
    environments,
    ...(options.secrets && { secrets: options.secrets }),
    prepare: once(async () => {
      const probe = await (await driver()).probe();
      if (!probe.available) throw probe.mayPass === true ? unavailable(probe.reason) : failedPrecondition(probe.reason);
      paths.hasMounts = probe.capabilities.mounts;
    }),
    // An image contains its own interpreter.
    python:
      options.rootfs === 'image'
        ? async () => null
        : orNull(async () => await provePython(await options.python(), paths), log),
    logs,
    changes,
    metrics,
    rules,
    startTimeoutMs,
    stopGraceMs,
    log,
  });
}

function createQueue({ ledger, limits }: JobServiceOptions, rules: JobSandboxRules): JobQueue {
  const sizeOf = (resources: JobResources) => ({
    ...sizeOfSandbox(resources, rules),
    processes: rules.maxProcesses,
  });
  return new JobQueue(limits, {
    isFull: resources => !ledger.fits(sizeOf(resources)),
    reserve: resources => ledger.reserve('job', sizeOf(resources)),
    release: resources => ledger.release('job', sizeOf(resources)),
  });
}

const WITHOUT_STORE =
  'jobs.store names no object store: packages and logs of jobs stay on the replica that took them, so a job that needs a package runs where the package was uploaded, and the log of a job cannot be read while its replica is away';

/** Returns a function that runs `work` until it has succeeded once. */
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

/**
 * Returns a function that gives the interpreter, or null when the machine has none. A later job tries again.
 */
function orNull(prove: () => Promise<JobPython>, log: Log): () => Promise<JobPython | null> {
  const proveOnce = once(prove);
  return () =>
    proveOnce().catch((error: unknown) => {
      log.warn({ reason: messageOf(error) }, 'no Python for jobs');
      return null;
    });
}
