import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import type { FastifyInstance } from 'fastify';
import type { RecordingStore } from '../api/calls/recordings.ts';
import type { EventRoutesOptions } from '../api/events/events.ts';
import { createFrontend, type FrontendOptions, type SharedEntryOptions } from '../api/frontend-app.ts';
import { addMetaRoutes, createMeta } from '../api/meta-app.ts';
import type { HistoryRoutesOptions } from '../api/metrics/history.ts';
import type { UsageRoutesOptions } from '../api/metrics/usage.ts';
import { metaErrors } from '../api/registry/requests.ts';
import { indexEnvironment } from '../builds/tools.ts';
import type { ClusterNode } from '../cluster/cluster-node.ts';
import type { Cluster } from '../cluster/contract.ts';
import { clusterStatus } from '../cluster/replicas.ts';
import { SingleFiles } from '../code/single-file.ts';
import type { Config } from '../config/config.ts';
import { settingsInForce } from '../config/in-force.ts';
import type { ExecutorDefaults } from '../core/agent.ts';
import type { Environment } from '../core/environment.ts';
import type { CallSink } from '../core/finished-call.ts';
import type { HostPathPolicy } from '../core/host-path.ts';
import { MEBIBYTE } from '../core/units.ts';
import type { DataDir } from '../data-dir/data-dir.ts';
import { CallReader } from '../history/call-reader.ts';
import type { TokenVerifier } from '../http/access/credentials.ts';
import type { ForwardingOptions } from '../http/forwarding.ts';
import type { Instances } from '../instances/instances.ts';
import { findPath } from '../lib/opened-path.ts';
import { realPathOf } from '../lib/path-lookup.ts';
import type { ApiKeys } from '../registry/api-keys.ts';
import type { AwsKeys } from '../registry/aws-keys.ts';
import type { Registry } from '../registry/registry.ts';
import type { Secrets } from '../registry/secrets.ts';
import type { Templates } from '../registry/templates.ts';
import type { Drivers } from '../sandbox/drivers.ts';
import type { Database } from '../storage/database.ts';
import { nodeOfInstance } from '../storage/queries/instances.ts';
import { readAddressKey } from '../storage/queries/nodes.ts';
import type { Stores } from '../storage/stores-contract.ts';
import type { Logger } from '../telemetry/logger.ts';
import type { Metrics } from '../telemetry/metrics.ts';
import type { Tracer } from '../telemetry/tracer.ts';
import { VERSION } from '../version.ts';
import { addressDomain } from './configured-parts.ts';
import { findingsOf } from './observed.ts';
import type { Owners } from './owners.ts';
import { ServiceImages } from './service-images.ts';

export interface EntriesParts
  extends Pick<Owners, 'agents' | 'asyncCalls' | 'codeStore' | 'dependencies' | 'functions' | 'jobs' | 'packages'> {
  readonly instances: Instances;
  readonly registry: Registry;
  readonly secrets: Secrets;
  readonly apiKeys: ApiKeys;
  readonly awsKeys: AwsKeys;
  readonly templates: Templates;
  readonly executors: ExecutorDefaults;
  readonly mountPolicy: HostPathPolicy;
  readonly drivers: Drivers;
  readonly environment: Environment;
  readonly dataDir: DataDir;
  /** Cluster of this replica. null: there are no other replicas. */
  readonly cluster: ClusterNode | null;
  readonly replica: Cluster;
  readonly storage: Stores['kind'];
  readonly database: Database;
  readonly metrics: Metrics;
  readonly tracer: Tracer;
  readonly verifier: TokenVerifier | null;
  /** Resolves when all parts behind the entries have started. */
  readonly started: Promise<void>;
  readonly ready: () => Readonly<Record<string, string>>;
  readonly observed: Pick<
    EventRoutesOptions & HistoryRoutesOptions & UsageRoutesOptions,
    'log' | 'history' | 'usage' | 'onSample'
  >;
  readonly callSink: CallSink;
  readonly recordings: RecordingStore;
  readonly logger: Logger;
}

type SharedOptions = Omit<SharedEntryOptions, 'hosts' | 'metrics' | 'forwarding'>;

/** Creates the HTTP entries that the settings enable; for server.ts. null: the entry is disabled. */
export async function createEntries(
  config: Config,
  parts: EntriesParts,
): Promise<{ readonly frontend: FastifyInstance | null; readonly meta: FastifyInstance | null }> {
  const { cluster, metrics, registry, database } = parts;
  const shared = sharedOptions(config, parts);
  const forwarding = forwardingOf(parts);
  if (cluster !== null) {
    metrics.readFrom({ cluster: () => cluster.gauges(), peerConnections: () => cluster.openConnections });
  }
  // Other replicas forward to the frontend, even if it is closed to clients.
  const frontend =
    config.frontend.enabled || forwarding !== null
      ? createFrontend({
          ...shared,
          forwarding,
          addresses: { domain: addressDomain(config), key: await readAddressKey(database) },
          ...frontendOptions(config, parts),
        })
      : null;
  const meta = config.meta.enabled
    ? createMeta({
        ...shared,
        hosts: { boundHost: config.metaHost, allowedHosts: config.allowedHosts },
        metrics: metrics.entry('meta_service'),
        registry,
        poolTenants: poolTenantsOf(config),
      })
    : null;
  return { frontend, meta };
}

/** Returns the options that both entries have in common. */
function sharedOptions(config: Config, parts: EntriesParts): SharedOptions {
  const { verifier, started, ready, logger, dataDir } = parts;
  return {
    version: VERSION,
    auth: verifier,
    started,
    ready,
    log: logger,
    slowMs: config.slowCallMs,
    ownDirectories: [dataDir.path, realPathOf(dataDir.path), fileURLToPath(new URL('..', import.meta.url))],
    metricsTenants: metricsTenantsOf(config),
    bounds: {
      maxConnections: config.maxConnections,
      maxConnectionsOfAddress: Math.max(1, Math.floor((config.maxConnections * config.connectionShare) / 100)),
      maxBodyBytes: config.maxUnfinishedBodyMb * MEBIBYTE,
      bodyIdleMs: config.bodyIdleMs,
      maxAnswerBytes: config.maxUnreadAnswerMb * MEBIBYTE,
      answerIdleMs: config.answerIdleMs,
      keepAliveMs: config.keepAliveMs,
    },
  };
}

/** Returns the options that forward requests to other replicas. null: there are no other replicas. */
function forwardingOf({ cluster, instances, database, jobs, metrics }: EntriesParts): ForwardingOptions | null {
  return (
    cluster?.forwarding(
      {
        isLive: id => instances.isLive(id),
        nodeOfInstance: id => nodeOfInstance(database, id),
        nodeOfJob: (tenant, id, what) => jobs.jobs.nodeOf(tenant, id, what),
      },
      metrics.forwards,
    ) ?? null
  );
}

/** Returns the options of the frontend alone. */
function frontendOptions(
  config: Config,
  parts: EntriesParts,
): Omit<FrontendOptions, keyof SharedOptions | 'forwarding' | 'addresses'> {
  const { agents, codeStore, dependencies, jobs, packages } = parts;
  const { registry, secrets, executors, mountPolicy, replica, storage, metrics, tracer } = parts;
  return {
    hosts: { boundHost: config.host, allowedHosts: config.allowedHosts },
    metrics: metrics.entry('frontend'),
    tracer,
    e2b: { keys: parts.apiKeys, domain: config.e2b.domain, templates: templateOptions(config, parts) },
    images: new ServiceImages(parts.drivers, parts.logger),
    invoked: metrics.invoked,
    callSink: parts.callSink,
    history: { calls: new CallReader(parts.database), recordings: parts.recordings },
    instances: agents,
    functions: registry.resolver,
    executors,
    mountPolicy,
    findPath,
    jobs,
    packages,
    code: { packages, unpacker: codeStore },
    builds: { dependencies, executors },
    secrets,
    cluster: { status: () => clusterStatus(replica, storage), visibleTo: metricsTenantsOf(config) },
    observed: observedOptions(config, parts),
    dashboard: fileURLToPath(new URL('dashboard', import.meta.url)),
    documents: fileURLToPath(new URL('docs', import.meta.url)),
    ...(config.meta.enabled && {
      meta: {
        add: (scope: FastifyInstance) => addMetaRoutes(scope, registry, poolTenantsOf(config)),
        errors: metaErrors,
      },
    }),
    service: serviceOptions(config, parts),
    lambda: {
      registry: registry.functions,
      code: { packages, unpacker: codeStore },
      canChange: config.meta.enabled,
      keys: parts.awsKeys,
    },
    mcp: registry.functions,
  };
}

/** Returns the options of templates that tenants build. */
function templateOptions(
  config: Config,
  { templates, packages, codeStore, dataDir, environment }: EntriesParts,
): NonNullable<FrontendOptions['e2b']['templates']> {
  const { pythonIndex, npmRegistry, timeoutSeconds } = config.dependencies;
  return {
    templates,
    packages,
    files: new SingleFiles({ packages, unpacker: codeStore, directory: join(dataDir.path, 'template-files') }),
    indexEnvironment: () => indexEnvironment(environment, { pythonIndex, npmRegistry }),
    timeoutMs: timeoutSeconds * 1000,
  };
}

function observedOptions(
  config: Config,
  { observed, environment, drivers }: EntriesParts,
): Required<FrontendOptions>['observed'] {
  return {
    ...observed,
    visibleTo: metricsTenantsOf(config),
    settings: () => settingsInForce(config),
    findings: () => findingsOf(config, environment, drivers),
  };
}

function serviceOptions(
  config: Config,
  { functions, asyncCalls, tracer }: EntriesParts,
): Required<FrontendOptions>['service'] {
  return {
    functions,
    asyncCalls,
    business: config.business,
    ownTenantOnly: config.auth !== null,
    webhookPrefixes: config.functions.webhookPrefixes.length > 0 ? config.functions.webhookPrefixes : null,
    tracer,
  };
}

/** Returns the tenants that see all metrics. null: every tenant, because authentication is off. */
function metricsTenantsOf(config: Config): readonly string[] | null {
  return config.auth === null ? null : config.metrics.tenants;
}

/** Returns the tenants that may change pools. null: every tenant, because authentication is off. */
function poolTenantsOf(config: Config): readonly string[] | null {
  return config.auth === null ? null : config.pools.tenants;
}
