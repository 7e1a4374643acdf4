import { createHash } from 'node:crypto';
import type { IncomingHttpHeaders } from 'node:http';
import type { FastifyInstance, FastifyRequest } from 'fastify';
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
import type { MountSpec } from '../../core/mount.ts';
import { readParameters, type Sent } from '../../core/parameter.ts';
import { runsInCluster } from '../../core/sandbox-types.ts';
import type { CodePackages } from '../../functions/code/code-packages.ts';
import { withWarnings } from '../../http/answer.ts';
import { readRequest } from '../../http/request.ts';
import { Stages } from '../../lib/stages.ts';
import type { Span, Tracer } from '../../telemetry/tracer.ts';
import { stepFailed } from '../errors.ts';
import { LIVES_WITH_AGENT, LIVES_WITH_WORKER } from '../lives-with.ts';
import { type AddressDomain, addressUrl } from '../passthrough/address-targets.ts';
import { AGENT_DOCS } from './docs.ts';
import { CREATE_HEADERS } from './headers.ts';
import { DELETE_QUERY, LIST_QUERY } from './queries.ts';
import { agentRecord } from './record.ts';

export interface AgentRoutesOptions {
  readonly instances: AgentInstances;
  readonly functions: FunctionResolver;
  readonly executors: ExecutorDefaults;
  /** Resolved, as `resolvePolicy` gives it. */
  readonly mountPolicy: HostPathPolicy;
  readonly findPath: FindPath;
  readonly tracer: Tracer;
  readonly addresses: { readonly domain: AddressDomain };
  /** Uploaded code. Absent: there is none. */
  readonly packages?: Pick<CodePackages, 'use'>;
}

interface ById {
  Params: { instanceId: string };
  Querystring: Sent;
}

/** Create, get, list, delete and restart of agent instances. */
export function addAgentRoutes(app: FastifyInstance, options: AgentRoutesOptions): void {
  const { instances, tracer } = options;
  const recordFor = ({ headers }: FastifyRequest, instance: Instance) =>
    agentRecord(instance, addressUrl(instance.spec, options.addresses.domain, headers.host));

  app.post(
    '/api/agent',
    { config: { access: 'write', livesWith: LIVES_WITH_WORKER, docs: AGENT_DOCS.create } },
    async (request, reply) => {
      const stages = new Stages(performance.now() - reply.elapsedTime);
      stages.over('http');
      const bytes = request.body as Buffer | undefined;
      const create = readRequest(request, AGENT_CREATE, body =>
        readAgentCreate(body, request.tenant, options.executors),
      );
      const poolLabels = CREATE_HEADERS.poolLabels.read(request.headers);
      const idempotency = readIdempotency(request.headers, request.tenant, bytes);
      const sent = request.headers.traceparent as string | undefined;
      const span = tracer.start('create agent', 'server', sent, request.traceId);
      try {
        const spec = withPool(await resolveSpec(create, options), poolLabels);
        const instance = await instances.create({ spec, stages, ...(idempotency && { idempotency }) });
        reply.header('Server-Timing', String(stages));
        if (span !== null) endCreateSpan(span, instance);
        return created(instance, [...(request.warnings ?? []), ...addressWarning(spec)]);
      } catch (error) {
        span?.end(error);
        throw stepFailed('failed to create agent', error, request.traceId);
      }
    },
  );

  app.get<ById>('/api/agent/:instanceId', { config: { access: 'read', docs: AGENT_DOCS.get } }, async request => {
    const instance = await instances.get(request.tenant, request.params.instanceId);
    return { code: 200, instance: recordFor(request, instance) };
  });

  app.get<{ Querystring: Sent }>('/api/agent', { config: { access: 'read', docs: AGENT_DOCS.list } }, async request => {
    const page = await instances.list({ tenant: request.tenant, ...readParameters(LIST_QUERY, request.query) });
    return {
      code: 200,
      instances: page.instances.map(instance => recordFor(request, instance)),
      next_cursor: page.nextCursor,
    };
  });

  app.delete<ById>(
    '/api/agent/:instanceId',
    { config: { access: 'write', livesWith: LIVES_WITH_AGENT, docs: AGENT_DOCS.delete } },
    async (request, reply) => {
      const stages = new Stages(performance.now() - reply.elapsedTime);
      stages.over('http');
      const { grace } = readParameters(DELETE_QUERY, request.query);
      const graceMs = grace === null ? null : Math.round(grace * 1000);
      try {
        await instances.delete(request.tenant, request.params.instanceId, graceMs, stages);
      } catch (error) {
        throw stepFailed('failed to delete agent', error, request.traceId);
      }
      reply.header('Server-Timing', String(stages));
      return { code: 200, status: 'deleted' };
    },
  );

  app.post<ById>(
    '/api/agent/:instanceId/restart',
    { config: { access: 'write', livesWith: LIVES_WITH_AGENT, docs: AGENT_DOCS.restart } },
    async request => {
      try {
        return created(await instances.restart(request.tenant, request.params.instanceId));
      } catch (error) {
        throw stepFailed('failed to restart agent', error, request.traceId);
      }
    },
  );
}

/** Sources are checked before the urn is looked at; those that the function itself brings, after it. */
async function resolveSpec(create: AgentCreateRequest, options: AgentRoutesOptions): Promise<InstanceSpec> {
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
function findPathFor(sandboxType: SandboxType, { findPath }: AgentRoutesOptions): FindPath {
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
  { packages }: AgentRoutesOptions,
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

function created({ id, sandbox }: Instance, warnings: readonly string[] | null = null): object {
  return withWarnings({ code: 200, instance_id: id }, [...(warnings ?? []), ...sandbox.warnings]);
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
