import type { CodeSubject } from '../builds/code-dependencies.ts';
import type { CodeSource } from '../code/code-source.ts';
import type { ExecutorDefaults } from '../core/agent.ts';
import { CODE_TARGET } from '../core/code-package.ts';
import { SERVICE_CODES } from '../core/codes.ts';
import { failedPrecondition, ServiceError } from '../core/error.ts';
import { codePackageOf, type FunctionSpec, type FunctionVersion } from '../core/function.ts';
import { lambdaLayersOf } from '../core/lambda-layers.ts';
import { runsImages } from '../core/sandbox-types.ts';
import { formatUrn, parseUrn } from '../core/urn.ts';
import { toAgentFunction } from '../registry/agent-functions.ts';
import type { Registry } from '../registry/registry.ts';
import type { Database } from '../storage/database.ts';
import { listWarmVersions } from '../storage/queries/functions.ts';
import type { FunctionCatalog, FunctionDefinition } from './catalog.ts';

const DEFAULT_SCALE_DOWN_MS = 60_000;
const DEFAULT_MAX_WAITING = 1000;
const KINDS = ['faas', 'agent'];

/** Makes the catalog of the callable versions from the registry. */
export function createCatalog(registry: Registry, database: Database, defaults: ExecutorDefaults): FunctionCatalog {
  return {
    async find(text) {
      const urn = parseUrn(text);
      if (!urn || urn.version === null || urn.business !== registry.business) return null;
      const found = await registry.functions.get(urn.tenant, urn.name, urn.version).catch(error => {
        if (error instanceof ServiceError && error.code === 'not_found') return null;
        throw error;
      });
      if (!found) return null;
      const { kind } = found.spec;
      if (!KINDS.includes(kind)) {
        throw failedPrecondition(`a function of kind ${kind} cannot be invoked here: only faas and agent can`, {
          number: SERVICE_CODES.badCall.code,
        });
      }
      return toDefinition(found, defaults);
    },

    async labels(text) {
      const urn = parseUrn(text);
      if (!urn || urn.version === null) return new Map();
      const reservations = await registry.reservations.list(urn.tenant, urn.name, urn.version);
      return new Map(
        reservations.map(({ label, clusters }) => [
          label,
          {
            min: clusters.reduce((sum, cluster) => sum + cluster.minInstance, 0),
            max: clusters.reduce((sum, cluster) => sum + cluster.maxInstance, 0),
          },
        ]),
      );
    },

    async warm(functionUrn) {
      const of = functionUrn === null ? null : parseUrn(functionUrn);
      const versions = await listWarmVersions(database, of);
      return versions.map(version => formatUrn({ business: registry.business, ...version }));
    },

    onChange: listener =>
      registry.onChange(
        ({ tenant, name, mayKeepInstances }) => {
          listener(formatUrn({ business: registry.business, tenant, name, version: null }), mayKeepInstances);
        },
        () => listener(null, true),
      ),
  };
}

function toDefinition(fn: FunctionVersion, { defaultSandboxType }: ExecutorDefaults): FunctionDefinition {
  const { spec } = fn;
  const runs = toAgentFunction(fn);
  const sandboxType = runs.sandboxType === '' ? defaultSandboxType : runs.sandboxType;
  const hasImage = runsImages(sandboxType);
  const scale = spec.autoScaleConfig;
  const oneshot = isOneshot(spec.schedulePolicies);
  const lambdaLayers = lambdaLayersOf(spec);
  return {
    urn: fn.urn,
    tenant: fn.tenant,
    name: spec.name,
    version: fn.version,
    revisionId: fn.revisionId,
    sandboxType,
    runtime: runs.runtime,
    ...(spec.httpProfile !== '' && { httpProfile: spec.httpProfile }),
    handler: runs.handler,
    initializer: runs.initializer,
    preStop: runs.preStop,
    code: codeSource(fn, hasImage),
    ...(spec.dependencies !== '' && { dependencies: spec.dependencies }),
    ...(lambdaLayers.length > 0 && { lambdaLayers }),
    rootfs: { type: hasImage ? 'image' : 'host', imageUrl: runs.imageUrl, user: runs.user },
    ports: runs.ports,
    mounts: runs.mounts,
    environment: runs.environment,
    cpuMillis: runs.cpuMillis,
    memoryMb: runs.memoryMb,
    customResources: canonical(spec.customResources),
    timeoutMs: runs.callTimeoutMs,
    initTimeoutMs: runs.initTimeoutMs,
    preStopTimeoutMs: runs.preStopTimeoutMs,
    ...(spec.expose?.port && { expose: spec.expose }),
    ...(spec.validateInput && spec.inputSchema && { inputSchema: spec.inputSchema }),
    usesSessionContext: spec.enableSessionCtx,
    poolId: spec.poolId,
    scaling: {
      concurrency: oneshot ? 1 : spec.concurrentNum,
      minInstances: spec.minInstance,
      maxInstances: spec.maxInstance,
      scaleDownMs: scale && scale.scaleDownTime > 0 ? scale.scaleDownTime : DEFAULT_SCALE_DOWN_MS,
      slaQuotaMs: scale && scale.slaQuota > 0 ? scale.slaQuota : null,
      maxWaiting: scale && scale.burstScaleNum > 0 ? scale.burstScaleNum : DEFAULT_MAX_WAITING,
      oneshot,
    },
  };
}

/**
 * Returns where the code of a version comes from. A function of kind agent may name no storage. A mount or
 * the image must then contain the code, as for agents that are made from the function.
 */
function codeSource({ spec, revisionId, tenant }: FunctionVersion, hasImage: boolean): CodeSource {
  const sha256 = codePackageOf(spec);
  if (sha256 !== null) return { storage: 'package', tenant, sha256 };
  if (spec.storageType === 's3' && spec.s3CodePath) {
    return { storage: 's3', object: spec.s3CodePath, revision: revisionId };
  }
  if (spec.storageType === '') {
    const mounts = spec.rootfs?.mounts ?? [];
    const isMounted = mounts.some(
      ({ target }) => spec.codePath === target || spec.codePath.startsWith(`${target.replace(/\/+$/, '')}/`),
    );
    if (isMounted) return { storage: 'inside', path: spec.codePath };
    if (hasImage) return { storage: 'local', path: spec.codePath, orInImage: true };
  }
  return { storage: spec.storageType === 'copy' ? 'copy' : 'local', path: spec.codePath };
}

/**
 * Returns the code of a version as its instances will see it. Code in an object store is not read here: the
 * first instance reads it.
 */
export function codeSubjectOf(
  tenant: string,
  spec: FunctionSpec,
  { defaultSandboxType }: ExecutorDefaults,
): CodeSubject {
  const { storageType, codePath, rootfs, runtime, sandboxType } = spec;
  const mounts = rootfs?.mounts ?? [];
  const isPlaced = storageType !== '';
  const code = [{ source: codePath, target: CODE_TARGET, readonly: true }];
  return {
    tenant,
    runtime,
    sandboxType: sandboxType === '' ? defaultSandboxType : sandboxType,
    codePath: isPlaced ? CODE_TARGET : codePath,
    mounts: isPlaced ? [...mounts, ...code] : mounts,
    dependencies: storageType === 's3' ? '' : spec.dependencies,
  };
}

/** Returns true if one item is `"oneshot"`, or has that value in its `type`, `name` or `policy`. */
function isOneshot(policies: readonly unknown[] | null): boolean {
  return (policies ?? []).some(policy => {
    if (policy === 'oneshot') return true;
    if (typeof policy !== 'object' || policy === null) return false;
    const { type, name, policy: inner } = policy as Record<string, unknown>;
    return [type, name, inner].includes('oneshot');
  });
}

/**
 * Returns the same text for the same resources, equal to the text that `core/function-call.ts` makes from a
 * header.
 */
function canonical(resources: Readonly<Record<string, number>> | null): string {
  const names = Object.keys(resources ?? {}).sort();
  return names.length === 0 ? '' : JSON.stringify(Object.fromEntries(names.map(name => [name, resources?.[name]])));
}
