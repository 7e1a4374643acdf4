import { join } from 'node:path';
import type { FastifyInstance } from 'fastify';
import { toInstance } from '../agents/agent-records.ts';
import { ClusterNode } from '../cluster/cluster-node.ts';
import { singleReplica } from '../cluster/membership.ts';
import type { Config } from '../config/config.ts';
import { processEnvironment } from '../config/env.ts';
import { removeLocalToken } from '../config/local-token.ts';
import { NO_CALLS_KEPT } from '../core/finished-call.ts';
import { checkHostPath } from '../core/host-path.ts';
import type { SandboxType } from '../core/instance.ts';
import type { Lease } from '../core/lease.ts';
import { LIMITS } from '../core/limits.ts';
import { CHEAP_SANDBOX_TYPES } from '../core/sandbox-types.ts';
import { type DataDir, openDataDir } from '../data-dir/data-dir.ts';
import { SECRETS_KEY } from '../data-dir/data-dir-facts.ts';
import { codeSubjectOf } from '../functions/registry-catalog.ts';
import { Instances } from '../instances/instances.ts';
import { Ledger } from '../instances/ledger.ts';
import type { JobsLeft } from '../jobs/node-jobs.ts';
import { endsWithin } from '../lib/deadline.ts';
import { findPath } from '../lib/opened-path.ts';
import { createPathExists, realPathOf } from '../lib/path-lookup.ts';
import { leftoversIn, Removals } from '../lib/removals.ts';
import { ShutdownSequence } from '../lib/shutdown-sequence.ts';
import { ApiKeys } from '../registry/api-keys.ts';
import { AwsKeys } from '../registry/aws-keys.ts';
import { TOPIC_FUNCTIONS } from '../registry/change-feed.ts';
import { createRegistry } from '../registry/registry.ts';
import { Secrets } from '../registry/secrets.ts';
import { Templates } from '../registry/templates.ts';
import type { Drivers } from '../sandbox/drivers.ts';
import type { Database } from '../storage/database.ts';
import { findAgent, TOPIC_AGENTS } from '../storage/queries/agents.ts';
import { TOPIC_RECORDINGS } from '../storage/queries/call-recordings.ts';
import { insertInstanceUnder, listIdsWithSandbox, type StoredInstance } from '../storage/queries/instances.ts';
import { listNodeIds, readAddressKey, readInstallationId } from '../storage/queries/nodes.ts';
import { TOPIC_POOLS } from '../storage/queries/pools.ts';
import { openStores, type StorePlace } from '../storage/stores.ts';
import type { Stores } from '../storage/stores-contract.ts';
import type { Logger } from '../telemetry/logger.ts';
import { createMetrics } from '../telemetry/metrics.ts';
import { withCallSpans } from '../telemetry/tracer.ts';
import { VERSION } from '../version.ts';
import { createCallHistory, createSpanReader, createVerifier, openCallBytes, openTracer } from './configured-parts.ts';
import { createEntries } from './entries.ts';
import { createInstallation } from './installation.ts';
import { checkOpenFiles, machineSize } from './machine.ts';
import { Observed, ReplicasObserved } from './observed.ts';
import { createOwners } from './owners.ts';
import { allowedPoolImages, poolControl } from './pool-control.ts';
import { UsageSampler } from './usage-sampler.ts';
import { WRITE_OPERATIONS } from './write-operations.ts';

export interface Server {
  /** Counts an uncaught error. */
  uncaught(): void;
  /** Listens at once, adopts the instances of an earlier server, and resolves when the service is ready. */
  start(): Promise<{ readonly frontendUrl: string | null; readonly metaUrl: string | null }>;
  /**
   * Refuses new work and gives running calls at most `graceMs`. Agents continue to run unless `stopAgents` is
   * set.
   */
  close(options: { readonly stopAgents: boolean; readonly graceMs: number }): Promise<{
    readonly agentsLeft: number;
    readonly jobsLeft: JobsLeft | null;
  }>;
}

/**
 * Time for releasing shards. Must be less than the wait of other replicas for a transfer
 * (`ReplicaTimes.releaseWaitMs`).
 */
const RELEASE_MS = 8_000;
/** Least time for sending the spans of the last calls, however long the calls took. */
const MIN_SPANS_MS = 500;

/**
 * Composition root: the only place that imports every part. Creates the configured parts in the order of
 * dependence, and closes them in reverse. Fails with `failed_precondition` if the data directory cannot be
 * locked or used.
 */
export async function createServer(config: Config, logger: Logger): Promise<Server> {
  const dataDir = await openDataDir(config.dataDir, { hasDatabase: config.storage.url === null });
  for (const notice of dataDir.notices) logger.warn({ dataDir: dataDir.path }, notice);
  let stores: Stores | undefined;
  try {
    stores = await openStores(placeOf(config, dataDir), { operations: WRITE_OPERATIONS, program: WRITE_PROGRAM });
    return await startServer(config, logger, dataDir, stores);
  } catch (error) {
    dataDir.release(await stores?.close(() => dataDir.end()));
    throw error;
  }
}

/** Reports every detectable error before it changes anything that runs. */
async function startServer(config: Config, logger: Logger, dataDir: DataDir, stores: Stores): Promise<Server> {
  const { database, refuseWrites } = stores;
  // PostgreSQL has the records of several nodes, so only the data directory determines the id of this node.
  const nodeId = await dataDir.nodeId(stores.kind === 'sqlite' ? await listNodeIds(database) : []);
  await checkOpenFiles((await listIdsWithSandbox(database, nodeId)).length);
  await dataDir.startWatching(problem => {
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

/** Joins the cluster; null with the embedded database, which only this process can use. */
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
    podsLostMs: cluster.podsLostMs,
    database,
    writes,
    log: logger,
  });
}

function placeOf({ storage }: Config, dataDir: DataDir): StorePlace {
  const { url, waitMs, poolSize } = storage;
  return url === null ? { file: dataDir.databaseFile } : { url, waitMs, poolSize };
}

/** Built file, because a worker thread cannot run TypeScript. */
const WRITE_PROGRAM = new URL('write-program.js', import.meta.url);

interface ClusterParts {
  readonly dataDir: DataDir;
  readonly nodeId: string;
  readonly stores: Stores;
  readonly cluster: ClusterNode | null;
}

/** Builds the parts that need nothing of the owners: metrics, spans, drivers. */
async function createBase(config: Config, logger: Logger, { dataDir, nodeId, stores, cluster }: ClusterParts) {
  const { database } = stores;
  const environment = processEnvironment();
  const metrics = createMetrics({ version: VERSION });
  const { tracer, close: closeTracer } = await openTracer(config, { environment, nodeId, log: logger });
  const removals = new Removals({
    directory: leftoversIn(dataDir.path),
    report: (name, reason) => logger.warn({ name, reason }, 'removal failed; retrying'),
  });
  metrics.readFrom({ leftovers: () => removals.waiting });
  const { drivers, mountPolicy, sweptDrivers } = await createInstallation(config, {
    environment,
    removals,
    logger,
    identity: { nodeId, installationId: await readInstallationId(database) },
  });
  return {
    ...{ dataDir, nodeId, stores, cluster, database, environment, metrics, tracer, closeTracer, removals },
    ...{ drivers, mountPolicy, sweptDrivers },
    writes: cluster?.writes ?? stores.writes,
    executors: { defaultSandboxType: config.defaultExecutor },
  };
}

type Base = Awaited<ReturnType<typeof createBase>>;

/** Builds the registry. `prepare` builds the dependencies of a function version. */
function createServerRegistry(config: Config, base: Base, prepare: Parameters<typeof createRegistry>[0]['prepare']) {
  const { database, writes, cluster, mountPolicy } = base;
  const registry = createRegistry({
    database,
    writes,
    business: config.business,
    clusters: config.clusters,
    isShared: cluster !== null,
    poolImages: config.auth === null ? null : allowedPoolImages(config),
    prepare,
    exists: createPathExists(path =>
      checkHostPath('code path', path, mountPolicy, findPath).then(
        () => true,
        () => false,
      ),
    ),
  });
  cluster?.replica.feed.subscribe(TOPIC_FUNCTIONS, key => registry.changedElsewhere(key));
  cluster?.replica.feed.subscribe(TOPIC_POOLS, () => registry.pools.changed());
  return registry;
}

function createInstances(config: Config, logger: Logger, base: Base, changed: Observed['instance']): Instances {
  const { database, writes, cluster, drivers, sweptDrivers, nodeId, metrics } = base;
  return new Instances(database, {
    ...(cluster !== null && { isLost: (id: string) => cluster.isLost(id) }),
    cheapDrivers: CHEAP_SANDBOX_TYPES,
    drivers: (name: SandboxType) => drivers.get(name),
    sweptDrivers,
    nodeId,
    ...(cluster && {
      insertUnder: (lease: Lease, instance: StoredInstance) => writes.write(insertInstanceUnder, lease.fence, instance),
    }),
    writes,
    log: logger,
    metrics: metrics.instances,
    changed,
    createTimeoutMs: config.createTimeoutMs,
    orphanGraceMs: config.orphanGraceMs,
    reconcileIntervalMs: config.reconcileIntervalMs,
  });
}

async function createSecrets(config: Config, logger: Logger, { database, writes, cluster, dataDir }: Base) {
  const secrets = new Secrets({
    database,
    writes,
    keys: config.secretKeys,
    // Replicas need a common key, so a key of this node alone would be useless.
    ownKeyFile: cluster === null ? join(dataDir.path, SECRETS_KEY) : null,
    allowUnreadable: config.secrets.allowUnreadable,
    log: logger,
  });
  await secrets.start();
  return secrets;
}

/** Builds every part of the service; none of them runs yet. */
async function build(config: Config, logger: Logger, parts: ClusterParts) {
  const base = await createBase(config, logger, parts);
  const { dataDir, nodeId, stores, cluster, database, writes, environment, metrics, drivers } = base;
  const registry = createServerRegistry(config, base, async (tenant, spec) => {
    await owners.dependencies.build(codeSubjectOf(tenant, spec, base.executors));
  });
  const isHeld = () => cluster === null || cluster.replica.shards.holds('sweeper');
  const pools = poolControl({ config, environment, pools: registry.pools, drivers, isHeld, logger });
  metrics.readFrom({ pools: () => pools?.counts() ?? [] });
  const machine = await machineSize();
  const observed = new Observed(metrics, nodeId);
  observed.watchFunctions(registry);
  const ledger = new Ledger({ machine, overcommit: config.overcommit, openCallBytes: openCallBytes(config) });
  const instances = createInstances(config, logger, base, observed.instance);
  const secrets = await createSecrets(config, logger, base);
  const secretsOf = async (tenant: string) => secrets.knownValues(tenant);
  const tracer = withCallSpans(base.tracer, createSpanReader(config, secretsOf));
  const callHistory = createCallHistory(config, {
    ...{ database, writes, nodeId, log: logger },
    secretsOf,
    nameOfAgent: id => nameOfAgent(id, instances, database),
  });
  const callSink = callHistory?.sink ?? NO_CALLS_KEPT;
  cluster?.replica.feed.subscribe(TOPIC_RECORDINGS, () => void callHistory?.recordings.reload());
  metrics.readFrom({ callRecords: () => callHistory?.counts });
  // Drivers refuse links in the sources of the platform's mounts, which are below the data directory.
  const realDir = realPathOf(dataDir.path);
  const owners = createOwners(
    { ...config, dataDir: realDir },
    { ...base, dataDir: realDir, instances, ledger, secrets, registry, observed, callSink, logger },
  );
  const { agents, functions, jobs } = owners;
  metrics.readFrom({ isLiveAgent: id => instances.live('agent', id) !== undefined });
  cluster?.replica.feed.subscribe(TOPIC_AGENTS, key =>
    key === null ? instances.reconcileSoon() : void agents.endReplaced(key),
  );
  const usage = new UsageSampler({
    live: () => [...instances.allLive('agent'), ...instances.allLive('function')],
    most: LIMITS.historySubjects,
  });
  const history = observed.history({ ledger, agents, functions, jobs: jobs.jobs, usage, instances }, machine);
  const replicas = new ReplicasObserved({ nodeId, log: observed.log, history, cluster, logger });
  const verifier = await createVerifier(config, dataDir, { logger, metrics });
  const state: { missing: 'starting' | 'stopping' | null } = { missing: 'starting' };
  let tellStarted!: () => void;
  const started = new Promise<void>(resolve => {
    tellStarted = resolve;
  });
  const { frontend, meta } = await createEntries(config, {
    ...{ ...base, ...owners, instances, registry, secrets, verifier, started, callSink, logger, tracer },
    recordings: callHistory?.recordings ?? null,
    apiKeys: new ApiKeys({ database: stores.database, writes }),
    awsKeys: new AwsKeys({ database: stores.database, writes, root: await readAddressKey(stores.database) }),
    templates: new Templates({ database: stores.database, writes }),
    replica: cluster?.replica ?? singleReplica({ id: nodeId, advertise: '', roles: config.roles, version: VERSION }),
    storage: stores.kind,
    observed: {
      ...{ log: observed.log, history: replicas.history, usage: replicas.usage },
      onSample: listener => history.onSample(listener),
    },
    ready: () => {
      // All replicas share one PostgreSQL. If each reported its outage as not ready, no replica would remain
      // for the calls that still work.
      const storage = dataDir.problem() ?? (cluster === null ? writes.problem() : null);
      return {
        ...(state.missing === null ? {} : { server: state.missing }),
        ...(storage === null ? {} : { storage }),
        ...instances.readiness(),
      };
    },
  });
  return {
    ...{ ...base, ...owners, config, logger, pools, observed, instances, usage, history, callHistory, replicas },
    ...{ state, tellStarted, frontend, meta },
  };
}

/** Returns `namespace/name` of an agent, or `''` for an unknown id. */
async function nameOfAgent(id: string, instances: Instances, database: Database): Promise<string> {
  const live = instances.live('agent', id);
  // An agent that has failed is not live any more.
  const record = (live && instances.recordOf(live)) ?? (await findAgent(database, id))?.stored;
  if (record === undefined) return '';
  const { spec } = toInstance(record);
  return `${spec.namespace}/${spec.name}`;
}

type Built = Awaited<ReturnType<typeof build>>;

async function assemble(config: Config, logger: Logger, parts: ClusterParts): Promise<Server> {
  const built = await build(config, logger, parts);
  return {
    uncaught: built.metrics.uncaught,
    start: () => start(built),
    close: options => close(built, options),
  };
}

/** Starts the parts in their order, and returns once all are ready. */
async function start(built: Built): Promise<Awaited<ReturnType<Server['start']>>> {
  const { config, logger, database, nodeId, frontend, meta, agents, instances, functions, asyncCalls } = built;
  const frontendUrl = config.frontend.enabled ? await listen(frontend, config.host, config.port) : null;
  const metaUrl = await listen(meta, config.metaHost, config.metaPort);
  await built.packages.start();
  await built.dependencies.start(new Set(await listIdsWithSandbox(database, nodeId)));
  await agents.start();
  await built.pools?.start();
  await instances.start();
  await built.jobs.start();
  await functions.start();
  await asyncCalls.start();
  await serveReplicas(built);
  built.state.missing = null;
  built.removals.start();
  built.usage.start();
  built.history.start();
  await built.callHistory?.start();
  built.tellStarted();
  warmUp(built.drivers, config.defaultExecutor, logger);
  return { frontendUrl, metaUrl };
}

/** Takes leases and requests of other replicas. */
async function serveReplicas(built: Built): Promise<void> {
  const { cluster, frontend, instances, metrics, observed, replicas, asyncCalls, functions } = built;
  if (cluster === null || frontend === null) return;
  const reconciling = { ...NO_SHARDS, lost: () => instances.reconcileSoon() };
  await cluster.serve(frontend, [asyncCalls, functions, reconciling], {
    otherLease: () => {
      built.jobCluster?.woken();
      built.pools?.startPass();
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

/** Each step runs even if an earlier one fails, so that sandboxes end and the data directory is released. */
async function close(
  built: Built,
  { stopAgents, graceMs }: Parameters<Server['close']>[0],
): Promise<Awaited<ReturnType<Server['close']>>> {
  const { config, logger, cluster, dataDir, stores, frontend, meta, agents, asyncCalls, functions, jobs } = built;
  const steps = new ShutdownSequence(error => logger.error({ err: error }, 'component failed to shut down'));
  if (cluster !== null) {
    built.state.missing = 'stopping';
    await steps.run(() => cluster.retire(config.cluster.drainMs));
  }
  const deadlineMs = performance.now() + graceMs;
  const left = () => Math.max(0, deadlineMs - performance.now());
  // Refuse new connections first; running calls may end.
  const listeners = Promise.allSettled([frontend?.close(), meta?.close()]);
  // A create may wait for a build longer than the shutdown may take.
  const builds = steps.run(() => built.dependencies.close());
  const [agentsClosed] = await Promise.all([
    steps.run(() => agents.close({ stopAgents, graceMs })),
    steps.run(() => asyncCalls.close(left())),
  ]);
  await endsWithin(listeners, left());
  await steps.run(() => functions.close(left()));
  await steps.run(() => built.packages.close());
  await steps.run(() => built.callHistory?.close());
  await builds;
  const jobsLeft = (await steps.run(() => jobs.close(stopAgents ? left() : null))) ?? null;
  await steps.run(() => built.usage.close());
  await steps.run(() => built.instances.close('the server is stopping'));
  await steps.run(() => built.pools?.close());
  await steps.run(() => built.drivers.close());
  await steps.run(() => built.removals.close());
  await steps.run(() => built.history.close());
  await steps.run(() => built.replicas.close());
  await steps.run(() => endsWithin(built.closeTracer(), Math.max(left(), MIN_SPANS_MS)));
  if (config.auth === null && config.localToken) await steps.run(() => removeLocalToken(dataDir.path));
  await steps.run(() => cluster?.close());
  dataDir.release(await stores.close(() => dataDir.end()));
  steps.end();
  return { agentsLeft: agentsClosed?.agentsLeft ?? 0, jobsLeft };
}

const NO_SHARDS = { acquired: async () => undefined, release: async () => undefined };

async function listen(app: FastifyInstance | null, host: string, port: number): Promise<string | null> {
  return app === null ? null : await app.listen({ host, port });
}

/**
 * Prepares drivers for a fast first create, concurrently with the first calls. Readiness does not wait for
 * it.
 */
function warmUp(drivers: Drivers, executor: SandboxType, logger: Logger): void {
  // Jobs run in process sandboxes, whatever agents run in.
  for (const name of new Set<SandboxType>(['process', executor])) {
    drivers
      .get(name)
      .then(async driver => {
        await driver.warm?.();
        // The log names the missing isolation of an ordinary user's sandboxes at the start, not only with the
        // first instance.
        if (name === 'process' && process.getuid?.() !== 0) await driver.probe();
      })
      .catch((error: unknown) => logger.warn({ err: error }, `cannot warm ${name} sandbox`));
  }
}
