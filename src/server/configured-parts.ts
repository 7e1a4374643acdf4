import { availableParallelism, totalmem } from 'node:os';
import { join } from 'node:path';
import { type AddressDomain, LOCAL_DOMAIN } from '../api/passthrough/address-targets.ts';
import { CodeDependencies, type CodeDependenciesOptions } from '../builds/code-dependencies.ts';
import { pipEnvironment } from '../builds/tools.ts';
import { CodePackages, type CodePackagesOptions } from '../code/code-packages.ts';
import { CodeStore } from '../code/code-store.ts';
import type { Config } from '../config/config.ts';
import { writeLocalToken } from '../config/local-token.ts';
import type { Environment } from '../core/environment.ts';
import { failedPrecondition } from '../core/error.ts';
import type { HostPathPolicy } from '../core/host-path.ts';
import { LIMITS } from '../core/limits.ts';
import { MEBIBYTE } from '../core/units.ts';
import type { DataDir } from '../data-dir/data-dir.ts';
import type { Machine } from '../functions/capacity.ts';
import type { GroupKey } from '../functions/policy.ts';
import { CallHistory, type CallHistoryOptions } from '../history/call-history.ts';
import { Redaction } from '../history/redaction.ts';
import { SecretValues } from '../history/secret-values.ts';
import { shownSpans } from '../history/span-column.ts';
import type { TokenVerifier } from '../http/access/credentials.ts';
import { createLocalTokenVerifier } from '../http/access/credentials.ts';
import { createJwtVerifier } from '../http/access/jwt.ts';
import type { Ledger } from '../instances/ledger.ts';
import type { SandboxRules } from '../instances/sandbox-spec.ts';
import { TenantBudget } from '../lib/budgets.ts';
import { findPythonDir } from '../lib/own-paths.ts';
import { bootIdIfKnown } from '../lib/process-name.ts';
import type { Removals } from '../lib/removals.ts';
import type { TenantDisk } from '../lib/tenant-disk.ts';
import { createObjectStore, type ObjectStore } from '../object-store/object-store.ts';
import { findNode } from '../runtime/nodes.ts';
import type { Logger } from '../telemetry/logger.ts';
import type { Metrics } from '../telemetry/metrics.ts';
import { NO_TRACER, registeredTracer, type SpanReader, type Tracer } from '../telemetry/tracer.ts';
import { VERSION } from '../version.ts';

/** Factories of parts from the settings; for server.ts. */

const JOBS_PER_PROCESSOR = 4;
const HOUR_MS = 3_600_000;

/** Returns the verifier of tokens; null: every client is trusted. */
export async function createVerifier(
  { auth, localToken }: Config,
  dataDir: DataDir,
  { logger, metrics }: { readonly logger: Logger; readonly metrics: Pick<Metrics, 'keysFetched'> },
): Promise<TokenVerifier | null> {
  if (auth !== null) {
    if (auth.warning !== null) logger.warn({}, auth.warning);
    return createJwtVerifier(auth, problem => {
      metrics.keysFetched(problem === null);
      if (problem !== null) logger.warn({ reason: problem }, 'fetch of jwt.jwksUrl failed; retrying');
    });
  }
  return localToken ? createLocalTokenVerifier(await writeLocalToken(dataDir.path)) : null;
}

/** Returns the history of calls; null: the settings keep none. */
export function createCallHistory(
  { history }: Config,
  parts: Pick<CallHistoryOptions, 'database' | 'writes' | 'nodeId' | 'nameOfAgent' | 'secretsOf' | 'log'>,
): CallHistory | null {
  const { days, tenantMb, slowMs, perSecond, bodyBytes, redact } = history;
  if (days === 0) return null;
  return new CallHistory({
    ...parts,
    bodyBytes,
    rules: { slowMs, perSecond },
    keepMs: days * 24 * HOUR_MS,
    maxBytesPerTenant: tenantMb * MEBIBYTE,
    redaction: new Redaction(redact),
  });
}

/** Returns what replaces hidden values in the spans of handlers before they leave the service. */
export function createSpanReader({ history }: Config, secretsOf: CallHistoryOptions['secretsOf']): SpanReader {
  const redaction = new Redaction(history.redact);
  return async ({ tenant, json }) => {
    const secrets = new SecretValues(await secretsOf(tenant));
    return shownSpans(json, { redaction, secrets, hasAttributes: true });
  };
}

/** Returns the domain of the addresses of exposed ports. */
export function addressDomain({ addresses: { domain, scheme } }: Config): AddressDomain {
  return { domain, scheme: domain === LOCAL_DOMAIN || domain.startsWith(`${LOCAL_DOMAIN}:`) ? 'http' : scheme };
}

/**
 * Returns the budget for open calls. With authentication, a tenant may use half of it, and at least one body
 * of the largest size.
 */
export function openCallBytes({ maxOpenCallMb, auth }: Config): TenantBudget {
  const max = maxOpenCallMb * MEBIBYTE;
  return new TenantBudget(max, auth === null ? null : Math.max(max / 2, LIMITS.invokeBodyBytes));
}

/** Returns the ledger as the machine of function instances. */
export function functionMachine(ledger: Ledger, processes: number): Machine {
  const sizeOf = ({ cpuMillis, memoryMb }: GroupKey) => ({ cpuMillis, memoryMb, processes });
  return {
    isLargeEnough: key => ledger.isWithinMachine(key),
    isFull: key => !ledger.fits(sizeOf(key)),
    reserve: key => ledger.reserve('function', sizeOf(key)),
    release: key => ledger.release('function', sizeOf(key)),
    onReleased: listener => ledger.onRelease(listener),
  };
}

/** Returns the complete URL of the collector of spans; null: spans are not sent. */
export function tracesUrl({ tracing: { endpoint } }: Config): string | null {
  if (endpoint === '') return null;
  const { pathname } = new URL(endpoint);
  return new URL(pathname === '/' ? '/v1/traces' : pathname, endpoint).href;
}

/**
 * Returns the tracer: the SDK that the operator has registered, else an exporter to `tracing.endpoint`.
 * `close` sends the pending spans.
 */
export async function openTracer(
  config: Config,
  { environment, nodeId, log }: { readonly environment: Environment; readonly nodeId: string; readonly log: Logger },
): Promise<{ readonly tracer: Tracer; readonly close: () => Promise<void> }> {
  const registered = registeredTracer(VERSION);
  if (registered !== undefined) return { tracer: registered, close: async () => undefined };
  const url = tracesUrl(config);
  if (url === null) return { tracer: NO_TRACER, close: async () => undefined };
  const protocol = environment.OTEL_EXPORTER_OTLP_TRACES_PROTOCOL || environment.OTEL_EXPORTER_OTLP_PROTOCOL;
  if (protocol && protocol !== 'http/protobuf') {
    log.warn(
      { protocol },
      'spans are sent as http/protobuf: tracing.endpoint has to be a port that takes it (4318 of a collector)',
    );
  }
  // Imported only here, because loading the SDK delays the start.
  const { exportSpans } = await import('../telemetry/span-export.ts');
  return exportSpans({ version: VERSION, nodeId, url, log });
}

/** Returns the settings in the units of jobs. A setting of 0 becomes the machine's capacity. */
export function jobLimits({ jobs, code, dependencies, createTimeoutMs }: Config, environment: Environment) {
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
    environmentLimits: layerLimits(dependencies),
    startTimeoutMs: createTimeoutMs,
    setupTimeoutMs: jobs.setupTimeoutMs,
    stopGraceMs: jobs.stopGraceMs,
    keepMs: jobs.keepMs,
    keepCount: jobs.keepCount,
  };
}

export function createJobStore({ jobs, s3 }: Config): ObjectStore | null {
  const { endpoint, region, accessKeyId, secretAccessKey } = s3;
  const account = { endpoint, region, accessKeyId, secretAccessKey: secretAccessKey ?? '' };
  return jobs.store === '' ? null : createObjectStore(jobs.store, account);
}

export function createCodePackages(
  { code, dataDir }: Config,
  parts: Pick<
    CodePackagesOptions,
    'database' | 'writes' | 'removals' | 'store' | 'isShared' | 'mayCollect' | 'disk' | 'log'
  >,
): CodePackages {
  return new CodePackages({
    ...parts,
    dataDir,
    maxBytes: code.maxArchiveMb * MEBIBYTE,
    keepMs: code.keepHours * HOUR_MS,
  });
}

export function createCodeStore(
  config: Config,
  policy: HostPathPolicy,
  removals: Removals,
  packages: CodePackages,
  disk: TenantDisk,
): CodeStore {
  const { cacheMb, maxArchiveMb, maxUnpackedMb, maxEntries } = config.code;
  const { endpoint, region, accessKeyId, secretAccessKey, allowedEndpoints } = config.s3;
  return new CodeStore({
    dataDir: config.dataDir,
    bootId: bootIdIfKnown(),
    policy,
    removals,
    packages,
    disk,
    s3: { endpoint, region, accessKeyId, secretAccessKey: secretAccessKey ?? '', allowedEndpoints },
    maxCacheBytes: cacheMb * MEBIBYTE,
    maxArchiveBytes: maxArchiveMb * MEBIBYTE,
    maxUnpackedBytes: maxUnpackedMb * MEBIBYTE,
    maxEntries,
  });
}

function layerLimits({ maxMb, cacheMb }: Config['dependencies']) {
  return { maxBytes: maxMb * MEBIBYTE, maxUnusedBytes: cacheMb * MEBIBYTE };
}

/** Most CPU of a build; a machine with fewer processors gives all of them. */
const BUILD_CPU_MILLIS = 2000;

export function createDependencies(
  { dependencies, dataDir }: Config,
  parts: Pick<
    CodeDependenciesOptions,
    'driver' | 'environment' | 'instances' | 'ledger' | 'log' | 'packages' | 'policy' | 'python' | 'removals' | 'disk'
  > & { readonly rules: SandboxRules },
): CodeDependencies {
  const cpuMillis = Math.min(BUILD_CPU_MILLIS, availableParallelism() * 1000);
  const { pythonIndex, npmRegistry } = dependencies;
  return new CodeDependencies({
    ...parts,
    dataDir,
    rules: { ...parts.rules, network: 'host', memoryMb: dependencies.memoryMb, cpuMillis },
    node(runtime) {
      const node = findNode(runtime.slice('nodejs'.length), parts.environment);
      if ('problem' in node)
        throw failedPrecondition(`invalid function: runtime ${runtime} is not available: ${node.problem}`);
      return node;
    },
    programs: join(findPythonDir(), 'rookery_build'),
    hasNetwork: dependencies.network === 'host',
    index: { pythonIndex, npmRegistry },
    timeoutMs: dependencies.timeoutSeconds * 1000,
    ...layerLimits(dependencies),
    keepMs: dependencies.keepHours * HOUR_MS,
  });
}
