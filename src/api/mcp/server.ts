import type { CallToolResult, Tool as ListedTool, Server } from '@modelcontextprotocol/server';
import type { JsonObject } from '../../core/json.ts';
import { LIMITS } from '../../core/limits.ts';
import { checkAccess, type Role } from '../../http/access/credentials.ts';
import type { FunctionTools } from './function-tools.ts';
import type { SandboxTool } from './sandbox-tools.ts';
import { type Caller, runTool, type ToolFacts } from './tool.ts';

export interface McpServerOptions {
  readonly version: string;
  /** Absent: there are no functions. */
  readonly functions?: FunctionTools;
  readonly sandboxes: readonly SandboxTool[];
  /** Gets errors that no handler caught. */
  readonly onFault: (error: unknown, traceId: string) => void;
}

type Sdk = typeof import('@modelcontextprotocol/server');

const INSTRUCTIONS =
  'Tools whose names begin with sandbox_ work on isolated Linux sandboxes: create one, then use its sandbox_id. All other tools are functions of this service.';

/**
 * Answers requests of the Model Context Protocol, each by a server of its own. Nothing is kept between
 * requests, so any replica can answer any of them.
 */
export class McpServer {
  readonly #options: McpServerOptions;
  /** The SDK, which loads with the first request because it is large. */
  #sdk: Promise<Sdk> | null = null;
  readonly #open = new Set<{ close(): Promise<void> }>();

  constructor(options: McpServerOptions) {
    this.#options = options;
  }

  /** Answers a POST. `body` is its JSON; undefined: the request has no valid JSON. */
  async answer(request: Request, body: unknown, caller: Caller): Promise<Response> {
    this.#sdk ??= import('@modelcontextprotocol/server');
    const sdk = await this.#sdk;
    const options = body === undefined ? {} : { parsedBody: body };
    if (await sdk.isLegacyRequest(request, body)) return await this.#answerOlder(sdk, request, options, caller);
    const handler = sdk.createMcpHandler(() => this.#serverFor(sdk, caller), {
      legacy: 'reject',
      maxSubscriptions: 0,
      maxRequestBodySize: LIMITS.invokeBodyBytes,
      onerror: () => undefined,
    });
    this.#open.add(handler);
    try {
      return await handler.fetch(request, options);
    } finally {
      this.#open.delete(handler);
    }
  }

  /** Answers a request of the older protocol with JSON, because clients limit the events of a stream. */
  async #answerOlder(sdk: Sdk, request: Request, options: { parsedBody?: unknown }, caller: Caller): Promise<Response> {
    const server = this.#serverFor(sdk, caller);
    const transport = new sdk.WebStandardStreamableHTTPServerTransport({ enableJsonResponse: true });
    const closing = { close: () => server.close() };
    this.#open.add(closing);
    try {
      await server.connect(transport);
      return await transport.handleRequest(request, options);
    } finally {
      this.#open.delete(closing);
      await server.close();
    }
  }

  /** Ends the requests that run. */
  async close(): Promise<void> {
    await Promise.all([...this.#open].map(handler => handler.close()));
  }

  #serverFor(sdk: Sdk, caller: Caller): Server {
    const server = new sdk.Server(
      { name: 'rookery', version: this.#options.version },
      { capabilities: { tools: {} }, instructions: INSTRUCTIONS },
    );
    server.setRequestHandler('tools/list', async ({ params }) => {
      const page = await this.#list(caller, params?.cursor ?? '');
      return { tools: page.tools as ListedTool[], ...(page.next !== '' && { nextCursor: page.next }) };
    });
    server.setRequestHandler('tools/call', async ({ params }) => {
      const { name, arguments: input = {} } = params;
      const tool = this.#sandboxTools(caller.role).find(each => each.name === name);
      const found = tool ?? (await this.#options.functions?.find(caller.tenant, name)) ?? null;
      if (found === null) throw new sdk.ProtocolError(sdk.ProtocolErrorCode.InvalidParams, `Unknown tool: ${name}`);
      const fault = (error: unknown) => this.#options.onFault(error, caller.traceId);
      return (await runTool(found, input as JsonObject, caller, fault)) as CallToolResult;
    });
    return server;
  }

  /** Returns the tools behind the tool `after`. `next`: the last tool of the page; `''`: no more follow. */
  async #list(
    { tenant, role }: Caller,
    after: string,
  ): Promise<{ readonly tools: ToolFacts[]; readonly next: string }> {
    const functions = (await this.#options.functions?.of(tenant)) ?? new Map<string, ToolFacts>();
    const all = [...this.#sandboxTools(role), ...functions.values()].sort((a, b) => (a.name < b.name ? -1 : 1));
    const tools: ToolFacts[] = [];
    let bytes = 0;
    for (const { name, description, inputSchema } of all.filter(tool => tool.name > after)) {
      bytes += JSON.stringify(inputSchema).length + description.length;
      if (tools.length > 0 && bytes > LIMITS.mcpListBytes) return { tools, next: tools.at(-1)?.name ?? '' };
      tools.push({ name, description, inputSchema });
    }
    return { tools, next: '' };
  }

  /** Returns the tools for sandboxes that a role may use. */
  #sandboxTools(role: Role): readonly SandboxTool[] {
    return this.#options.sandboxes.filter(({ access }) => mayUse(role, access));
  }
}

function mayUse(role: Role, access: SandboxTool['access']): boolean {
  try {
    checkAccess({ tenant: undefined, role }, access);
    return true;
  } catch {
    return false;
  }
}
