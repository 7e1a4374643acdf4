import { availableParallelism, totalmem } from 'node:os';
import { fileURLToPath } from 'node:url';
import type { FastifyInstance } from 'fastify';
import { Agents } from './agents/agents.ts';
import type { Config } from './config/config.ts';
import { processEnvironment } from './config/env.ts';
import { removeLocalToken, writeLocalToken } from './config/local-token.ts';
import type { Environment } from './core/environment.ts';
import { checkHostPath, type HostPathPolicy } from './core/host-path.ts';
import type { SandboxType } from './core/instance.ts';
import { LIMITS } from './core/limits.ts';
import { createFrontend } from './frontend/app.ts';
import { AsyncCalls } from './functions/async-calls.ts';
import type { Machine } from './functions/capacity.ts';
import { CodeStore } from './functions/code/code-store.ts';
import { FunctionService } from './functions/function-service.ts';
import { type GroupKey, SYSTEM_CLOCK } from './functions/policy.ts';
import { createCatalog } from './functions/registry-catalog.ts';
import { SandboxStarter } from './functions/sandbox-starter.ts';
import { deliverWebhook } from './functions/webhook.ts';
import type { TokenVerifier } from './http/credentials.ts';
import { createJwtVerifier } from './http/jwt.ts';
import { createLocalTokenVerifier } from './http/local-token.ts';
import { createInstallation } from './installation.ts';
import { Instances } from './instances/instances.ts';
import { Ledger } from './instances/ledger.ts';
import { OpenCallBytes } from './instances/open-call-bytes.ts';
import { createJobs } from './jobs/create-jobs.ts';
import type { JobsLeft } from './jobs/jobs.ts';
import { endsWithin } from './lib/deadline.ts';
import { findPath, openPath } from './lib/opened-path.ts';
import { createPathExists } from './lib/path-exists.ts';
import { leftoversIn, Removals } from './lib/removals.ts';
import { machineSize } from './machine.ts';
import { createMeta } from './meta/app.ts';
import { checkOpenFiles } from './open-files.ts';
import { createRegistry } from './registry/registry.ts';
import type { Drivers } from './sandbox/drivers.ts';
import { Interpreters } from './sandbox/host/interpreters.ts';
import { type DataDir, openDataDir } from './storage/data-dir.ts';
import { listNodeIds, listSandboxIds } from './storage/node-rows.ts';
import { openStores, type Stores } from './storage/stores.ts';
import type { Logger } from './telemetry/logger.ts';
import { createMetrics } from './telemetry/metrics.ts';
import { createTracer } from './telemetry/tracer.ts';
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
    readonly jobsLeft: JobsLeft;
  }>;
}

/** Starts at the same moment: a burst of creates is served, a flood is refused. */
const MAX_STARTING = 1000;
const JOBS_PER_PROCESSOR = 4;
const MEBIBYTE = 1024 * 1024;

/**
 * The composition root: the only place that sees everything. Builds what the configuration asks for in the order of dependence, and closes it
 * in reverse. Fails with `failed_precondition` when the data directory cannot be had.
 */
export async function createServer(config: Config, logger: Logger): Promise<Server> {
  const dataDir = await openDataDir(config.dataDir);
  for (const notice of dataDir.notices) logger.warn({ dataDir: dataDir.path }, notice);
  let stores: Stores | undefined;
  try {
    stores = await openStores(dataDir.databaseFile, { operations: WRITE_OPERATIONS, program: WRITE_PROGRAM });
    return await begin(config, logger, dataDir, stores);
  } catch (error) {
    dataDir.release(await stores?.close(() => dataDir.end()));
    throw error;
  }
}

/** Everything that can be seen to be wrong is reported before anything that runs is touched. */
async function begin(config: Config, logger: Logger, dataDir: DataDir, stores: Stores): Promise<Server> {
  const { database, refuseWrites } = stores;
  const nodeId = await dataDir.nodeId(await listNodeIds(database));
  await checkOpenFiles((await listSandboxIds(database)).length);
  await dataDir.begin(problem => {
    logger.fatal({ dataDir: dataDir.path }, problem);
    refuseWrites(problem);
  });
  return await assemble(config, logger, { dataDir, nodeId, stores });
}

/** As it is built: what is written in TypeScript cannot be the program of a thread. */
const WRITE_PROGRAM = new URL('write-program.js', import.meta.url);

async function assemble(
  config: Config,
  logger: Logger,
  { dataDir, nodeId, stores }: { readonly dataDir: DataDir; readonly nodeId: string; readonly stores: Stores },
): Promise<Server> {
  const { database, writes } = stores;
  const metrics = createMetrics({ version: VERSION });
  const tracer = createTracer(VERSION);
  const removals = new Removals({
    directory: leftoversIn(dataDir.path),
    report: (name, reason) => logger.warn({ name, reason }, 'something was not removed; it is tried again'),
  });
  metrics.readLeftoversFrom(() => removals.waiting);
  const environment = processEnvironment();
  const { drivers, mountPolicy, sweptDrivers } = await createInstallation(config, { environment, removals, logger });
  const executors = { defaultSandboxType: config.defaultExecutor };
  const registry = createRegistry({
    database,
    writes,
    business: config.business,
    clusters: config.clusters,
    exists: createPathExists(path =>
      checkHostPath('code path', path, mountPolicy, findPath).then(
        () => true,
        () => false,
      ),
    ),
  });

  const ledger = new Ledger({
    machine: await machineSize(),
    overcommit: config.overcommit,
    openCallBytes: openCallBytes(config),
  });
  const driverOf = (name: SandboxType) => drivers.get(name);
  const instances = new Instances(database, {
    drivers: driverOf,
    sweptDrivers,
    nodeId,
    log: logger,
    metrics: metrics.instances,
    createTimeoutMs: config.createTimeoutMs,
    orphanGraceMs: config.orphanGraceMs,
    reconcileIntervalMs: config.reconcileIntervalMs,
  });
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
  };
  const starter = new SandboxStarter({
    ...sandboxes,
    openCallBytes: ledger.openCallBytes,
    codeStore: createCodeStore(config, mountPolicy, removals),
  });
  const pythons = new Interpreters(config.process.pythons, environment);
  const jobs = createJobs({
    ...sandboxes,
    writes,
    driver: () => driverOf('process'),
    dataDir: dataDir.path,
    removals,
    python: async () => (await (config.jobs.python === '' ? pythons.findAny() : pythons.find(config.jobs.python))).path,
    openHostPath: config.jobs.allowHostPaths ? path => checkHostPath('workspace', path, mountPolicy, openPath) : null,
    sandbox: sandboxes,
    metrics: metrics.jobs,
    ...jobLimits(config, environment),
  });
  metrics.readJobsFrom(() => jobs.jobs.byStatus());
  const agents = new Agents({ ...sandboxes, maxWaitingCalls: config.maxWaitingCalls });
  metrics.readGaugesFrom(agents);
  metrics.readPromisesFrom(() => ({ ...ledger.promised.by, limit: ledger.promised.limit }));

  const functions = new FunctionService({
    catalog: createCatalog(registry, database, executors),
    starter,
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
    log: logger,
  });
  metrics.readFunctionInstancesFrom(() => functions.countInstances());
  const asyncCalls = new AsyncCalls({
    database,
    durable: writes,
    invoke: invocation => functions.invoke(invocation),
    deliver: config.functions.webhookPrefixes.length > 0 ? (url, answer) => deliverWebhook(url, answer, logger) : null,
    maxOpen: config.functions.maxAsyncCalls,
    maxOpenPerTenant: config.functions.maxAsyncCallsPerTenant,
    maxRunning: config.functions.maxAsyncRunning,
    keepMs: config.functions.asyncResultMs,
    log: logger,
  });

  const asksLocalToken = config.auth === null && config.localToken;
  const verifier = await createVerifier(config, dataDir);
  let isStarted = false;
  let tellStarted!: () => void;
  const started = new Promise<void>(resolve => {
    tellStarted = resolve;
  });
  const shared = {
    version: VERSION,
    auth: verifier,
    started,
    ready: () => {
      const storage = dataDir.problem() ?? writes.problem();
      return {
        ...(isStarted ? {} : { server: 'starting' }),
        ...(storage === null ? {} : { storage }),
        ...instances.readiness(),
      };
    },
    log: logger,
    slowMs: config.slowCallMs,
    ownDirectories: [dataDir.path, fileURLToPath(new URL('..', import.meta.url))],
    metricsTenants: config.auth === null ? null : config.metrics.tenants,
    bounds: {
      maxConnections: config.maxConnections,
      maxConnectionsOfAddress: Math.max(1, Math.floor((config.maxConnections * config.connectionShare) / 100)),
      maxBodyBytes: config.maxUnfinishedBodyMb * MEBIBYTE,
      bodyIdleMs: config.bodyIdleMs,
      maxAnswerBytes: config.maxUnreadAnswerMb * MEBIBYTE,
      answerIdleMs: config.answerIdleMs,
    },
  };
  const frontend = config.frontend.enabled
    ? createFrontend({
        ...shared,
        hosts: { boundHost: config.host, allowedHosts: config.allowedHosts },
        metrics: metrics.entry('frontend'),
        tracer,
        invoked: metrics.invoked,
        instances: agents,
        functions: registry.resolver,
        executors,
        mountPolicy,
        findPath,
        jobs,
        service: {
          functions,
          asyncCalls,
          business: config.business,
          ownTenantOnly: config.auth !== null,
          webhookPrefixes: config.functions.webhookPrefixes.length > 0 ? config.functions.webhookPrefixes : null,
          tracer,
        },
      })
    : null;
  const meta = config.meta.enabled
    ? createMeta({
        ...shared,
        hosts: { boundHost: config.metaHost, allowedHosts: config.allowedHosts },
        metrics: metrics.entry('meta_service'),
        registry,
      })
    : null;

  return {
    uncaught: metrics.uncaught,

    async start() {
      const frontendUrl = await listen(frontend, config.host, config.port);
      const metaUrl = await listen(meta, config.metaHost, config.metaPort);
      await instances.start();
      await jobs.start();
      await functions.start();
      await asyncCalls.start();
      isStarted = true;
      removals.start();
      tellStarted();
      warmUp(drivers, config.defaultExecutor, logger);
      return { frontendUrl, metaUrl };
    },

    async close({ stopAgents, graceMs }) {
      const deadlineMs = performance.now() + graceMs;
      const left = () => Math.max(0, deadlineMs - performance.now());
      // New connections are refused first; calls that run may end.
      const listeners = Promise.allSettled([frontend?.close(), meta?.close()]);
      const [{ agentsLeft }] = await Promise.all([agents.close({ stopAgents, graceMs }), asyncCalls.close(left())]);
      await endsWithin(listeners, left());
      await functions.close(left());
      const jobsLeft = await jobs.close(stopAgents ? left() : null);
      await instances.close('the server is stopping');
      await drivers.close();
      removals.close();
      if (asksLocalToken) await removeLocalToken(dataDir.path);
      dataDir.release(await stores.close(() => dataDir.end()));
      return { agentsLeft, jobsLeft };
    },
  };
}

/** Null: every caller is trusted. */
async function createVerifier({ auth, localToken }: Config, dataDir: DataDir): Promise<TokenVerifier | null> {
  if (auth !== null) return createJwtVerifier(auth);
  return localToken ? createLocalTokenVerifier(await writeLocalToken(dataDir.path)) : null;
}

/** With authentication on, no tenant's calls take more than half of the memory for open calls, and at least one body of the largest size. */
function openCallBytes({ maxOpenCallMb, auth }: Config): OpenCallBytes {
  const max = maxOpenCallMb * MEBIBYTE;
  return new OpenCallBytes(max, auth === null ? null : Math.max(max / 2, LIMITS.invokeBodyBytes));
}

/** The ledger as instances of functions ask it. */
function functionMachine(ledger: Ledger, processes: number): Machine {
  const sizeOf = ({ cpuMillis, memoryMb }: GroupKey) => ({ cpuMillis, memoryMb, processes });
  return {
    isLargeEnough: key => ledger.isWithinMachine(key),
    isFull: key => !ledger.fits(sizeOf(key)),
    take: key => ledger.take('function', sizeOf(key)),
    give: key => ledger.give('function', sizeOf(key)),
    onGiven: listener => ledger.onGiven(listener),
  };
}

/** How the operator's own pip reaches its index: nothing else of the server's environment comes near a job. */
function pipEnvironment(environment: Environment): Record<string, string> {
  const found = Object.entries(environment).filter(([name]) => PIP_VARIABLES.has(name.toUpperCase()));
  return Object.fromEntries(found.filter((entry): entry is [string, string] => entry[1] !== undefined));
}

const PIP_VARIABLES = new Set([
  ...['PIP_CERT', 'PIP_DEFAULT_TIMEOUT', 'PIP_EXTRA_INDEX_URL', 'PIP_INDEX_URL', 'PIP_PROXY', 'PIP_TRUSTED_HOST'],
  ...['SSL_CERT_DIR', 'SSL_CERT_FILE', 'REQUESTS_CA_BUNDLE', 'ALL_PROXY', 'HTTP_PROXY', 'HTTPS_PROXY', 'NO_PROXY'],
]);

/** Settings in the units of jobs; 0 stands for what this machine has. */
function jobLimits({ jobs, code, createTimeoutMs }: Config, environment: Environment) {
  const maxRunning = jobs.maxRunning || JOBS_PER_PROCESSOR * availableParallelism();
  return {
    environment: jobs.environment,
    pipEnvironment: pipEnvironment(environment),
    cpuMillis: jobs.defaultCpuMillis,
    memoryMb: jobs.defaultMemoryMb,
    limits: {
      maxRunning,
      maxRunningPerTenant: jobs.maxRunningPerTenant || maxRunning,
      cpuMillis: jobs.cpuMillis || availableParallelism() * 1000,
      memoryMb: jobs.memoryMb || Math.floor(totalmem() / MEBIBYTE),
      custom: Object.fromEntries(Object.entries(jobs.resources).map(([name, amount]) => [name, Number(amount)])),
    },
    maxOpen: jobs.maxOpen,
    maxOpenPerTenant: jobs.maxOpenPerTenant,
    maxPackageBytes: jobs.maxPackageMb * MEBIBYTE,
    unpack: { maxBytes: code.maxUnpackedMb * MEBIBYTE, maxEntries: code.maxEntries },
    startTimeoutMs: createTimeoutMs,
    setupTimeoutMs: jobs.setupTimeoutMs,
    stopGraceMs: jobs.stopGraceMs,
    keepMs: jobs.keepMs,
    keepCount: jobs.keepCount,
  };
}

function createCodeStore(config: Config, policy: HostPathPolicy, removals: Removals): CodeStore {
  const { cacheMb, maxArchiveMb, maxUnpackedMb, maxEntries } = config.code;
  const { endpoint, region, accessKeyId, secretAccessKey, allowedEndpoints } = config.s3;
  return new CodeStore({
    dataDir: config.dataDir,
    policy,
    removals,
    s3: { endpoint, region, accessKeyId, secretAccessKey: secretAccessKey ?? '', allowedEndpoints },
    maxCacheBytes: cacheMb * MEBIBYTE,
    maxArchiveBytes: maxArchiveMb * MEBIBYTE,
    maxUnpackedBytes: maxUnpackedMb * MEBIBYTE,
    maxEntries,
  });
}

async function listen(app: FastifyInstance | null, host: string, port: number): Promise<string | null> {
  return app === null ? null : await app.listen({ host, port });
}

/** What makes the first create fast goes on beside the first calls: a server is ready without it. */
function warmUp(drivers: Drivers, executor: SandboxType, logger: Logger): void {
  // Jobs run in process sandboxes, whatever agents run in.
  for (const name of new Set<SandboxType>(['process', executor])) {
    drivers
      .get(name)
      .then(async driver => {
        await driver.warm?.();
        // What an ordinary user's sandboxes lack is in the log from the start, and not only with the first instance.
        if (name === 'process' && process.getuid?.() !== 0) await driver.probe();
      })
      .catch((error: unknown) => logger.warn({ err: error }, `the ${name} sandbox could not be warmed`));
  }
}
