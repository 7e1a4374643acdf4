import { createHash } from 'node:crypto';
import type { IncomingHttpHeaders } from 'node:http';
import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify';
import type { AgentInstances, CreateInstance } from '../../agents/contract.ts';
import type { CodePackages } from '../../code/code-packages.ts';
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
import { durableWarnings } from '../../core/durable.ts';
import { failedPrecondition, invalidRequest, ServiceError } from '../../core/error.ts';
import { checkSources, type FindPath, type HostPathPolicy } from '../../core/host-path.ts';
import type { Instance, InstanceSpec, MountSpec, SandboxType } from '../../core/instance.ts';
import { isJsonObject, parseJson } from '../../core/json.ts';
import { LIMITS } from '../../core/limits.ts';
import { runsInCluster } from '../../core/sandbox-types.ts';
import { JSON_TYPE } from '../../http/answer.ts';
import { readRequest } from '../../http/request.ts';
import { ServerTiming } from '../../lib/server-timing.ts';
import type { Span, Tracer } from '../../telemetry/tracer.ts';
import { findTemplate, templateNames } from '../../templates/templates.ts';
import { stepFailed } from '../errors.ts';
import { checkImage, type ImageCatalog } from '../images.ts';
import { LIVES_WITH_WORKER } from '../lives-with.ts';
import { AGENT_DOCS } from './docs.ts';
import { CREATE_HEADERS } from './parameters.ts';
import { createdRecord } from './record.ts';

export interface CreateRouteOptions {
  readonly instances: Pick<AgentInstances, 'create'>;
  readonly functions: FunctionResolver;
  readonly executors: ExecutorDefaults;
  /** The policy in the form that `resolvePolicy` returns. */
  readonly mountPolicy: HostPathPolicy;
  readonly findPath: FindPath;
  readonly tracer: Tracer;
  readonly images: ImageCatalog;
  /** Uploaded code. Absent: this service has no uploaded code. */
  readonly packages?: Pick<CodePackages, 'use'>;
}

/** Adds `POST /api/agent`. */
export function addCreateRoute(app: FastifyInstance, options: CreateRouteOptions): void {
  app.post(
    '/api/agent',
    {
      bodyLimit: LIMITS.requestBodyBytes,
      config: { access: 'write', livesWith: LIVES_WITH_WORKER, docs: AGENT_DOCS.create },
    },
    (request, reply) => create(request, reply, options),
  );
}

async function create(request: FastifyRequest, reply: FastifyReply, options: CreateRouteOptions): Promise<string> {
  const { traceId, tenant, headers } = request;
  const stages = new ServerTiming(performance.now() - reply.elapsedTime);
  stages.end('http');
  const wanted = readRequest(request, AGENT_CREATE, sent => readAgentCreate(sent, tenant, options.executors));
  const poolLabels = CREATE_HEADERS.poolLabels.read(headers);
  const idempotency = readIdempotency(headers, tenant, request.body as Buffer | undefined);
  const span = options.tracer.start('create agent', 'server', headers.traceparent as string | undefined, traceId);
  try {
    const spec = withPool(await resolveSpec(wanted, options), poolLabels);
    const instance = await options.instances.create({
      ...{ spec, stages, ...(wanted.replaces && { replaces: true }) },
      ...(idempotency && { idempotency }),
    });
    if (span !== null) endCreateSpan(span, instance);
    const warnings = [...(request.warnings ?? []), ...addressWarning(spec), ...stateWarnings(request, spec)];
    const record = createdRecord(instance, warnings);
    reply.type(JSON_TYPE).header('Server-Timing', String(stages));
    return JSON.stringify(record);
  } catch (error) {
    span?.end(error);
    throw stepFailed('failed to create agent', error, traceId);
  }
}

/**
 * Resolves the specification of an agent, and checks its sources and code packages.
 * Sources of the request are checked before the URN is resolved; sources of the function afterwards.
 */
export async function resolveSpec(
  create: AgentCreateRequest,
  options: Omit<CreateRouteOptions, 'instances'>,
): Promise<InstanceSpec> {
  const { mountPolicy } = options;
  const { packages, others } = splitMounts(create.mounts);
  if (create.mode === 'inline') {
    await checkTemplate(create.spec, options);
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

const SLEEPS_ON_REQUEST =
  'durable: it sleeps only on request, because a connection to a published port cannot wake it; use expose instead of ports';

const HAS_NO_STATE =
  'durable: an HTTP server has no context.state; of what it writes, only durable.files is there after a sleep or a crash';
/** Runtimes whose programs are HTTP servers. */
const HTTP_RUNTIMES: readonly string[] = ['http', 'custom image'];

/** Returns warnings about the members of `durable`. */
export function stateWarnings({ body }: FastifyRequest, { durable, ports, runtime }: InstanceSpec): readonly string[] {
  if (durable === undefined) return [];
  const parsed = parseJson(body as Buffer);
  const warnings = parsed.ok && isJsonObject(parsed.value) ? durableWarnings(parsed.value) : [];
  const isIgnored = ports.length > 0 && (durable.sleepMs ?? 0) > 0;
  return [
    ...warnings,
    ...(isIgnored ? [SLEEPS_ON_REQUEST] : []),
    ...(HTTP_RUNTIMES.includes(runtime) ? [HAS_NO_STATE] : []),
  ];
}

async function checkTemplate(
  { template: name, rootfs }: InstanceSpec,
  options: Pick<CreateRouteOptions, 'images'>,
): Promise<void> {
  if (name === undefined || findTemplate(name) !== undefined) return;
  if (rootfs.type === 'image' && rootfs.imageUrl === name) return await checkImage(options.images, name);
  const names = templateNames().join(', ');
  throw invalidRequest(`invalid request body: template: there is no template "${name}"; templates are ${names}`);
}

/**
 * Returns the check for host paths. Paths on the machines of a cluster cannot be opened here, so only their
 * text is checked.
 */
export function findPathFor(sandboxType: SandboxType, { findPath }: Pick<CreateRouteOptions, 'findPath'>): FindPath {
  return runsInCluster(sandboxType) ? async path => ({ resolved: path, kind: 'directory' }) : findPath;
}

/** Returns the error of a source that does not exist. Throws every other error. */
function missingSource(error: unknown): ServiceError {
  if (error instanceof ServiceError && error.code === 'failed_precondition') return error;
  throw error;
}

/** Adds the pool labels of the request, unless the function names its pool. */
function withPool(spec: InstanceSpec, labels: readonly string[]): InstanceSpec {
  if (labels.length === 0 || spec.pool !== undefined) return spec;
  return { ...spec, pool: { id: '', labels } };
}

/** Marks code packages as used now. Fails with `failed_precondition` if one does not exist. */
export async function checkPackages(
  tenant: string,
  mounts: readonly MountSpec[],
  noun: string,
  { packages }: Pick<CreateRouteOptions, 'packages'>,
): Promise<void> {
  for (const { source } of mounts) {
    if (packages === undefined) throw failedPrecondition(`${noun} does not exist: ${source}`);
    await packages.use(tenant, parseCodeUrl(source) ?? '', noun);
  }
}

/** Ends the span of a create. The time from the record to RUNNING becomes the part `start`. */
function endCreateSpan(span: Span, { id, spec, createdAtMs, startedAtMs, loadError }: Instance): void {
  span.set('rookery.instance_id', id);
  span.set('rookery.sandbox_type', spec.sandboxType);
  span.part({ name: 'start', startMs: createdAtMs, endMs: startedAtMs });
  span.end(loadError === '' ? undefined : loadError);
}

/**
 * Returns a warning if the tenant's name cannot be part of a host name.
 * The client does not choose the tenant's name, so this is no error.
 */
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
