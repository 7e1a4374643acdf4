import { createHash } from 'node:crypto';
import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify';
import type { AgentInstances, CreateInstance, InstanceQuery } from '../../agents/contract.ts';
import type { ExecutorDefaults } from '../../core/agent.ts';
import {
  checkE2bPause,
  DEFAULT_SECONDS,
  hasPrivatePorts,
  OLD_DEFAULT_SECONDS,
  readE2bConnect,
  readE2bCreate,
  readE2bList,
  readE2bRefresh,
  readE2bSeconds,
  readE2bTimeout,
} from '../../core/e2b.ts';
import { alreadyExists, invalidRequest, ServiceError } from '../../core/error.ts';
import type { Instance, InstanceStatus } from '../../core/instance.ts';
import { type JsonObject, readBody } from '../../core/json.ts';
import { LIMITS } from '../../core/limits.ts';
import type { Access } from '../../http/access/credentials.ts';
import { E2B_PREFIX } from '../../http/access/sandbox-host.ts';
import { refusal } from '../../http/answer.ts';
import { drained } from '../../http/limits/drained.ts';
import type { LivesWith } from '../../http/route-config.ts';
import { queryOf } from '../../lib/query-pairs.ts';
import type { Templates } from '../../registry/templates.ts';
import type { ImageCatalog } from '../images.ts';
import { LIVES_WITH_WORKER } from '../lives-with.ts';
import {
  createdView,
  detailView,
  isPaused,
  isVisible,
  listedView,
  type SandboxFacts,
  sandboxMissing,
} from './answers.ts';
import { type KeyGateOptions, keyGates } from './key-gate.ts';
import { type SandboxMetrics, useView } from './metrics.ts';
import { agentIdOf, type E2bSandbox, type E2bSandboxes } from './sandboxes.ts';
import { resolveTemplate, sandboxSpec } from './specs.ts';

export interface ControlOptions extends KeyGateOptions {
  readonly instances: Pick<AgentInstances, 'create' | 'delete' | 'list' | 'pause' | 'resume' | 'setExpiry'>;
  readonly executors: ExecutorDefaults;
  readonly sandboxes: E2bSandboxes;
  readonly templates: Pick<Templates, 'find'>;
  readonly images: ImageCatalog;
  readonly facts: SandboxFacts;
  readonly metrics: Pick<SandboxMetrics, 'history'>;
}

const IDEMPOTENCY_KEY = /^[a-z0-9-]{1,255}$/;
/** Page size for lists of clients that cannot ask for pages. */
const OLD_LIST_LIMIT = 1000;
/** Sandboxes of one request for the metrics of many. */
const MAX_METRICS = 100;

type ById = FastifyRequest<{ Params: { sandboxID: string } }>;
type Handler = (request: ById, reply: FastifyReply) => Promise<unknown>;
/** Adds a route below the prefix that an API key opens, under several paths. */
export type AddRoute = (
  method: 'GET' | 'POST' | 'PUT' | 'DELETE',
  paths: readonly string[],
  options: { readonly access: Access; readonly livesWith?: LivesWith },
  handler: Handler,
) => void;

/** Where requests about an existing sandbox are answered. */
const LIVES_WITH_SANDBOX: LivesWith = {
  thing: 'agent',
  keyOf: ({ params }) => agentIdOf(sandboxIdIn((params as { readonly sandboxID?: string }).sandboxID ?? '')),
};

/** Adds further routes. Receives the options of routes that change a sandbox, and the search for one. */
type MoreRoutes = (
  add: AddRoute,
  change: Parameters<AddRoute>[2],
  find: (tenant: string, sandboxId: string) => Promise<E2bSandbox>,
) => void;

/**
 * Adds the control API of the E2B protocol below `/e2b`, in its old and new forms. Its sandboxes are agents
 * with a template, so every other part of the service sees them. `more` adds further routes.
 */
export function addControlRoutes(app: FastifyInstance, options: ControlOptions, more: MoreRoutes): void {
  const gateOf = keyGates(app, options);
  const add: AddRoute = (method, paths, { access, livesWith }, handler) => {
    for (const path of paths) {
      const url = `${E2B_PREFIX}${path}`;
      const config = { access, noEnvironments: true, ...(livesWith && { livesWith }) };
      app.route<{ Params: { sandboxID: string } }>({
        method,
        url,
        bodyLimit: LIMITS.requestBodyBytes,
        exposeHeadRoute: false,
        config: { ...config, access: 'public', gate: gateOf({ ...config, url }) },
        handler: (request, reply) => handler(request, reply.header('Cache-Control', 'no-store')),
      });
    }
  };
  const change = { access: 'write', livesWith: LIVES_WITH_SANDBOX } as const;
  const look = { access: 'read', livesWith: LIVES_WITH_SANDBOX } as const;
  const { create, oldCreate, list, oldList } = collectionHandlers(options);
  const { detail, remove, setTimeout, refresh, pause, connect, resume } = sandboxHandlers(options);
  const { metrics, manyMetrics } = metricsHandlers(options);
  add('POST', ['/v2/sandboxes'], { access: 'write', livesWith: LIVES_WITH_WORKER }, create);
  add('POST', ['/sandboxes'], { access: 'write', livesWith: LIVES_WITH_WORKER }, oldCreate);
  add('GET', ['/v2/sandboxes'], { access: 'read' }, list);
  add('GET', ['/sandboxes'], { access: 'read' }, oldList);
  add('GET', ['/sandboxes/:sandboxID'], { access: 'read' }, detail);
  add('DELETE', ['/sandboxes/:sandboxID'], change, remove);
  add('POST', ['/sandboxes/:sandboxID/timeout'], change, setTimeout);
  add('POST', ['/sandboxes/:sandboxID/refreshes'], change, refresh);
  add('POST', ['/sandboxes/:sandboxID/pause'], change, pause);
  add('POST', ['/sandboxes/:sandboxID/connect', '/v2/sandboxes/:sandboxID/connect'], change, connect);
  add('POST', ['/sandboxes/:sandboxID/resume'], change, resume);
  add('GET', ['/sandboxes/:sandboxID/metrics'], look, metrics);
  add('GET', ['/sandboxes/metrics'], { access: 'read' }, manyMetrics);
  add('PUT', ['/sandboxes/:sandboxID/network'], change, async (_request, reply) =>
    notSupported(reply, 'changes of the network of sandboxes are not supported by this service'),
  );
  more(add, change, (tenant, sandboxId) => findSandbox(options, tenant, sandboxId));
  addUnknownRoute(app, gateOf({ access: 'read', url: `${E2B_PREFIX}/*` }));
}

/** Answers 404 to every other path below the prefix, after the body has arrived. */
function addUnknownRoute(app: FastifyInstance, gate: ReturnType<ReturnType<typeof keyGates>>): void {
  app.register(async scope => {
    scope.removeAllContentTypeParsers();
    scope.addContentTypeParser('*', (_request, _payload, done) => done(null));
    scope.all(`${E2B_PREFIX}/*`, { config: { access: 'public', gate } }, async (request, reply) => {
      await drained(request.raw);
      const path = (request.raw.url ?? '').split('?', 1)[0];
      return reply.code(404).send(refusal(404, `route not found: ${request.method} ${path}`).body);
    });
  });
}

function collectionHandlers(options: ControlOptions) {
  const { instances, sandboxes, facts } = options;
  const createWith =
    (defaultSeconds: number): Handler =>
    async (request, reply) => {
      const instance = await createSandbox(request, options, defaultSeconds);
      return reply.code(201).send(createdView(sandboxes.of(instance), facts));
    };

  const list: Handler = async (request, reply) => {
    const query = readE2bList(new URLSearchParams(queryOf(request.raw.url ?? '')));
    const status = [...query.states].map((state): InstanceStatus => (state === 'running' ? 'RUNNING' : 'PAUSED'));
    const page = await instances.list({
      ...{ tenant: request.tenant, status, labels: query.metadata, template: query.template ?? null },
      startedAfterMs: query.startedAfterMs ?? undefined,
      order: query.isNewestFirst ? 'newest' : 'oldest',
      limit: query.limit,
      cursor: query.nextToken,
    });
    if (page.nextCursor !== null) reply.header('x-next-token', page.nextCursor);
    return page.instances.map(instance => listedView(sandboxes.of(instance)));
  };

  const oldList: Handler = async request => {
    const { metadata } = readE2bList(new URLSearchParams(queryOf(request.raw.url ?? '')));
    const found: Instance[] = [];
    let cursor: InstanceQuery['cursor'] = null;
    do {
      const page: Awaited<ReturnType<AgentInstances['list']>> = await instances.list({
        ...{ tenant: request.tenant, status: 'RUNNING', labels: metadata, template: null },
        ...{ order: 'newest', limit: OLD_LIST_LIMIT, cursor },
      });
      found.push(...page.instances);
      cursor = page.nextCursor;
    } while (cursor !== null);
    return found.map(instance => listedView(sandboxes.of(instance)));
  };

  return { create: createWith(DEFAULT_SECONDS), oldCreate: createWith(OLD_DEFAULT_SECONDS), list, oldList };
}

async function findSandbox({ sandboxes }: ControlOptions, tenant: string, sent: string): Promise<E2bSandbox> {
  const sandbox = await sandboxes.byId(tenant, sandboxIdIn(sent));
  if (sandbox === null || !isVisible(sandbox.instance)) throw sandboxMissing(sent);
  return sandbox;
}

function metricsHandlers(options: ControlOptions) {
  const metrics: Handler = async request => {
    const query = new URLSearchParams(queryOf(request.raw.url ?? ''));
    const [fromMs, toMs] = [readE2bSeconds('start', query), readE2bSeconds('end', query)];
    const { instance } = await findSandbox(options, request.tenant, request.params.sandboxID);
    return (await options.metrics.history(instance, fromMs, toMs)).map(useView);
  };
  /** Answers with the last sample of each sandbox that exists and runs on this node. */
  const manyMetrics: Handler = async request => {
    const query = new URLSearchParams(queryOf(request.raw.url ?? ''));
    const ids = (query.get('sandbox_ids') ?? '').split(',').slice(0, MAX_METRICS);
    const found: [string, unknown][] = [];
    for (const id of ids) {
      const sandbox = await options.sandboxes.byId(request.tenant, sandboxIdIn(id));
      const last = sandbox && (await options.metrics.history(sandbox.instance, null, null)).at(-1);
      if (sandbox && last) found.push([sandbox.id, useView(last)]);
    }
    return { sandboxes: Object.fromEntries(found) };
  };
  return { metrics, manyMetrics };
}

function sandboxHandlers(options: ControlOptions) {
  const { instances, sandboxes, facts } = options;
  const find = ({ tenant, params }: ById) => findSandbox(options, tenant, params.sandboxID);
  /** Runs a change. A sandbox that vanished meanwhile is missing. */
  const changed = async <T>({ params }: ById, change: Promise<T>): Promise<T> => {
    try {
      return await change;
    } catch (error) {
      if (error instanceof ServiceError && error.code === 'not_found') throw sandboxMissing(params.sandboxID);
      throw error;
    }
  };
  const done = (reply: FastifyReply) => reply.code(204).send();
  const end = (request: ById, { id }: Instance) => changed(request, instances.delete(request.tenant, id, 0));

  const detail: Handler = async request => {
    const { envdAccessToken, ...shown } = detailView(await find(request), facts);
    return request.role === 'developer' ? { ...shown, envdAccessToken } : shown;
  };

  const remove: Handler = async (request, reply) => {
    const sandbox = await sandboxes.byId(request.tenant, sandboxIdIn(request.params.sandboxID));
    if (sandbox === null) throw sandboxMissing(request.params.sandboxID);
    await end(request, sandbox.instance);
    return done(reply);
  };

  const setTimeout: Handler = async (request, reply) => {
    const { instance } = await find(request);
    const seconds = readE2bTimeout(bodyOf(request));
    if (seconds > 0) {
      await changed(request, instances.setExpiry(request.tenant, instance.id, { ttlMs: seconds * 1000 }));
    } else if (instance.onExpiry === 'delete') await end(request, instance);
    else if (!isPaused(instance)) await changed(request, instances.pause(request.tenant, instance.id));
    return done(reply);
  };

  const refresh: Handler = async (request, reply) => {
    const { instance } = await find(request);
    const change = { ttlMs: readE2bRefresh(bodyOf(request)) * 1000, onlyLater: true };
    await changed(request, instances.setExpiry(request.tenant, instance.id, change));
    return done(reply);
  };

  const pause: Handler = async (request, reply) => {
    const { instance } = await find(request);
    checkE2bPause(bodyOf(request));
    if (isPaused(instance)) throw alreadyExists(`Sandbox "${request.params.sandboxID}" is already paused`);
    await changed(request, instances.pause(request.tenant, instance.id));
    return done(reply);
  };

  const resumeTo = async (request: ById) => {
    const { instance } = await find(request);
    const change = { ttlMs: readE2bConnect(bodyOf(request)) * 1000, onlyLater: true };
    return await changed(request, instances.resume(request.tenant, instance.id, change));
  };
  const connect: Handler = async (request, reply) => {
    const { instance, resumed } = await resumeTo(request);
    return reply.code(resumed ? 201 : 200).send(createdView(sandboxes.of(instance), facts));
  };
  const resume: Handler = async (request, reply) => {
    const { instance } = await resumeTo(request);
    return reply.code(201).send(createdView(sandboxes.of(instance), facts));
  };

  return { detail, remove, setTimeout, refresh, pause, connect, resume };
}

async function createSandbox(
  request: FastifyRequest,
  { instances, executors, templates, images }: ControlOptions,
  defaultSeconds: number,
): Promise<Instance> {
  const wanted = readE2bCreate(bodyOf(request));
  const sandbox = {
    template: await resolveTemplate({ templates, images }, request.tenant, wanted.templateID),
    ...{ env: wanted.envVars, labels: wanted.metadata, ttlSeconds: wanted.timeout ?? defaultSeconds },
    onExpiry: wanted.autoPause ? 'pause' : 'delete',
  } as const;
  const spec = {
    ...sandboxSpec(sandbox, request.tenant, executors),
    ...(wanted.autoResume.enabled && { resumeOnTraffic: true }),
    ...(hasPrivatePorts(wanted) && { hasPrivatePorts: true }),
  };
  const idempotency = readIdempotency(request);
  if (idempotency === undefined) return await instances.create({ spec });
  try {
    return await instances.create({ spec, idempotency });
  } catch (error) {
    if (!(error instanceof ServiceError) || error.code !== 'already_exists') throw error;
    throw new ServiceError(error.code, error.message, { body: { error_code: 'idempotency_request_mismatch' } });
  }
}

/** Reads the idempotency key, which is separate from keys of `POST /api/agent`. */
function readIdempotency({ headers, tenant, body }: FastifyRequest): CreateInstance['idempotency'] {
  const { 'idempotency-key': key } = headers;
  if (key === undefined) return undefined;
  if (typeof key !== 'string' || !IDEMPOTENCY_KEY.test(key)) {
    throw invalidRequest('the header Idempotency-Key must have 1 to 255 lower-case letters, digits and "-"');
  }
  const hash = createHash('sha256').update(`e2b\n${tenant}\n`);
  return { key: `e2b:${key}`, requestHash: hash.update((body as Buffer | undefined) ?? '').digest('hex') };
}

/** Returns the sandbox id of a path. Older clients append `-` and the id of a client. */
function sandboxIdIn(sent: string): string {
  return sent.split('-', 1)[0] as string;
}

/** Reads the body. Clients may omit it where every field is optional. */
export function bodyOf({ body }: Pick<FastifyRequest, 'body'>): JsonObject {
  const bytes = body as Buffer | undefined;
  return bytes === undefined || bytes.length === 0 ? {} : readBody(bytes);
}

function notSupported(reply: FastifyReply, text: string): FastifyReply {
  return reply.code(501).send(refusal(501, text).body);
}
