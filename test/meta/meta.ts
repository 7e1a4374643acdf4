import type { FastifyInstance } from 'fastify';
import { createMeta, type MetaOptions } from '../../src/api/meta-app.ts';
import type { RegistryOptions } from '../../src/registry/registry.ts';
import { type TestRegistry, testRegistry } from '../registry/registry.ts';

export interface Answer {
  readonly status: number;
  // biome-ignore lint/suspicious/noExplicitAny: tests look into answers of every shape
  readonly body: any;
}

export interface TestMeta extends TestRegistry {
  readonly app: FastifyInstance;
  /**
   * Sends `body` as JSON, or unchanged if it is a string.
   * `path` is below `/serverless/v1`; a path that begins with `//` is absolute.
   */
  send(method: string, path: string, body?: unknown, headers?: Record<string, string>): Promise<Answer>;
  /** Registers `FUNCTION` with `changes` and returns the record; throws if the service refuses. */
  // biome-ignore lint/suspicious/noExplicitAny: a record has every type
  register(changes?: Record<string, unknown>, headers?: Record<string, string>): Promise<any>;
}

/** Creates a meta_service over a registry in memory; `await using` closes both. */
export async function testMeta(
  options: { registry?: Partial<RegistryOptions>; entry?: Partial<MetaOptions> } = {},
): Promise<TestMeta> {
  const inner = await testRegistry(options.registry);
  const app = createMeta({
    registry: inner.registry,
    version: '0.0.0',
    hosts: { boundHost: '127.0.0.1', allowedHosts: [] },
    auth: null,
    poolTenants: null,
    ready: () => ({}),
    metrics: { observeRequest() {}, uncaught() {}, render: async () => ({ contentType: 'text/plain', body: '' }) },
    log: { info() {}, warn() {}, error() {} },
    slowMs: 60_000,
    ...options.entry,
  });
  const send: TestMeta['send'] = async (method, path, body, headers = {}) => {
    const { statusCode, payload } = await app.inject({
      method: method as 'GET',
      url: path.startsWith('//') ? path.slice(1) : `/serverless/v1${path}`,
      headers,
      ...(body === undefined ? {} : { payload: typeof body === 'string' ? body : JSON.stringify(body) }),
    });
    return { status: statusCode, body: payload === '' ? undefined : JSON.parse(payload) };
  };
  return {
    ...inner,
    app,
    send,
    async register(changes = {}, headers = {}) {
      const answer = await send('POST', '/functions', { ...FUNCTION, ...changes }, headers);
      if (answer.body.code !== 0) throw new Error(answer.body.message);
      return answer.body.function;
    },
    async [Symbol.asyncDispose]() {
      await app.close();
      await inner[Symbol.asyncDispose]();
    },
  };
}

/** The smallest function of kind agent. */
export const FUNCTION = { name: '0@demo@hello', kind: 'agent', runtime: 'python3.11', cpu: 500, memory: 512 };
export const NAME = FUNCTION.name;
export const URN = `sn:cn:yrk:default:function:${NAME}`;

export const NOT_FOUND = (what: string) => ({
  status: 200,
  body: { code: 4115, message: `function [${what}] is not found. check input parameters` },
});

export const NO_VERSION = (version: string) => NOT_FOUND(`${NAME}:${version}`);
