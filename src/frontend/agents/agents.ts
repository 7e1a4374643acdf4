import { createHash } from 'node:crypto';
import type { IncomingHttpHeaders } from 'node:http';
import type { FastifyInstance } from 'fastify';
import type { AgentInstances, CreateInstance } from '../../agents/contract.ts';
import {
  AGENT_CREATE,
  type AgentCreateRequest,
  type ExecutorDefaults,
  type FunctionResolver,
  readAgentCreate,
  resolveRegistered,
} from '../../core/agent.ts';
import { invalidRequest } from '../../core/error.ts';
import { checkSources, type FindPath, type HostPathPolicy } from '../../core/host-path.ts';
import type { Instance, InstanceSpec } from '../../core/instance.ts';
import { LIMITS } from '../../core/limits.ts';
import { withWarnings } from '../../http/answer.ts';
import { readRequest } from '../../http/request.ts';
import { stepFailed } from '../errors.ts';
import { type Query, readQuery } from '../query.ts';
import { AGENT_DOCS } from './docs.ts';
import { DELETE_QUERY, LIST_QUERY } from './queries.ts';
import { agentRecord } from './record.ts';

export interface AgentRoutesOptions {
  readonly instances: AgentInstances;
  readonly functions: FunctionResolver;
  readonly executors: ExecutorDefaults;
  /** Resolved, as `resolvePolicy` gives it. */
  readonly mountPolicy: HostPathPolicy;
  readonly findPath: FindPath;
}

interface ById {
  Params: { instanceId: string };
  Querystring: Query;
}

/** Create, get, list, delete and restart of agent instances. */
export function addAgentRoutes(app: FastifyInstance, options: AgentRoutesOptions): void {
  const { instances } = options;

  app.post('/api/agent', { config: { access: 'write', docs: AGENT_DOCS.create } }, async request => {
    const bytes = request.body as Buffer | undefined;
    const create = readRequest(request, AGENT_CREATE, body => readAgentCreate(body, request.tenant, options.executors));
    const idempotency = readIdempotency(request.headers, request.tenant, bytes);
    try {
      const spec = await resolveSpec(create, options);
      const instance = await instances.create(idempotency === undefined ? { spec } : { spec, idempotency });
      return created(instance, request.warnings);
    } catch (error) {
      throw stepFailed('failed to create agent', error, request.traceId);
    }
  });

  app.get<ById>('/api/agent/:instanceId', { config: { access: 'read', docs: AGENT_DOCS.get } }, async request => {
    const instance = await instances.get(request.tenant, request.params.instanceId);
    return { code: 200, instance: agentRecord(instance) };
  });

  app.get<{ Querystring: Query }>(
    '/api/agent',
    { config: { access: 'read', docs: AGENT_DOCS.list } },
    async request => {
      const page = await instances.list({ tenant: request.tenant, ...readQuery(LIST_QUERY, request.query) });
      return { code: 200, instances: page.instances.map(agentRecord), next_cursor: page.nextCursor };
    },
  );

  app.delete<ById>(
    '/api/agent/:instanceId',
    { config: { access: 'write', docs: AGENT_DOCS.delete } },
    async request => {
      const { grace } = readQuery(DELETE_QUERY, request.query);
      const graceMs = grace === null ? null : Math.round(grace * 1000);
      try {
        await instances.delete(request.tenant, request.params.instanceId, graceMs);
      } catch (error) {
        throw stepFailed('failed to delete agent', error, request.traceId);
      }
      return { code: 200, status: 'deleted' };
    },
  );

  app.post<ById>(
    '/api/agent/:instanceId/restart',
    { config: { access: 'write', docs: AGENT_DOCS.restart } },
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
  const { mountPolicy, findPath } = options;
  await checkSources(create.workspace, create.mounts, mountPolicy, findPath);
  if (create.mode === 'inline') return create.spec;
  const fn = await options.functions.resolveFunction(create.tenant, create.urn);
  await checkSources('', fn.mounts, mountPolicy, findPath);
  return resolveRegistered(create, fn, options.executors);
}

function created({ id, sandbox }: Instance, warnings: readonly string[] | null = null): object {
  return withWarnings({ code: 200, instance_id: id }, [...(warnings ?? []), ...sandbox.warnings]);
}

function readIdempotency(
  headers: IncomingHttpHeaders,
  tenant: string,
  body: Buffer | undefined,
): CreateInstance['idempotency'] {
  const key = headers['idempotency-key'];
  if (key === undefined) return undefined;
  if (typeof key !== 'string' || key === '' || key.length > LIMITS.idempotencyKeyChars) {
    throw invalidRequest(`the header Idempotency-Key must have 1 to ${LIMITS.idempotencyKeyChars} characters`);
  }
  const hash = createHash('sha256')
    .update(`${tenant}\n`)
    .update(body ?? '');
  return { key, requestHash: hash.digest('hex') };
}
