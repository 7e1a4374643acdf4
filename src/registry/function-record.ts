import {
  codePackageOf,
  type FunctionSpec,
  type FunctionVersion,
  hasInputSchema,
  hostCodePath,
} from '../core/function.ts';
import { formatUrn, parseUrn } from '../core/urn.ts';
import type { FunctionRow } from '../storage/queries/functions.ts';
import { functionNotFound } from './errors.ts';

/** Stored columns of a version, including the record's text. */
type StoredVersion = Pick<
  FunctionRow,
  'tenant' | 'name' | 'version' | 'revision_id' | 'host_code_path' | 'code_token' | 'record'
>;

/** End of every record's text, so that a read can set the status without parsing the rest. */
const STATUS_END = ',"status":""}';
const UNAVAILABLE_END = ',"status":"unavailable"}';

/**
 * Returns the record of a version: every field of the Function table and every further field, in one order.
 */
export function toRecord(fn: FunctionVersion) {
  const { spec } = fn;
  const functionUrn = formatUrn({ business: fn.business, tenant: fn.tenant, name: spec.name, version: null });
  return {
    id: fn.urn,
    createTime: fn.createTime,
    updateTime: fn.updateTime,
    functionUrn,
    name: spec.name,
    kind: spec.kind,
    tenantId: fn.tenant,
    businessId: fn.business,
    productId: '',
    reversedConcurrency: 0,
    description: spec.description,
    tag: spec.tags,
    functionVersionUrn: fn.urn,
    revisionId: fn.revisionId,
    codeSize: 0,
    codeSha256: codePackageOf(spec) ?? '',
    storageType: spec.storageType,
    codePath: spec.codePath,
    // A field of Rookery's own, present only in functions that use it.
    ...(spec.dependencies !== '' && { dependencies: spec.dependencies }),
    ...(spec.httpProfile !== '' && { httpProfile: spec.httpProfile }),
    bucketId: spec.s3CodePath?.bucketId ?? '',
    objectId: spec.s3CodePath?.objectId ?? '',
    s3CodePath: spec.s3CodePath && withoutToken(spec.s3CodePath),
    handler: spec.handler,
    extendedHandler: spec.extendedHandler,
    extendedTimeout: spec.extendedTimeout,
    layers: spec.layers,
    cpu: spec.cpu,
    memory: spec.memory,
    runtime: spec.runtime,
    timeout: spec.timeout,
    versionNumber: fn.version,
    versionDesc: fn.versionDesc,
    environment: spec.environment,
    customResources: spec.customResources,
    statefulFlag: 0,
    lastModified: '',
    Published: fn.publishTime,
    created: '',
    sandboxType: spec.sandboxType,
    rootfs: spec.rootfs,
    minInstance: spec.minInstance,
    maxInstance: spec.maxInstance,
    concurrentNum: spec.concurrentNum,
    poolId: spec.poolId,
    idleTime: spec.idleTime,
    autoScaleConfig: spec.autoScaleConfig,
    schedulePolicies: spec.schedulePolicies,
    enableSessionCtx: spec.enableSessionCtx,
    enableAgentSession: spec.enableAgentSession,
    isFuncPublic: spec.isFuncPublic,
    funcLayer: [],
    instanceNum: 0,
    device: spec.device,
    // Added later: a record without it keeps its earlier form.
    ...(spec.expose?.port && { expose: spec.expose }),
    ...(hasInputSchema(spec) && { inputSchema: spec.inputSchema }),
    ...(spec.validateInput && { validateInput: true }),
    status: '',
  };
}

type FunctionRecord = ReturnType<typeof toRecord>;

function withoutToken({ bucketId, objectId, bucketUrl, sha512 }: NonNullable<FunctionSpec['s3CodePath']>) {
  return { bucketId, objectId, bucketUrl, sha512 };
}

export function toStored(fn: FunctionVersion): StoredVersion {
  return {
    tenant: fn.tenant,
    name: fn.spec.name,
    version: fn.version,
    revision_id: fn.revisionId,
    host_code_path: hostCodePath(fn.spec),
    code_token: fn.spec.s3CodePath?.token ?? '',
    record: JSON.stringify(toRecord(fn)),
  };
}

export function fromStored(stored: StoredVersion): FunctionVersion {
  const record = JSON.parse(stored.record) as FunctionRecord;
  const { name, kind, runtime, cpu, memory, timeout, handler, environment, description, storageType, codePath } =
    record;
  const { extendedHandler, extendedTimeout, sandboxType, rootfs, minInstance, maxInstance, concurrentNum } = record;
  const { customResources, tag: tags, layers, device, poolId, idleTime, autoScaleConfig, schedulePolicies } = record;
  const { enableSessionCtx, enableAgentSession, isFuncPublic, expose, dependencies = '', httpProfile = '' } = record;
  const { inputSchema = null, validateInput = false } = record;
  const s3CodePath = record.s3CodePath && { ...record.s3CodePath, token: stored.code_token };
  return {
    tenant: stored.tenant,
    business: record.businessId,
    version: stored.version,
    urn: record.functionVersionUrn,
    revisionId: stored.revision_id,
    versionDesc: record.versionDesc,
    createTime: record.createTime,
    publishTime: record.Published,
    updateTime: record.updateTime,
    spec: {
      name,
      kind,
      runtime,
      cpu,
      memory,
      timeout,
      handler,
      httpProfile,
      environment,
      description,
      storageType,
      codePath,
      dependencies,
      s3CodePath,
      extendedHandler,
      extendedTimeout,
      sandboxType,
      rootfs,
      minInstance,
      maxInstance,
      concurrentNum,
      customResources,
      tags,
      layers,
      device,
      poolId,
      idleTime,
      autoScaleConfig,
      schedulePolicies,
      enableSessionCtx,
      enableAgentSession,
      isFuncPublic,
      expose: expose ?? null,
      inputSchema,
      validateInput,
    },
  };
}

/** Returns a record's text with the status of a version whose code is not on this host. */
export function asUnavailable(record: string): string {
  return record.slice(0, -STATUS_END.length) + UNAVAILABLE_END;
}

/** Function as named by a client. */
export interface NamedFunction {
  /** Plain name, unchecked: pass the result of `knownName` to the registry. */
  readonly name: string;
  /** Normalized version of a URN that has one; otherwise null. */
  readonly version: string | null;
  /**
   * URN of a function that this client cannot use: another tenant or business, or not a valid URN. Otherwise
   * null.
   */
  readonly foreignUrn: string | null;
}

/** Reads a function's name from a path or body: `0@<service>@<name>`, or a URN with or without a version. */
export function readFunctionName(text: string, tenant: string, business: string): NamedFunction {
  if (!text.startsWith('sn:')) return { name: text, version: null, foreignUrn: null };
  const urn = parseUrn(text);
  if (urn === null) return { name: text, version: null, foreignUrn: text };
  const isOurs = urn.tenant === tenant && urn.business === business;
  return { name: urn.name, version: urn.version, foreignUrn: isOurs ? null : text };
}

/**
 * Returns the name for the registry. Call it after checking the rest of the request: another tenant's
 * function then answers like an unknown one, even to wrong requests. Fails with `not_found` (4115) for a URN
 * that this client cannot use.
 */
export function knownName({ name, foreignUrn }: NamedFunction): string {
  if (foreignUrn !== null) throw functionNotFound(foreignUrn);
  return name;
}
