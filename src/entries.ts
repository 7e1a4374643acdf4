import { fileURLToPath } from 'node:url';
import type { FastifyInstance } from 'fastify';
import type { ClusterNode } from './cluster/cluster-node.ts';
import type { Cluster } from './cluster/contract.ts';
import { clusterStatus } from './cluster/status.ts';
import type { Config } from './config/config.ts';
import { settingsInForce } from './config/in-force.ts';
import { addressDomain } from './configured-parts.ts';
import type { ExecutorDefaults } from './core/agent.ts';
import type { Environment } from './core/environment.ts';
import type { HostPathPolicy } from './core/host-path.ts';
import { createFrontend } from './frontend/app.ts';
import type { EventRoutesOptions } from './frontend/events/events.ts';
import type { HistoryRoutesOptions } from './frontend/metrics/history.ts';
import type { TokenVerifier } from './http/credentials.ts';
import type { Instances } from './instances/instances.ts';
import type { CpuLatency } from './lib/cpu-latency.ts';
import { findPath } from './lib/opened-path.ts';
import { addMetaRoutes, createMeta } from './meta/app.ts';
import { metaErrors } from './meta/errors.ts';
import { findingsOf } from './observed.ts';
import type { Owners } from './owners.ts';
import type { Registry } from './registry/registry.ts';
import type { Secrets } from './registry/secrets.ts';
import type { Drivers } from './sandbox/drivers.ts';
import { readAddressKey } from './storage/address-key.ts';
import type { DataDir } from './storage/data-dir.ts';
import type { Database } from './storage/database.ts';
import { nodeOfInstance } from './storage/instances.ts';
import type { Stores } from './storage/stores-contract.ts';
import type { Logger } from './telemetry/logger.ts';
import type { Metrics } from './telemetry/metrics.ts';
import type { Tracer } from './telemetry/tracer.ts';
import { VERSION } from './version.ts';

export interface EntriesParts
  extends Pick<Owners, 'agents' | 'asyncCalls' | 'codeStore' | 'dependencies' | 'functions' | 'jobs' | 'packages'> {
  readonly instances: Instances;
  readonly registry: Registry;
  readonly secrets: Secrets;
  readonly executors: ExecutorDefaults;
  readonly mountPolicy: HostPathPolicy;
  readonly drivers: Drivers;
  readonly environment: Environment;
  readonly dataDir: DataDir;
  readonly cpuLatency: CpuLatency | null;
  /** Null: there are no other replicas. */
  readonly cluster: ClusterNode | null;
  readonly replica: Cluster;
  readonly storage: Stores['kind'];
  readonly database: Database;
  readonly metrics: Metrics;
  readonly tracer: Tracer;
  readonly verifier: TokenVerifier | null;
  /** Resolves when everything behind the entries has started. */
  readonly started: Promise<void>;
  readonly ready: () => Readonly<Record<string, string>>;
  readonly observed: Pick<EventRoutesOptions & HistoryRoutesOptions, 'log' | 'history' | 'onSample'>;
  readonly logger: Logger;
}

const MEBIBYTE = 1024 * 1024;

/** The HTTP entries that the settings want, over what they show; for server.ts. An entry that is null is not wanted. */
export async function createEntries(
  config: Config,
  parts: EntriesParts,
): Promise<{ readonly frontend: FastifyInstance | null; readonly meta: FastifyInstance | null }> {
  const { agents, asyncCalls, codeStore, dependencies, functions, jobs, packages, observed } = parts;
  const { instances, registry, secrets, executors, mountPolicy, drivers, environment, dataDir, cpuLatency } = parts;
  const { cluster, replica, storage, database, metrics, tracer, verifier, started, ready, logger } = parts;
  const shared = {
    version: VERSION,
    auth: verifier,
    started,
    ready,
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
  const forwarding =
    cluster?.forwarding(
      {
        isLive: id => instances.isLive(id),
        nodeOfInstance: id => nodeOfInstance(database, id),
        nodeOfJob: (tenant, id, what) => jobs.jobs.nodeOf(tenant, id, what),
      },
      metrics.forwards,
    ) ?? null;
  metrics.readPeerConnectionsFrom(() => cluster?.openConnections ?? 0);
  if (cluster !== null) metrics.readClusterFrom(() => cluster.gauges());
  // Other replicas forward to it, whether or not callers may come.
  const frontend =
    config.frontend.enabled || forwarding !== null
      ? createFrontend({
          ...shared,
          forwarding,
          hosts: { boundHost: config.host, allowedHosts: config.allowedHosts },
          addresses: { domain: addressDomain(config), key: await readAddressKey(database) },
          metrics: metrics.entry('frontend'),
          tracer,
          invoked: metrics.invoked,
          instances: agents,
          functions: registry.resolver,
          executors,
          mountPolicy,
          findPath,
          cpuLatency,
          jobs,
          packages,
          code: { packages, prove: (...args) => codeStore.take(...args) },
          builds: { dependencies, executors },
          secrets,
          cluster: {
            status: () => clusterStatus(replica, storage),
            visibleTo: config.auth === null ? null : config.metrics.tenants,
          },
          observed: {
            ...observed,
            visibleTo: config.auth === null ? null : config.metrics.tenants,
            settings: () => settingsInForce(config),
            findings: () => findingsOf(config, environment, drivers),
          },
          dashboard: fileURLToPath(new URL('dashboard', import.meta.url)),
          ...(config.meta.enabled && {
            meta: { add: (scope: FastifyInstance) => addMetaRoutes(scope, registry), errors: metaErrors },
          }),
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
  return { frontend, meta };
}
