import { join } from 'node:path';
import type { FastifyInstance } from 'fastify';
import { ClusterNode } from './cluster/cluster-node.ts';
import { singleReplica } from './cluster/single.ts';
import type { Config } from './config/config.ts';
import { processEnvironment } from './config/env.ts';
import { removeLocalToken } from './config/local-token.ts';
import { createVerifier, openCallBytes, openTracer } from './configured-parts.ts';
import { checkHostPath } from './core/host-path.ts';
import type { SandboxType } from './core/instance.ts';
import type { Lease } from './core/lease.ts';
import { createEntries } from './entries.ts';
import { subjectOf } from './functions/dependencies.ts';
import { createInstallation } from './installation.ts';
import { Instances } from './instances/instances.ts';
import { Ledger } from './instances/ledger.ts';
import type { JobsLeft } from './jobs/node-jobs.ts';
import { CpuLatency } from './lib/cpu-latency.ts';
import { endsWithin } from './lib/deadline.ts';
import { findPath } from './lib/opened-path.ts';
import { createPathExists } from './lib/path-exists.ts';
import { leftoversIn, Removals } from './lib/removals.ts';
import { Steps } from './lib/steps.ts';
import { machineSize } from './machine.ts';
import { Observed } from './observed.ts';
import { ReplicasObserved } from './observed-by-replicas.ts';
import { checkOpenFiles } from './open-files.ts';
import { createOwners } from './owners.ts';
import { poolControl } from './pool-control.ts';
import { TOPIC_FUNCTIONS } from './registry/change-feed.ts';
import { createRegistry } from './registry/registry.ts';
import { Secrets } from './registry/secrets.ts';
import type { Drivers } from './sandbox/drivers.ts';
import { type DataDir, openDataDir } from './storage/data-dir.ts';
import { SECRETS_KEY } from './storage/data-dir-facts.ts';
import { readInstallationId } from './storage/installation-id.ts';
import { insertInstanceUnder, type StoredInstance } from './storage/instances.ts';
import { listNodeIds, listSandboxIds } from './storage/node-rows.ts';
import { TOPIC_POOLS } from './storage/pools.ts';
import { openStores, type StorePlace } from './storage/stores.ts';
import type { Stores } from './storage/stores-contract.ts';
import type { Logger } from './telemetry/logger.ts';
import { createMetrics } from './telemetry/metrics.ts';
import { VERSION } from './version.ts';
import { WRITE_OPERATIONS } from './write-operations.ts';

export interface Server {
  /** Counts an error that nobody caught. */
  uncaught(): void;
  /** Listens at once, adopts what an earlier server left, and resolves when everything is ready. */
  start(): Promise<{ readonly frontendUrl: string | null; readonly metaUrl: string | null }>;
  /** Takes no more work, lets running calls end for at most `graceMs`; agents live on unless `stopAgents`. */
  close(options: { readonly stopAgents: boolean; readonly graceMs: number }): Promise<{
    readonly agentsLeft: number;
    readonly jobsLeft: JobsLeft | null;
  }>;
}

/** Less than replicas wait for each other to hand a shard over (`ReplicaTimes.releaseWaitMs`), so that what ends here ends before. */
const RELEASE_MS = 8_000;
/** Spans of the last calls get this long to be sent, however long the calls took. */
const MIN_SPANS_MS = 500;

/**
 * The composition root: the only place that sees everything. Builds what the configuration asks for in the order of dependence, and closes it
 * in reverse. Fails with `failed_precondition` when the data directory cannot be had.
 */
export async function createServer(config: Config, logger: Logger): Promise<Server> {
  const dataDir = await openDataDir(config.dataDir, { hasDatabase: config.storage.url === null });
  for (const notice of dataDir.notices) logger.warn({ dataDir: dataDir.path }, notice);
  let stores: Stores | undefined;
  try {
    stores = await openStores(placeOf(config, dataDir), { operations: WRITE_OPERATIONS, program: WRITE_PROGRAM });
    return await begin(config, logger, dataDir, stores);
  } catch (error) {
    dataDir.release(await stores?.close(() => dataDir.end()));
    throw error;
  }
}

/** Everything that can be seen to be wrong is reported before anything that runs is touched. */
async function begin(config: Config, logger: Logger, dataDir: DataDir, stores: Stores): Promise<Server> {
  const { database, refuseWrites } = stores;
  // A PostgreSQL has the rows of other nodes too: this one is who its directory says.
  const nodeId = await dataDir.nodeId(stores.kind === 'sqlite' ? await listNodeIds(database) : []);
  await checkOpenFiles((await listSandboxIds(database, nodeId)).length);
  await dataDir.begin(problem => {
    logger.fatal({ dataDir: dataDir.path }, problem);
    refuseWrites(problem);
  });
  const cluster = await joinCluster(config, logger, { nodeId, stores });
  try {
    return await assemble(config, logger, { dataDir, nodeId, stores, cluster });
  } catch (error) {
    await cluster?.close();
    throw error;
  }
}

/** Null with the embedded database: nobody else can use it. */
async function joinCluster(
  { storage, cluster, clusterIdentity: identity, roles }: Config,
  logger: Logger,
  { nodeId, stores: { database, writes } }: { readonly nodeId: string; readonly stores: Stores },
): Promise<ClusterNode | null> {
  if (storage.url === null) return null;
  return await ClusterNode.join({
    url: storage.url,
    listenUrl: storage.listenUrl,
    nodeId,
    version: VERSION,
    roles,
    connections: identity && { identity, listen: cluster.listen, advertise: cluster.advertise || cluster.listen },
    releaseMs: RELEASE_MS,
    nodeLostMs: cluster.nodeLostMs,
    database,
    writes,
    log: logger,
  });
}

function placeOf({ storage }: Config, dataDir: DataDir): StorePlace {
  const { url, waitMs, poolSize } = storage;
  return url === null ? { file: dataDir.databaseFile } : { url, waitMs, poolSize };
}

/** The built file: a thread cannot run a program in TypeScript. */
const WRITE_PROGRAM = new URL('write-program.js', import.meta.url);

interface Parts {
  readonly dataDir: DataDir;
  readonly nodeId: string;
  readonly stores: Stores;
  readonly cluster: ClusterNode | null;
}

async function assemble(config: Config, logger: Logger, { dataDir, nodeId, stores, cluster }: Parts): Promise<Server> {
  const { database } = stores;
  const writes = cluster?.writes ?? stores.writes;
  const replica =
    cluster?.replica ?? singleReplica({ id: nodeId, advertise: '', roles: config.roles, version: VERSION });
  const metrics = createMetrics({ version: VERSION });
  const environment = processEnvironment();
  const { tracer, close: closeTracer } = await openTracer(config, { environment, nodeId, log: logger });
  const removals = new Removals({
    directory: leftoversIn(dataDir.path),
    report: (name, reason) => logger.warn({ name, reason }, 'something was not removed; it is tried again'),
  });
  metrics.readLeftoversFrom(() => removals.waiting);
  const { drivers, mountPolicy, sweptDrivers } = await createInstallation(config, {
    environment,
    removals,
    logger,
    identity: { nodeId, installationId: await readInstallationId(database) },
  });
  const executors = { defaultSandboxType: config.defaultExecutor };
  const registry = createRegistry({
    database,
    writes,
    business: config.business,
    clusters: config.clusters,
    isShared: cluster !== null,
    prepare: async (tenant, spec) => {
      await owners.dependencies.build(subjectOf(tenant, spec, executors));
    },
    exists: createPathExists(path =>
      checkHostPath('code path', path, mountPolicy, findPath).then(
        () => true,
        () => false,
      ),
    ),
  });

  cluster?.replica.feed.subscribe(TOPIC_FUNCTIONS, key => registry.changedElsewhere(key));
  cluster?.replica.feed.subscribe(TOPIC_POOLS, () => registry.pools.changed());
  const isHeld = () => cluster === null || cluster.replica.shards.holds('sweeper');
  const pools = poolControl({ config, environment, pools: registry.pools, drivers, isHeld, logger });
  metrics.readPoolsFrom(() => pools?.counts() ?? []);

  const machine = await machineSize();
  const observed = new Observed(metrics, nodeId);
  const ledger = new Ledger({
    machine,
    overcommit: config.overcommit,
    openCallBytes: openCallBytes(config),
  });
  const driverOf = (name: SandboxType) => drivers.get(name);
  const cpuLatency = config.lowCpuLatency ? CpuLatency.open() : null;
  const instances = new Instances(database, {
    ...(cluster === null ? { rowsFollow: ['process'] as const } : { isLost: (id: string) => cluster.isLost(id) }),
    drivers: driverOf,
    sweptDrivers,
    nodeId,
    ...(cluster && {
      insertUnder: (lease: Lease, instance: StoredInstance) => writes.write(insertInstanceUnder, lease.fence, instance),
    }),
    log: logger,
    metrics: metrics.instances,
    cpuLatency,
    changed: observed.instance,
    createTimeoutMs: config.createTimeoutMs,
    orphanGraceMs: config.orphanGraceMs,
    reconcileIntervalMs: config.reconcileIntervalMs,
  });
  const secrets = new Secrets({
    database,
    writes,
    keys: config.secretKeys,
    // Replicas need the same: a key of its own would be of no use to the others.
    ownKeyFile: cluster === null ? join(dataDir.path, SECRETS_KEY) : null,
    allowUnreadable: config.secrets.allowUnreadable,
    log: logger,
  });
  await secrets.start();
  const owners = createOwners(config, {
    ...{ database, writes, metrics, environment, removals, drivers, mountPolicy, nodeId, dataDir: dataDir.path },
    ...{ instances, ledger, secrets, registry, executors, observed, cluster, logger },
  });
  const { agents, functions, asyncCalls, jobs, packages, dependencies } = owners;
  const history = observed.history({ ledger, agents, functions, jobs: jobs.jobs }, machine);
  const replicas = new ReplicasObserved({ nodeId, log: observed.log, history, cluster, logger });
  const asksLocalToken = config.auth === null && config.localToken;
  const verifier = await createVerifier(config, dataDir);
  let missing: 'starting' | 'stopping' | null = 'starting';
  let tellStarted!: () => void;
  const started = new Promise<void>(resolve => {
    tellStarted = resolve;
  });
  const { frontend, meta } = await createEntries(config, {
    ...{ ...owners, instances, registry, secrets, executors, mountPolicy, drivers, environment, dataDir, cpuLatency },
    ...{ cluster, replica, storage: stores.kind, database, metrics, tracer, verifier, started, logger },
    observed: { log: observed.log, history: replicas.history, onSample: listener => history.onSample(listener) },
    ready: () => {
      // All replicas share a PostgreSQL: if each said that it is not ready, nobody would be left for the calls that go on.
      const storage = dataDir.problem() ?? (cluster === null ? writes.problem() : null);
      return {
        ...(missing === null ? {} : { server: missing }),
        ...(storage === null ? {} : { storage }),
        ...instances.readiness(),
      };
    },
  });

  return {
    uncaught: metrics.uncaught,

    async start() {
      const frontendUrl = config.frontend.enabled ? await listen(frontend, config.host, config.port) : null;
      const metaUrl = await listen(meta, config.metaHost, config.metaPort);
      await packages.start();
      await dependencies.start(new Set(await listSandboxIds(database, nodeId)));
      await agents.start();
      await pools?.start();
      await instances.start();
      await jobs.start();
      await functions.start();
      await asyncCalls.start();
      if (cluster !== null && frontend !== null) {
        const reconciling = { ...NO_SHARDS, lost: () => instances.reconcileSoon() };
        await cluster.serve(frontend, [asyncCalls, functions, reconciling], {
          otherLease: () => {
            owners.jobCluster?.woken();
            pools?.look();
          },
          givenUp: ({ jobsFailed }) => {
            for (let job = 0; job < jobsFailed; job += 1) metrics.jobs.ended('FAILED');
            instances.reconcileSoon();
            observed.log.reset(false);
          },
          answer: replicas.answer,
        });
        await replicas.start();
      }
      missing = null;
      removals.start();
      history.start();
      tellStarted();
      warmUp(drivers, config.defaultExecutor, logger);
      return { frontendUrl, metaUrl };
    },

    async close({ stopAgents, graceMs }) {
      // Whatever fails: sandboxes are told to end, and the data directory is let go of.
      const steps = new Steps(error => logger.error({ err: error }, 'a part of the service did not end as it should'));
      if (cluster !== null) {
        missing = 'stopping';
        await steps.take(() => cluster.retire(config.cluster.drainMs));
      }
      const deadlineMs = performance.now() + graceMs;
      const left = () => Math.max(0, deadlineMs - performance.now());
      // New connections are refused first; calls that run may end.
      const listeners = Promise.allSettled([frontend?.close(), meta?.close()]);
      // A create may wait for a build for longer than anybody waits for the end.
      const builds = steps.take(() => dependencies.close());
      const [agentsClosed] = await Promise.all([
        steps.take(() => agents.close({ stopAgents, graceMs })),
        steps.take(() => asyncCalls.close(left())),
      ]);
      await endsWithin(listeners, left());
      await steps.take(() => functions.close(left()));
      await steps.take(() => packages.close());
      await builds;
      const jobsLeft = (await steps.take(() => jobs.close(stopAgents ? left() : null))) ?? null;
      await steps.take(() => instances.close('the server is stopping'));
      await steps.take(() => pools?.close());
      await steps.take(() => drivers.close());
      await steps.take(() => cpuLatency?.close());
      await steps.take(() => removals.close());
      await steps.take(() => history.close());
      await steps.take(() => replicas.close());
      await steps.take(() => endsWithin(closeTracer(), Math.max(left(), MIN_SPANS_MS)));
      if (asksLocalToken) await steps.take(() => removeLocalToken(dataDir.path));
      await steps.take(() => cluster?.close());
      dataDir.release(await stores.close(() => dataDir.end()));
      steps.end();
      const agentsLeft = agentsClosed?.agentsLeft ?? 0;
      return { agentsLeft, jobsLeft };
    },
  };
}

const NO_SHARDS = { acquired: async () => undefined, release: async () => undefined };

async function listen(app: FastifyInstance | null, host: string, port: number): Promise<string | null> {
  return app === null ? null : await app.listen({ host, port });
}

/** Makes the first create fast, beside the first calls: a server is ready without it. */
function warmUp(drivers: Drivers, executor: SandboxType, logger: Logger): void {
  // Jobs run in process sandboxes, whatever agents run in.
  for (const name of new Set<SandboxType>(['process', executor])) {
    drivers
      .get(name)
      .then(async driver => {
        await driver.warm?.();
        // The log names the missing isolation of an ordinary user's sandboxes at the start, not only with the first instance.
        if (name === 'process' && process.getuid?.() !== 0) await driver.probe();
      })
      .catch((error: unknown) => logger.warn({ err: error }, `the ${name} sandbox could not be warmed`));
  }
}
