import { fileURLToPath } from 'node:url';
import type { FastifyInstance } from 'fastify';
import type { EventRoutesOptions } from '../api/events/events.ts';
import { createFrontend } from '../api/frontend-app.ts';
import { addMetaRoutes, createMeta } from '../api/meta-app.ts';
import type { HistoryRoutesOptions } from '../api/metrics/history.ts';
import { metaErrors } from '../api/registry/requests.ts';
import type { ClusterNode } from '../cluster/cluster-node.ts';
import type { Cluster } from '../cluster/contract.ts';
import { clusterStatus } from '../cluster/replicas.ts';
import type { Config } from '../config/config.ts';
import { settingsInForce } from '../config/in-force.ts';
import type { ExecutorDefaults } from '../core/agent.ts';
import type { Environment } from '../core/environment.ts';
import type { HostPathPolicy } from '../core/host-path.ts';
import { MEBIBYTE } from '../core/units.ts';
import type { DataDir } from '../data-dir/data-dir.ts';
import type { TokenVerifier } from '../http/access/credentials.ts';
import type { Instances } from '../instances/instances.ts';
import { findPath } from '../lib/opened-path.ts';
import { realPathOf } from '../lib/path-lookup.ts';
import type { Registry } from '../registry/registry.ts';
import type { Secrets } from '../registry/secrets.ts';
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
  readonly observed: Pick<EventRoutesOptions & HistoryRoutesOptions, 'log' | 'history' | 'onSample'>;
  readonly logger: Logger;
}

/** Creates the HTTP entries that the settings enable; for server.ts. null: the entry is disabled. */
export async function createEntries(
  config: Config,
  parts: EntriesParts,
): Promise<{ readonly frontend: FastifyInstance | null; readonly meta: FastifyInstance | null }> {
  const { agents, asyncCalls, codeStore, dependencies, functions, jobs, packages, observed } = parts;
  const { instances, registry, secrets, executors, mountPolicy, drivers, environment, dataDir } = parts;
  const { cluster, replica, storage, database, metrics, tracer, verifier, started, ready, logger } = parts;
  const poolTenants = config.auth === null ? null : config.pools.tenants;
  const shared = {
    version: VERSION,
    auth: verifier,
    started,
    ready,
    log: logger,
    slowMs: config.slowCallMs,
    ownDirectories: [dataDir.path, realPathOf(dataDir.path), fileURLToPath(new URL('..', import.meta.url))],
    metricsTenants: config.auth === null ? null : config.metrics.tenants,
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
  const forwarding =
    cluster?.forwarding(
      {
        isLive: id => instances.isLive(id),
        nodeOfInstance: id => nodeOfInstance(database, id),
        nodeOfJob: (tenant, id, what) => jobs.jobs.nodeOf(tenant, id, what),
      },
      metrics.forwards,
    ) ?? null;
  if (cluster !== null) {
    metrics.readFrom({ cluster: () => cluster.gauges(), peerConnections: () => cluster.openConnections });
  }
  // Other replicas forward to the frontend, even if it is closed to clients.
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
          jobs,
          packages,
          code: { packages, unpacker: codeStore },
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
          documents: fileURLToPath(new URL('docs', import.meta.url)),
          ...(config.meta.enabled && {
            meta: { add: (scope: FastifyInstance) => addMetaRoutes(scope, registry, poolTenants), errors: metaErrors },
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
        poolTenants,
      })
    : null;
  return { frontend, meta };
}
