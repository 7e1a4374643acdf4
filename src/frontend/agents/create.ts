import { createHash } from 'node:crypto';
import type { IncomingHttpHeaders } from 'node:http';
import type { FastifyInstance } from 'fastify';
import type { AgentInstances, CreateInstance } from '../../agents/contract.ts';
import { addressLabel, addressPath } from '../../core/address.ts';
import {
  AGENT_CREATE,
  type AgentCreateRequest,
  type ExecutorDefaults,
  type FunctionResolver,
  readAgentCreate,
  resolveRegistered,
} from '../../core/agent.ts';
import { parseCodeUrl, splitMounts } from '../../core/code-package.ts';
import { failedPrecondition, ServiceError } from '../../core/error.ts';
import { checkSources, type FindPath, type HostPathPolicy } from '../../core/host-path.ts';
import type { Instance, InstanceSpec, SandboxType } from '../../core/instance.ts';
import { LIMITS } from '../../core/limits.ts';
import type { MountSpec } from '../../core/mount.ts';
import { runsInCluster } from '../../core/sandbox-types.ts';
import type { CodePackages } from '../../functions/code/code-packages.ts';
import type { Exchange } from '../../http/exchange.ts';
import { addHotRoute } from '../../http/hot-route.ts';
import { type RequestWithBody, readRequest } from '../../http/request.ts';
import type { CpuLatency } from '../../lib/cpu-latency.ts';
import { Stages } from '../../lib/stages.ts';
import type { Span, Tracer } from '../../telemetry/tracer.ts';
import { refuseExchange, stepFailed } from '../errors.ts';
import { LIVES_WITH_WORKER } from '../lives-with.ts';
import { AGENT_DOCS } from './docs.ts';
import { CREATE_HEADERS } from './headers.ts';
import { createdRecord } from './record.ts';

export interface CreateRouteOptions {
  readonly instances: Pick<AgentInstances, 'create'>;
  readonly functions: FunctionResolver;
  readonly executors: ExecutorDefaults;
  /** Resolved, as `resolvePolicy` gives it. */
  readonly mountPolicy: HostPathPolicy;
  readonly findPath: FindPath;
  readonly tracer: Tracer;
  /** Absent, null: processors sleep as they like. */
  readonly cpuLatency?: Pick<CpuLatency, 'lower'> | null;
  /** Uploaded code. Absent: there is none. */
  readonly packages?: Pick<CodePackages, 'use'>;
}

/** `POST /api/agent`. It takes the short way: what the router and `node:http` do for a request is a twentieth of a create. */
export function addCreateRoute(app: FastifyInstance, options: CreateRouteOptions): void {
  addHotRoute(app, {
    url: '/api/agent',
    parameter: null,
    bodyLimit: LIMITS.requestBodyBytes,
    config: { access: 'write', livesWith: LIVES_WITH_WORKER, docs: AGENT_DOCS.create },
    handle: exchange => {
      options.cpuLatency?.lower();
      create(exchange, options).catch((error: unknown) => exchange.fault(error));
    },
    refuse: refuseExchange,
  });
}

async function create(exchange: Exchange, options: CreateRouteOptions): Promise<void> {
  const { traceId, tenant, body, raw } = exchange;
  const stages = new Stages(exchange.startMs);
  stages.over('http');
  const request: RequestWithBody = { body, warnings: null };
  try {
    const wanted = readRequest(request, AGENT_CREATE, sent => readAgentCreate(sent, tenant, options.executors));
    const poolLabels = CREATE_HEADERS.poolLabels.read(raw.headers);
    const idempotency = readIdempotency(raw.headers, tenant, body);
    const sent = raw.headers.traceparent as string | undefined;
    const span = options.tracer.start('create agent', 'server', sent, traceId);
    try {
      const spec = withPool(await resolveSpec(wanted, options), poolLabels);
      const instance = await options.instances.create({ spec, stages, ...(idempotency && { idempotency }) });
      if (span !== null) endCreateSpan(span, instance);
      const record = createdRecord(instance, [...(request.warnings ?? []), ...addressWarning(spec)]);
      exchange.answer(200, JSON.stringify(record), ['Server-Timing', String(stages)]);
    } catch (error) {
      span?.end(error);
      throw stepFailed('failed to create agent', error, traceId);
    }
  } catch (error) {
    refuseExchange(exchange, error, request.warnings);
  }
}

/** Sources are checked before the urn is looked at; those that the function itself brings, after it. */
async function resolveSpec(create: AgentCreateRequest, options: CreateRouteOptions): Promise<InstanceSpec> {
  const { mountPolicy } = options;
  const { packages, others } = splitMounts(create.mounts);
  if (create.mode === 'inline') {
    await checkSources(create.workspace, others, mountPolicy, findPathFor(create.spec.sandboxType, options));
    await checkPackages(create.tenant, packages, 'mount source', options);
    return create.spec;
  }
  const checked = checkSources(create.workspace, others, mountPolicy, options.findPath);
  const missing = await checked.then(() => null, missingSource);
  await checkPackages(create.tenant, packages, 'mount source', options);
  const resolving = options.functions.resolveFunction(create.tenant, create.urn);
  const fn = await resolving.catch((error: unknown) => {
    throw missing ?? error;
  });
  const spec = resolveRegistered(create, fn, options.executors);
  if (missing !== null && !runsInCluster(spec.sandboxType)) throw missing;
  const own = splitMounts(fn.mounts);
  await checkSources('', own.others, mountPolicy, findPathFor(spec.sandboxType, options));
  await checkPackages(create.tenant, own.packages, 'the code package', options);
  return spec;
}

/** A path of a cluster's machines cannot be looked for here: its text is what can be checked. */
function findPathFor(sandboxType: SandboxType, { findPath }: CreateRouteOptions): FindPath {
  return runsInCluster(sandboxType) ? async path => ({ resolved: path, kind: 'directory' }) : findPath;
}

/** The error, when it is one of a source that is not here; rejects with any other. */
function missingSource(error: unknown): ServiceError {
  if (error instanceof ServiceError && error.code === 'failed_precondition') return error;
  throw error;
}

/** What the caller prefers, unless the function names its pool. */
function withPool(spec: InstanceSpec, labels: readonly string[]): InstanceSpec {
  if (labels.length === 0 || spec.pool !== undefined) return spec;
  return { ...spec, pool: { id: '', labels } };
}

/** They are there, and count as used from now on. */
async function checkPackages(
  tenant: string,
  mounts: readonly MountSpec[],
  noun: string,
  { packages }: CreateRouteOptions,
): Promise<void> {
  for (const { source } of mounts) {
    if (packages === undefined) throw failedPrecondition(`${noun} does not exist: ${source}`);
    await packages.use(tenant, parseCodeUrl(source) ?? '', noun);
  }
}

/** Its sandbox was started between the write of its row and that it runs. */
function endCreateSpan(span: Span, { id, spec, createdAtMs, startedAtMs, loadError }: Instance): void {
  span.set('rookery.instance_id', id);
  span.set('rookery.sandbox_type', spec.sandboxType);
  span.part({ name: 'start', startMs: createdAtMs, endMs: startedAtMs });
  span.end(loadError === '' ? undefined : loadError);
}

/** What its tenant is called is not the caller's choice, so it is no error. */
function addressWarning({ expose, ...spec }: InstanceSpec): readonly string[] {
  if (expose === undefined || addressLabel(spec) !== null) return [];
  return [
    `it has an address by path only (${addressPath(spec)}): the tenant ${spec.tenant} cannot stand in a host name`,
  ];
}

function readIdempotency(
  headers: IncomingHttpHeaders,
  tenant: string,
  body: Buffer | undefined,
): CreateInstance['idempotency'] {
  const key = CREATE_HEADERS.idempotencyKey.read(headers);
  if (key === undefined) return undefined;
  const hash = createHash('sha256')
    .update(`${tenant}\n`)
    .update(body ?? '');
  return { key, requestHash: hash.digest('hex') };
}
