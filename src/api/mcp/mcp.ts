import { Readable } from 'node:stream';
import { pipeline } from 'node:stream/promises';
import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify';
import { ServiceError } from '../../core/error.ts';
import { isJsonObject, parseJson } from '../../core/json.ts';
import { LIMITS } from '../../core/limits.ts';
import { formatUrn } from '../../core/urn.ts';
import { answerController } from '../../http/access/caller.ts';
import { refusal } from '../../http/answer.ts';
import { forwardedOf } from '../../http/forwarding.ts';
import { Exchange } from '../../http/hot/exchange.ts';
import type { Thing } from '../../http/route-config.ts';
import { isJson } from '../../lib/json-bytes.ts';
import { agentIdOf } from '../e2b/sandboxes.ts';
import { frontendErrors } from '../errors.ts';
import { schemeOf } from '../passthrough/addresses.ts';
import { FunctionTools, type FunctionToolsOptions } from './function-tools.ts';
import { type SandboxToolsOptions, sandboxTools } from './sandbox-tools.ts';
import { McpServer } from './server.ts';
import type { Caller } from './tool.ts';

export interface McpRoutesOptions extends SandboxToolsOptions {
  readonly version: string;
  /** Absent: the tools are those for sandboxes. */
  readonly functions?: FunctionToolsOptions;
}

const MCP_URL = '/mcp';
/** The headers that the protocol defines. */
const HEADERS = ['accept', 'content-type', 'mcp-protocol-version', 'mcp-method', 'mcp-name', 'last-event-id'];

/** The resource of a request, which one replica owns. */
interface Owned {
  readonly thing: Thing;
  readonly key: string;
}

/**
 * Adds `/mcp`, a server of the Model Context Protocol for each tenant. Its functions and sandboxes are the
 * tools. The SDK speaks both generations of the protocol.
 */
export function addMcpRoutes(app: FastifyInstance, options: McpRoutesOptions): void {
  const functions = options.functions && new FunctionTools(options.functions);
  const server = new McpServer({
    version: options.version,
    ...(functions && { functions }),
    sandboxes: sandboxTools(options),
    onFault: (error, traceId) => app.fastPath.uncaught(error, traceId),
  });
  app.addHook('preClose', async () => await server.close());
  const serve = (request: FastifyRequest, reply: FastifyReply): void => {
    if (request.method !== 'POST') {
      reply.code(405).header('Allow', 'POST').send(refusal(405, 'the MCP server has no sessions: use POST').body);
      return;
    }
    const bytes = request.body as Buffer | undefined;
    const parsed = bytes !== undefined && isJson(bytes) ? parseJson(bytes) : undefined;
    const body = parsed?.ok === true ? parsed.value : undefined;
    void ownedBy(body, request, functions, options.functions?.business ?? '')
      .catch(() => null)
      .then(owned => pass(request, reply, { server, body, owned }));
  };
  for (const method of ['GET', 'POST', 'DELETE']) {
    app.route({
      method,
      url: MCP_URL,
      bodyLimit: LIMITS.invokeBodyBytes,
      exposeHeadRoute: false,
      config: {
        access: 'invoke',
        longLived: true,
        noEnvironments: true,
        hasForeignQuery: true,
        livesWith: { thing: 'agent', keyOf: () => null },
      },
      handler: serve,
    });
  }
}

interface Passed {
  readonly server: McpServer;
  readonly body: unknown;
  /** null: every replica can answer. */
  readonly owned: Owned | null;
}

/** Answers the request here, or has it answered by the replica that owns its function or sandbox. */
function pass(request: FastifyRequest, reply: FastifyReply, { server, body, owned }: Passed): void {
  if (owned !== null) request.route = { ...request.route, livesWith: { thing: owned.thing, keyOf: () => null } };
  const exchange = Exchange.ofRouter(request, reply);
  const here = () => void answer(request, reply, server, body).catch((error: unknown) => exchange.fault(error));
  const isPassed =
    owned !== null &&
    forwardedOf(request.raw) === undefined &&
    exchange.passOn({ key: owned.key, here, fail: error => failExchange(exchange, error) });
  if (!isPassed) here();
}

function failExchange(exchange: Exchange, error: unknown): void {
  if (error instanceof ServiceError) exchange.fail(error, frontendErrors(error));
  else exchange.fail('the request could not be forwarded', refusal(503, 'the replica that can answer is away'));
}

/** Returns what a call of a tool works on. */
async function ownedBy(
  body: unknown,
  { tenant }: FastifyRequest,
  functions: FunctionTools | undefined,
  business: string,
): Promise<Owned | null> {
  if (!isJsonObject(body) || body.method !== 'tools/call' || !isJsonObject(body.params)) return null;
  const { name, arguments: input } = body.params;
  if (typeof name !== 'string') return null;
  if (name === 'sandbox_create') return { thing: 'worker', key: '' };
  const agentId = isJsonObject(input) && typeof input.sandbox_id === 'string' ? agentIdOf(input.sandbox_id) : null;
  if (name.startsWith('sandbox_') && agentId !== null) return { thing: 'agent', key: agentId };
  const functionName = await functions?.functionOf(tenant, name);
  if (functionName === undefined || functionName === null) return null;
  return { thing: 'function', key: formatUrn({ business, tenant, name: functionName, version: null }) };
}

async function answer(request: FastifyRequest, reply: FastifyReply, server: McpServer, body: unknown): Promise<void> {
  const { raw } = reply;
  const { signal } = answerController(raw);
  const response = await server.answer(webRequest(request, body, signal), body, callerOf(request, signal));
  if (raw.destroyed) return;
  for (const [name, value] of Object.entries(reply.getHeaders())) if (value !== undefined) raw.setHeader(name, value);
  raw.writeHead(response.status, Object.fromEntries(response.headers));
  if (response.body === null) raw.end();
  else await pipeline(Readable.fromWeb(response.body as never), raw).catch(() => raw.destroy());
}

/** Returns the request as the SDK reads it. A body that is not JSON stays a text, which the SDK refuses. */
function webRequest({ raw, body }: FastifyRequest, parsed: unknown, signal: AbortSignal): Request {
  const headers = new Headers();
  for (const name of HEADERS) {
    const value = raw.headers[name];
    if (typeof value === 'string') headers.set(name, value);
  }
  const hasText = raw.method === 'POST' && parsed === undefined;
  return new Request(`http://localhost${MCP_URL}`, {
    method: raw.method ?? 'POST',
    headers,
    signal,
    ...(hasText && { body: ((body as Buffer | undefined) ?? Buffer.alloc(0)).toString() }),
  });
}

function callerOf({ raw, tenant, role, traceId }: FastifyRequest, signal: AbortSignal): Caller {
  const { traceparent, host = 'localhost' } = raw.headers;
  const sent = typeof traceparent === 'string' ? traceparent : undefined;
  return { tenant, role, traceId, traceparent: sent, origin: `${schemeOf(raw)}://${host}`, signal };
}
