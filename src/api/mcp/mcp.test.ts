import { describe, expect, test } from 'vitest';
import { functionDefinition, InvokerHarness } from '../../../test/functions/harness.ts';
import { type TestFrontend, testFrontend } from '../../../test/http/frontend.ts';
import { unauthenticated } from '../../core/error.ts';
import { LIMITS } from '../../core/limits.ts';
import type { TokenVerifier } from '../../http/access/credentials.ts';
import { toolNameOf } from './function-tools.ts';
import type { McpRoutesOptions } from './mcp.ts';

type Registry = NonNullable<McpRoutesOptions['functions']>['registry'];

const FITS = { type: 'object', properties: { a: { type: 'integer' } }, required: ['a'] };
const HEADERS = {
  host: 'localhost',
  accept: 'application/json, text/event-stream',
  'content-type': 'application/json',
};

interface Registered {
  readonly name: string;
  readonly kind?: string;
  readonly description?: string;
  readonly inputSchema?: object;
}

/** A registry whose functions a test changes. */
class Functions implements Registry {
  readonly #byTenant = new Map<string, Registered[]>();
  #change = 0;
  reads = 0;

  set(tenant: string, functions: Registered[]): void {
    this.#byTenant.set(tenant, functions);
    this.#change += 1;
  }

  async lastChange(): Promise<number> {
    return this.#change;
  }

  async latestByName(tenant: string, after: string, limit: number): Promise<string[]> {
    this.reads += 1;
    const sorted = (this.#byTenant.get(tenant) ?? []).toSorted((one, other) => (one.name < other.name ? -1 : 1));
    const page = sorted.filter(({ name }) => name > after).slice(0, limit);
    return page.map(each => JSON.stringify({ kind: 'faas', description: 'It.', inputSchema: FITS, ...each }));
  }
}

const ROLES: TokenVerifier = {
  known: () => undefined,
  verify: async token => {
    const [tenant = '', role] = token.split('.');
    if (role !== 'developer' && role !== 'user' && role !== 'viewer') throw unauthenticated('no such token');
    return { tenant, role };
  },
};

function bed(options: Parameters<typeof testFrontend>[0] = {}) {
  const harness = new InvokerHarness();
  const functions = new Functions();
  const frontend = testFrontend({
    mcp: functions,
    service: {
      functions: harness.invoker,
      asyncCalls: {} as never,
      business: 'yrk',
      ownTenantOnly: true,
      webhookPrefixes: null,
      tracer: { start: () => null },
    },
    ...options,
  });
  return {
    ...clientOf(frontend),
    harness,
    functions,
    frontend,
    [Symbol.asyncDispose]: () => frontend[Symbol.asyncDispose](),
  };
}

/** Sends messages of the older protocol. */
function clientOf(frontend: TestFrontend) {
  const post = (payload: string, headers: object = {}) =>
    frontend.send({ method: 'POST', url: '/mcp', headers: { ...HEADERS, ...headers }, payload });
  const ask = async (method: string, params: object, headers: object = {}) => {
    const { status, body } = await post(JSON.stringify({ jsonrpc: '2.0', id: 1, method, params }), headers);
    return { status, answer: body as Answer };
  };
  const call = async (name: string, input: object, headers: object = {}) =>
    (await ask('tools/call', { name, arguments: input }, headers)).answer;
  const names = async (headers: object = {}): Promise<string[]> =>
    (await ask('tools/list', {}, headers)).answer.result.tools.map(({ name }: { readonly name: string }) => name);
  return { post, ask, call, names };
}

const asTenant = (tenant: string, role = 'developer') => ({ authorization: `Bearer ${tenant}.${role}` });

/** An answer of the protocol. A test reads the members that its method has. */
interface Answer {
  // biome-ignore lint/suspicious/noExplicitAny: each method has a result of its own.
  readonly result: any;
  readonly error: unknown;
}

describe('the list of tools', () => {
  test('a function is a tool if it has kind faas, a description and a schema of an object', async () => {
    await using it = bed();
    it.functions.set('default', [
      { name: '0@demo@add' },
      { name: '0@default@plain', inputSchema: { properties: {} } },
      { name: '0@demo@agent', kind: 'agent' },
      { name: '0@demo@text', inputSchema: { type: 'string' } },
      { name: '0@demo@silent', description: '' },
      { name: '0@demo@free', inputSchema: {} },
    ]);
    const { answer } = await it.ask('tools/list', {});
    const tools = answer.result.tools.filter(({ name }: { readonly name: string }) => !name.startsWith('sandbox_'));
    expect(tools).toEqual([
      { name: 'demo_add', description: 'It.', inputSchema: FITS },
      { name: 'plain', description: 'It.', inputSchema: { type: 'object', properties: {} } },
    ]);
  });

  test('a change of a function shows in the next list, and an unchanged list is not read again', async () => {
    await using it = bed();
    it.functions.set('default', [{ name: '0@demo@first' }]);
    await it.names();
    await it.names();
    expect(it.functions.reads).toBe(1);
    it.functions.set('default', [{ name: '0@demo@second' }]);
    expect(await it.names()).toContain('demo_second');
    expect(await it.names()).not.toContain('demo_first');
  });

  test('a long list has pages', async () => {
    await using it = bed();
    const inputSchema = { type: 'object', title: 'x'.repeat(LIMITS.functionInputSchemaBytes - 100) };
    const many = Array.from({ length: 100 }, (_, n) => ({ name: `0@demo@f${100 + n}`, inputSchema }));
    it.functions.set('default', many);
    const seen: string[] = [];
    let cursor: string | undefined;
    let pages = 0;
    do {
      const { result } = (await it.ask('tools/list', cursor === undefined ? {} : { cursor })).answer;
      seen.push(...result.tools.map(({ name }: { readonly name: string }) => name));
      cursor = result.nextCursor;
      pages += 1;
    } while (cursor !== undefined);
    expect(pages).toBe(2);
    expect(seen.filter(name => name.startsWith('demo_'))).toEqual(many.map(({ name }) => toolNameOf(name)));
  });

  test('tool names are short, and no function takes the name of a tool for sandboxes', () => {
    expect(toolNameOf('0@demo@add-two')).toBe('demo_add-two');
    expect(toolNameOf('0@default@add')).toBe('add');
    expect(toolNameOf('0@sandbox@create')).toMatch(/^sandbox_create_[0-9a-f]{8}$/);
    const long = [1, 2].map(n => toolNameOf(`0@${'s'.repeat(16)}@${'f'.repeat(120)}${n}`));
    expect(new Set(long).size).toBe(2);
    for (const name of long) expect(name).toMatch(/^[A-Za-z0-9_-]{64}$/);
  });
});

describe('calls of tools', () => {
  test('a call runs the function of the tenant with the arguments as its event', async () => {
    await using it = bed();
    const urn = 'sn:cn:yrk:default:function:0@demo@add:$latest';
    it.harness.catalog.functions.set(urn, functionDefinition({ urn, tenant: 'default', name: '0@demo@add' }));
    it.functions.set('default', [{ name: '0@demo@add' }]);
    const answer = it.call('demo_add', { a: 1 });
    const running = () => it.harness.launcher.launched.flatMap(({ calls }) => calls);
    await expect.poll(() => running().length).toBe(1);
    running()[0]?.finish({ data: Buffer.from('{"sum":3}') } as never);
    expect((await answer).result).toEqual({
      content: [{ type: 'text', text: '{"sum":3}' }],
      structuredContent: { sum: 3 },
    });
  });

  test('arguments that do not fit, and refusals of the service, are results with isError', async () => {
    await using it = bed();
    it.functions.set('default', [{ name: '0@demo@gone' }]);
    const wrong = (await it.call('demo_gone', { a: 'x' })).result;
    expect(wrong).toMatchObject({
      isError: true,
      content: [{ text: expect.stringContaining('arguments.a: must be') }],
    });
    expect((await it.call('demo_gone', { a: 1 })).result).toMatchObject({ isError: true });
    expect((await it.call('sandbox_run', { sandbox_id: 'x', command: 'ls' })).result).toMatchObject({
      isError: true,
      content: [{ text: 'Sandbox "x" not found' }],
    });
    expect((await it.call('sandbox_create', { template: 'none' })).result).toMatchObject({ isError: true });
  });

  test('an unknown tool is an error of the protocol', async () => {
    await using it = bed();
    expect((await it.call('demo_none', {})).error).toMatchObject({ code: -32602, message: 'Unknown tool: demo_none' });
  });
});

describe('access', () => {
  test('a request without a valid token is 401', async () => {
    await using it = bed({ auth: ROLES });
    for (const headers of [{}, { authorization: 'Bearer none' }]) {
      const { status, headers: sent } = await it.post('{}', headers);
      expect({ status, header: sent['www-authenticate'] }).toEqual({ status: 401, header: 'Bearer' });
    }
    expect((await it.post('{}', asTenant('acme', 'viewer'))).status).toBe(403);
  });

  test('a tenant sees and calls only its own functions', async () => {
    await using it = bed({ auth: ROLES });
    it.functions.set('acme', [{ name: '0@demo@mine' }]);
    expect(await it.names(asTenant('acme'))).toContain('demo_mine');
    expect(await it.names(asTenant('other'))).not.toContain('demo_mine');
    expect((await it.call('demo_mine', { a: 1 }, asTenant('other'))).error).toMatchObject({ code: -32602 });
  });

  test('a user has only the tools that it may use', async () => {
    await using it = bed({ auth: ROLES });
    const reads = ['sandbox_list_files', 'sandbox_port_url', 'sandbox_read_file'];
    expect(await it.names(asTenant('acme', 'user'))).toEqual(reads);
    expect((await it.call('sandbox_create', {}, asTenant('acme', 'user'))).error).toMatchObject({ code: -32602 });
  });

  test('a sandbox of another tenant is not found', async () => {
    await using it = bed({ auth: ROLES });
    const { result } = await it.call('sandbox_create', {}, asTenant('acme'));
    const { sandbox_id } = result.structuredContent;
    const port = { sandbox_id, port: 80 };
    const own = (await it.call('sandbox_port_url', port, asTenant('acme'))).result.structuredContent;
    expect(own.url).toMatch(/^http:\/\/localhost\/serverless\/v1\/http\/\?instance=[0-9a-f-]{36}&port=80$/);
    for (const name of ['sandbox_port_url', 'sandbox_kill']) {
      const input = name === 'sandbox_kill' ? { sandbox_id } : port;
      expect((await it.call(name, input, asTenant('other'))).result).toMatchObject({
        isError: true,
        content: [{ text: `Sandbox "${sandbox_id}" not found` }],
      });
    }
    expect((await it.call('sandbox_kill', { sandbox_id }, asTenant('acme'))).result.isError).toBeUndefined();
  });

  test('a foreign page may not call tools', async () => {
    await using it = bed();
    expect((await it.post('{}', { origin: 'http://foreign.test' })).status).toBe(403);
  });
});

describe('the wire', () => {
  test('an older handshake answers the version that the client asks for', async () => {
    await using it = bed();
    const params = { protocolVersion: '2025-06-18', capabilities: {}, clientInfo: { name: 'c', version: '1' } };
    const { result } = (await it.ask('initialize', params)).answer;
    expect(result).toMatchObject({ protocolVersion: '2025-06-18', serverInfo: { name: 'rookery', version: '0.0.0' } });
    const note = await it.post(JSON.stringify({ jsonrpc: '2.0', method: 'notifications/initialized' }));
    expect({ status: note.status, text: note.text }).toEqual({ status: 202, text: '' });
  });

  test('the newest protocol needs no handshake', async () => {
    await using it = bed();
    const version = '2026-07-28';
    const key = 'io.modelcontextprotocol';
    const _meta = {
      [`${key}/protocolVersion`]: version,
      [`${key}/clientInfo`]: { name: 'c', version: '1' },
      [`${key}/clientCapabilities`]: {},
    };
    const send = (method: string) =>
      it.post(JSON.stringify({ jsonrpc: '2.0', id: 1, method, params: { _meta } }), {
        'mcp-protocol-version': version,
        'mcp-method': method,
      });
    expect((await send('server/discover')).body).toMatchObject({
      result: { supportedVersions: expect.arrayContaining([version]), capabilities: { tools: {} } },
    });
    expect((await send('tools/list')).body).toMatchObject({
      result: { resultType: 'complete', ttlMs: 0, cacheScope: 'private' },
    });
  });

  test.each([
    ['no JSON', '{nope', 400],
    ['nothing', '', 400],
    ['JSON that is nested too deeply', '['.repeat(100_000), 400],
  ])('%s is refused', async (_what, payload, status) => {
    await using it = bed();
    expect((await it.post(payload)).status).toBe(status);
  });

  test('a body that is too large is 413, and GET and DELETE are 405', async () => {
    await using it = bed();
    expect((await it.post(' '.repeat(LIMITS.invokeBodyBytes + 1))).status).toBe(413);
    for (const method of ['GET', 'DELETE'] as const) {
      expect((await it.frontend.send({ method, url: '/mcp', headers: HEADERS })).status).toBe(405);
    }
  });
});
