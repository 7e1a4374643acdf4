import { join } from 'node:path';
import { AgentFiles } from '../agents/agent-files.ts';
import { Agents } from '../agents/agents.ts';
import { PreviousLogs } from '../agents/previous-logs.ts';
import type { ClusterNode } from '../cluster/cluster-node.ts';
import type { Cluster } from '../cluster/contract.ts';
import type { CodePackages } from '../code/code-packages.ts';
import type { CodeStore } from '../code/code-store.ts';
import type { Config } from '../config/config.ts';
import type { ExecutorDefaults } from '../core/agent.ts';
import type { Environment } from '../core/environment.ts';
import { failedPrecondition } from '../core/error.ts';
import type { CallSink } from '../core/finished-call.ts';
import { checkHostPath, type HostPathPolicy } from '../core/host-path.ts';
import type { SandboxType } from '../core/instance.ts';
import { runsImages } from '../core/sandbox-types.ts';
import { MEBIBYTE } from '../core/units.ts';
import { deliverWebhook } from '../functions/async-answer.ts';
import { AsyncCalls } from '../functions/async-calls.ts';
import { FunctionInvoker } from '../functions/function-invoker.ts';
import { SYSTEM_CLOCK } from '../functions/policy.ts';
import { createCatalog } from '../functions/registry-catalog.ts';
import { SandboxLauncher } from '../functions/sandbox-launcher.ts';
import type { Instances } from '../instances/instances.ts';
import type { Ledger } from '../instances/ledger.ts';
import type { JobCluster } from '../jobs/cluster.ts';
import { createJobs } from '../jobs/create-jobs.ts';
import { openPath } from '../lib/opened-path.ts';
import { findPythonDir } from '../lib/own-paths.ts';
import type { Removals } from '../lib/removals.ts';
import { TenantDisk } from '../lib/tenant-disk.ts';
import type { Registry } from '../registry/registry.ts';
import type { Secrets } from '../registry/secrets.ts';
import type { SandboxDriver } from '../sandbox/driver.ts';
import type { Drivers } from '../sandbox/drivers.ts';
import { Interpreters } from '../sandbox/host/interpreters.ts';
import type { Database } from '../storage/database.ts';
import { TOPIC_JOBS } from '../storage/queries/jobs.ts';
import type { DurableWrites } from '../storage/writes/durable.ts';
import type { Logger } from '../telemetry/logger.ts';
import type { Metrics } from '../telemetry/metrics.ts';
import {
  createCodePackages,
  createCodeStore,
  createDependencies,
  createJobStore,
  functionMachine,
  jobLimits,
} from './configured-parts.ts';
import type { Observed } from './observed.ts';

export interface OwnersParts {
  readonly database: Database;
  readonly writes: DurableWrites;
  readonly metrics: Metrics;
  readonly environment: Environment;
  readonly removals: Removals;
  readonly drivers: Drivers;
  readonly mountPolicy: HostPathPolicy;
  readonly nodeId: string;
  readonly dataDir: string;
  readonly instances: Instances;
  readonly ledger: Ledger;
  readonly secrets: Secrets;
  readonly registry: Registry;
  readonly executors: ExecutorDefaults;
  readonly observed: Observed;
  /** The history of calls. */
  readonly callSink: CallSink;
  /** Cluster of this replica. null: there are no other replicas. */
  readonly cluster: ClusterNode | null;
  readonly logger: Logger;
}

export type Owners = ReturnType<typeof createOwners>;

/** Most concurrent starts: enough for a burst of creates, while a flood is refused. */
const MAX_STARTING = 1000;

/**
 * Creates agents, functions and jobs with their common parts: code, layers and rules of sandboxes; for
 * server.ts. Starts none of them.
 */
export function createOwners(config: Config, parts: OwnersParts) {
  const { database, writes, metrics, environment, removals, drivers, mountPolicy, nodeId, dataDir } = parts;
  const { instances, ledger, secrets, observed, cluster, logger } = parts;
  const driverOf = (name: SandboxType) => drivers.get(name);
  const sandboxes = {
    instances,
    ledger,
    database,
    drivers: driverOf,
    nodeId,
    log: logger,
    createTimeoutMs: config.createTimeoutMs,
    maxStarting: MAX_STARTING,
    maxProcesses: config.maxProcesses,
    network: config.network,
    requireIsolation: config.requireIsolation,
    hostEnvironment: environment,
    programsDir: findPythonDir(),
    secrets,
  };
  const jobCluster = cluster && jobClusterOf(cluster.replica);
  const objectStore = createJobStore(config);
  const disk = new TenantDisk(config.code.tenantMb * MEBIBYTE);
  const packages = createCodePackages(config, {
    disk,
    database,
    writes,
    removals,
    store: objectStore,
    isShared: cluster !== null,
    mayCollect: () => jobCluster?.jobs.isHeld() !== false,
    log: logger,
  });
  const codeStore = createCodeStore(config, mountPolicy, removals, packages, disk);
  const pythons = new Interpreters(config.process.pythons, environment);
  const packagePlaces = placesOf(packages, codeStore);
  const dependencies = createDependencies(config, {
    ...{ instances, ledger, removals, disk, environment, log: logger, rules: sandboxes, policy: mountPolicy },
    driver: () => driverForBuilds(drivers),
    packages: packagePlaces,
    python: async version => (await pythons.find(version)).path,
  });
  const launcher = new SandboxLauncher({
    ...{ ...sandboxes, openCallBytes: ledger.openCallBytes, codeStore },
    layers: dependencies,
  });
  const jobs = createJobs({
    ...sandboxes,
    writes,
    driver: () => driverOf(config.jobs.sandbox),
    rootfs: runsImages(config.jobs.sandbox) ? 'image' : 'host',
    dataDir,
    removals,
    disk,
    cluster: jobCluster?.jobs ?? null,
    store: objectStore,
    python: async () => (await (config.jobs.python === '' ? pythons.findAny() : pythons.find(config.jobs.python))).path,
    openHostPath: config.jobs.allowHostPaths ? path => checkHostPath('workspace', path, mountPolicy, openPath) : null,
    sandbox: sandboxes,
    metrics: metrics.jobs,
    jobChanged: observed.job,
    ...jobLimits(config, environment),
  });
  metrics.readFrom({ jobs: () => jobs.jobs.byStatus() });
  const agents = new Agents({
    ...sandboxes,
    ...{ writes, callSink: parts.callSink, alarmFailed: observed.alarmFailed },
    ...{ maxWaitingCalls: config.maxWaitingCalls, maxAwake: config.agents.maxAwake },
    ...keptOfAgents(parts),
    ...{ restarted: metrics.policyRestarted, alarmMissed: metrics.alarmMissed },
    packages: packagePlaces,
    layers: dependencies,
    programsDir: findPythonDir(),
    ...(cluster && { isLost: (id: string) => cluster.isLost(id) }),
  });
  metrics.readFrom({ agents, promises: () => ({ ...ledger.reservations.by, limit: ledger.reservations.limit }) });

  const { functions, asyncCalls } = createFunctions(config, parts, launcher);
  return { agents, functions, asyncCalls, jobs, jobCluster, packages, codeStore, dependencies };
}

/** Returns what is kept of agents between their sandboxes. */
function keptOfAgents({ dataDir, logger, removals }: OwnersParts) {
  return {
    previousLogs: new PreviousLogs(join(dataDir, 'agent-logs'), logger),
    files: new AgentFiles(join(dataDir, 'agents'), removals),
  };
}

/** Returns the places of uploaded code: agents and builds use directories of the code store. */
function placesOf(packages: CodePackages, codeStore: CodeStore) {
  return {
    place: async (tenant: string, sha256: string, user: string) =>
      await codeStore.directory({ storage: 'package', tenant, sha256 }, user),
    confirm: (tenant: string, sha256: string) => packages.confirm(tenant, sha256),
    registerUser: (tenant: string, sha256: string, user: string) => codeStore.registerUser(tenant, sha256, user),
    release: (user: string) => codeStore.release(user),
  };
}

/** Creates the services for calls of functions, synchronous and asynchronous. */
function createFunctions(config: Config, parts: OwnersParts, launcher: SandboxLauncher) {
  const { database, writes, metrics, ledger, registry, executors, cluster, logger } = parts;
  const functions = new FunctionInvoker({
    catalog: createCatalog(registry, database, executors),
    launcher,
    ...(cluster && { shards: cluster.shards }),
    clock: SYSTEM_CLOCK,
    capacity: {
      maxInstances: config.functions.maxInstances,
      maxInstancesPerTenant: config.functions.maxInstancesPerTenant,
      machine: functionMachine(ledger, config.maxProcesses),
    },
    maxWaitMs: config.functions.maxWaitMs,
    maxWaitingPerTenant: config.functions.maxWaitingPerTenant,
    openCallBytes: ledger.openCallBytes,
    observe: metrics.functionInvoked,
    callSink: parts.callSink,
    log: logger,
  });
  metrics.readFrom({ functionInstances: () => functions.countInstances() });
  const asyncCalls = new AsyncCalls({
    database,
    durable: writes,
    invoke: invocation => functions.invoke(invocation),
    ...(cluster && { shards: cluster.shards }),
    deliver: config.functions.webhookPrefixes.length > 0 ? (url, answer) => deliverWebhook(url, answer, logger) : null,
    maxOpen: config.functions.maxAsyncCalls,
    maxOpenPerTenant: config.functions.maxAsyncCallsPerTenant,
    maxRunning: config.functions.maxAsyncRunning,
    keepMs: config.functions.asyncResultMs,
    log: logger,
  });
  return { functions, asyncCalls };
}

/**
 * Returns the driver for builds. A layer contains its own path, so it must be built at the path of its mount.
 */
async function driverForBuilds(drivers: Drivers): Promise<SandboxDriver> {
  const driver = await drivers.get('process');
  const probe = await driver.probe();
  if (!probe.available) throw failedPrecondition(`the process sandbox is not available: ${probe.reason}`);
  if (!probe.capabilities.mounts)
    throw failedPrecondition('dependencies need mounts, which this machine does not allow');
  return driver;
}

/**
 * Returns the cluster's interface for jobs. The owner of leases must call `woken` after each join, and when
 * the lease `jobs` is acquired or lost.
 */
export function jobClusterOf(cluster: Cluster): { readonly jobs: JobCluster; woken(): void } {
  const listeners: (() => void)[] = [];
  const woken = () => {
    for (const listener of listeners) listener();
  };
  let epoch = 0;
  return {
    woken,
    jobs: {
      epoch: () => {
        // Without membership the last epoch stays: writes about jobs are checked against their records.
        if (cluster.membership.isMember()) epoch = cluster.membership.fence()?.nodeEpoch ?? 0;
        return epoch;
      },
      isHeld: () => cluster.shards.holds('jobs'),
      fence: () => cluster.shards.fence('jobs'),
      livingNodes: () => new Set(cluster.membership.living().map(({ id }) => id)),
      onChange: listener => {
        listeners.push(listener);
        cluster.feed.subscribe(TOPIC_JOBS, key => {
          if (key === null || key === cluster.nodeId) listener();
        });
      },
    },
  };
}
