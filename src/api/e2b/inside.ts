import type { IncomingMessage } from 'node:http';
import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify';
import type { AgentInstances } from '../../agents/contract.ts';
import { ServiceError } from '../../core/error.ts';
import { isRefusal, type Refusal, type TokenVerifier } from '../../http/access/credentials.ts';
import { forSandbox, IN_SANDBOX_URL, isBySandboxHost } from '../../http/access/sandbox-host.ts';
import { sendError } from '../../http/answer.ts';
import { forwardedOf } from '../../http/forwarding.ts';
import { drained } from '../../http/limits/drained.ts';
import type { OwnGate, Route } from '../../http/route-config.ts';
import { queryOf } from '../../lib/query-pairs.ts';
import { isApiKey } from '../../registry/api-keys.ts';
import type { SandboxAccess } from '../../sandbox/access.ts';
import { isImageInterpreter, startImageInterpreter } from '../../templates/image-interpreter.ts';
import { dialDelaysOf } from '../../templates/templates.ts';
import type { Envd } from '../envd/envd.ts';
import { ownTokens, schemeOf } from '../passthrough/addresses.ts';
import { tellOrigin } from '../passthrough/headers.ts';
import { BY_HOST, BY_PORT } from '../passthrough/links.ts';
import { disableBodyParsing, type Passage } from '../passthrough/passage.ts';
import { isPaused, isVisible, portClosed, refused, sandboxGone, TRAFFIC_HEADER, trafficRefused } from './answers.ts';
import type { SandboxMetrics } from './metrics.ts';
import { type E2bSandbox, type E2bSandboxes, isSameText } from './sandboxes.ts';

export interface InsideOptions {
  readonly instances: Pick<AgentInstances, 'access' | 'resume'>;
  readonly sandboxes: E2bSandboxes;
  readonly envd: Pick<Envd, 'serve'>;
  readonly metrics: Pick<SandboxMetrics, 'current'>;
  /** Recognizes tokens of the service, which a sandbox must not see. null: authentication is off. */
  readonly auth: TokenVerifier | null;
}

/** The port that the service answers itself. */
const ENVD_PORT = 49_983;
const FILES_URL = '/files';
/** The routes of requests to sandboxes in the metrics, which must not contain paths of servers inside. */
const INSIDE_ROUTE: Route = { url: '(sandbox)', access: 'public', anyOrigin: true, longLived: true };
const FILES_ROUTE: Route = { ...INSIDE_ROUTE, url: FILES_URL };
/** Delays before further attempts to reach a port, because a server may be starting. */
const DIAL_DELAYS_MS = [50, 150];

/** The destination of an admitted request. */
interface Destination {
  readonly sandbox: E2bSandbox;
  readonly port: number;
  /** Path and query inside of the sandbox. */
  readonly path: string;
  /** True if the host name belongs to the port alone. */
  readonly isByHost: boolean;
}

interface Named {
  readonly id: string;
  readonly port: number;
}

/**
 * Adds the routes to ports of sandboxes: by the headers `E2b-Sandbox-Id` and `E2b-Sandbox-Port`, by access
 * token, by host name, and by signed file URL. Ports are public. Port 49983 checks the sandbox's own token.
 */
export function addInsideRoutes(app: FastifyInstance, passage: Passage, options: InsideOptions): void {
  const found = new WeakMap<IncomingMessage, Destination>();
  const inside = insideGate(app, options, found);
  const files = filesGate(app, options, found);
  const serve = async (request: FastifyRequest, reply: FastifyReply): Promise<FastifyReply> => {
    const to = found.get(request.raw);
    if (to === undefined) throw new TypeError('the gate of the route named no sandbox');
    return await serveInside(request, reply, to, passage, options);
  };
  const config = { access: 'public', longLived: true, livesWith: { thing: 'agent', keyOf: () => null } } as const;
  app.register(async scope => {
    disableBodyParsing(scope);
    for (const method of passage.methods) {
      scope.route({ method, url: IN_SANDBOX_URL, config: { ...config, gate: inside }, ...passage.handlers(serve) });
    }
    for (const method of ['GET', 'POST', 'HEAD', 'OPTIONS']) {
      scope.route({ method, url: FILES_URL, config: { ...config, gate: files }, ...passage.handlers(serve) });
    }
  });
}

/** Returns the gate of requests that name their sandbox. For an admitted one, `found` has the destination. */
function insideGate(
  app: FastifyInstance,
  options: InsideOptions,
  found: WeakMap<IncomingMessage, Destination>,
): OwnGate {
  const { sandboxes } = options;
  return async ({ raw }) => {
    const by = forSandbox(raw);
    if (by === undefined) return null;
    const isByHost = isBySandboxHost(raw);
    const late = async (answer: Refusal) => {
      await drained(raw);
      return answer;
    };
    if (forwardedOf(raw) === undefined) {
      const verdict = await app.gate(raw, { ...INSIDE_ROUTE, anyHost: isByHost, leadsInside: !isByHost });
      if (isRefusal(verdict)) return await late(verdict);
    }
    if (by.problem !== null) return await late(refused(400, `invalid request: ${by.problem}`));
    const named = by.label === null ? namedByHeaders(raw, sandboxes) : namedByLabel(by.label);
    if ('status' in named) return await late(named);
    const sandbox = await sandboxes.byId(null, named.id);
    if (sandbox === null || !mayServe(sandbox)) return await late(sandboxGone(named.id));
    if (!mayEnter(sandbox, named.port, raw)) return await late(trafficRefused(sandbox.id));
    if (forwardedOf(raw) === undefined) tellOrigin(raw, schemeOf(raw), null);
    found.set(raw, { sandbox, port: named.port, path: by.path, isByHost: by.label !== null });
    return admitted(sandbox, INSIDE_ROUTE);
  };
}

/** Returns the gate of signed file URLs, whose signature names the sandbox. */
function filesGate(app: FastifyInstance, { sandboxes }: InsideOptions, found: WeakMap<IncomingMessage, Destination>) {
  const gate: OwnGate = async ({ raw }) => {
    const url = raw.url ?? '';
    if (forwardedOf(raw) === undefined) {
      const verdict = await app.gate(raw, { ...FILES_ROUTE, leadsInside: true });
      if (isRefusal(verdict)) return verdict;
    }
    const query = new URLSearchParams(queryOf(url));
    const operation = raw.method === 'POST' ? 'write' : 'read';
    const token = raw.headers['x-access-token'];
    const bySignature =
      raw.method === 'OPTIONS'
        ? ((await sandboxes.bySignature(query, 'read')) ?? (await sandboxes.bySignature(query, 'write')))
        : await sandboxes.bySignature(query, operation);
    const sandbox = bySignature ?? (typeof token === 'string' ? await sandboxes.byToken(token) : null);
    if (sandbox === null) {
      await drained(raw);
      return refused(401, query.has('signature') ? 'invalid signature' : 'missing signature query parameter');
    }
    if (!mayServe(sandbox)) {
      await drained(raw);
      return sandboxGone(sandbox.id);
    }
    found.set(raw, { sandbox, port: ENVD_PORT, path: url, isByHost: false });
    return admitted(sandbox, FILES_ROUTE);
  };
  return gate;
}

function admitted({ instance }: E2bSandbox, route: Route) {
  const livesWith = { thing: 'agent', keyOf: () => instance.id } as const;
  return { tenant: instance.spec.tenant, role: 'user', route: { ...route, livesWith } } as const;
}

/** Returns true if the sandbox runs, or may be resumed by the request. */
function mayServe({ instance }: E2bSandbox): boolean {
  return isVisible(instance) && (!isPaused(instance) || instance.spec.resumeOnTraffic === true);
}

/** Returns true if the port is public, checks a token of its own, or the request has the traffic token. */
function mayEnter({ trafficToken }: E2bSandbox, port: number, { headers }: IncomingMessage): boolean {
  if (trafficToken === null || port === ENVD_PORT) return true;
  const sent = headers[TRAFFIC_HEADER];
  return typeof sent === 'string' && isSameText(sent, trafficToken);
}

/** Reads the headers. Older clients name the sandbox by its access token only. */
function namedByHeaders({ headers }: IncomingMessage, sandboxes: E2bSandboxes): Named | Refusal {
  const { 'e2b-sandbox-id': id, 'e2b-sandbox-port': port, 'x-access-token': token } = headers;
  if (id !== undefined || port !== undefined) {
    if (typeof id !== 'string' || typeof port !== 'string') {
      return refused(400, 'missing header: E2b-Sandbox-Id and E2b-Sandbox-Port belong together');
    }
    return readNamed(port, id);
  }
  if (typeof token !== 'string') return refused(400, 'missing header: E2b-Sandbox-Id and E2b-Sandbox-Port');
  const ofToken = sandboxes.idOfToken(token);
  return ofToken === null ? refused(401, 'the access token is not valid') : { id: ofToken, port: ENVD_PORT };
}

function namedByLabel(label: string): Named | Refusal {
  const [port = '', id = ''] = label.split('-');
  return readNamed(port, id);
}

function readNamed(port: string, id: string): Named | Refusal {
  const number = /^\d{1,5}$/.test(port) ? Number(port) : 0;
  if (number < 1 || number > 65_535) return refused(400, 'Invalid sandbox port');
  return /^[a-z0-9]{1,64}$/.test(id) ? { id, port: number } : refused(400, 'Invalid sandbox ID');
}

async function serveInside(
  request: FastifyRequest,
  reply: FastifyReply,
  { sandbox, port, path, isByHost }: Destination,
  passage: Passage,
  { instances, envd, metrics, auth }: InsideOptions,
): Promise<FastifyReply> {
  const { raw } = request;
  const { id: agentId, spec } = sandbox.instance;
  const fail = async ({ reason, ...answer }: Refusal) => {
    await drained(raw);
    return sendError(reply, reason, answer);
  };
  let access: SandboxAccess;
  try {
    if (isPaused(sandbox.instance)) await instances.resume(spec.tenant, agentId);
    access = await instances.access(spec.tenant, agentId);
  } catch (error) {
    if (isGone(error)) return await fail(sandboxGone(sandbox.id));
    throw error;
  }
  const headerChanges = isByHost ? BY_HOST : BY_PORT;
  if (port === ENVD_PORT && !request.ws) {
    reply.hijack();
    for (let at = 0; at < headerChanges.added.length; at += 2)
      reply.raw.setHeader(headerChanges.added[at] as string, headerChanges.added[at + 1] ?? '');
    reply.raw.setHeader('X-Trace-Id', request.traceId);
    reply.raw.setHeader('X-Content-Type-Options', 'nosniff');
    await envd.serve(raw, reply.raw, {
      url: path,
      sandbox: {
        ...{ id: sandbox.id, token: sandbox.token, environment: variablesOf(sandbox) },
        defaults: { user: spec.built?.user ?? '', workingDir: spec.built?.workingDir ?? '' },
        metrics: () => metrics.current(sandbox.instance),
      },
      access,
      reportFailure: text => {
        request.failure = text;
      },
    });
    return reply;
  }
  const tokens = [...(await ownTokens(raw, auth)), ...keysIn(raw)];
  return await passage.pass(request, reply, {
    ...{ port, path, tokens, headerChanges },
    access: async signal => {
      if (isImageInterpreter(spec, port)) await startImageInterpreter(access, spec, signal);
      return access;
    },
    dialDelaysMs: [...DIAL_DELAYS_MS, ...dialDelaysOf(spec.built?.base ?? spec.template, port)],
    unreachable: async () => await fail(portClosed(sandbox.id, port)),
  });
}

/** Returns the variables of the create, without those that refer to secrets. */
function variablesOf({ instance }: E2bSandbox): Record<string, string> {
  const variables = Object.entries(instance.spec.env);
  return Object.fromEntries(variables.filter((pair): pair is [string, string] => typeof pair[1] === 'string'));
}

/** Returns the API key of a request, which is for the service. */
function keysIn({ headers }: IncomingMessage): readonly string[] {
  const { 'x-api-key': key } = headers;
  return typeof key === 'string' && isApiKey(key) ? [key] : [];
}

/** Returns true for the errors of a sandbox that does not run or does not exist. */
function isGone(error: unknown): boolean {
  return error instanceof ServiceError && (error.code === 'failed_precondition' || error.code === 'not_found');
}
