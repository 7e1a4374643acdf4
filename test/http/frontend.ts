import type { AddressInfo } from 'node:net';
import type { FastifyInstance, InjectOptions } from 'fastify';
import { createFrontend, type FrontendOptions } from '../../src/api/frontend-app.ts';
import { failedPrecondition } from '../../src/core/error.ts';
import { NO_CALLS_KEPT } from '../../src/core/finished-call.ts';
import type { InstanceSpec } from '../../src/core/instance.ts';
import { MemoryInstances } from './memory-instances.ts';
import { memoryKeys } from './memory-keys.ts';

export interface LogLine {
  readonly level: string;
  readonly fields: Readonly<Record<string, unknown>>;
  readonly text: string;
}

export interface TestFrontend extends AsyncDisposable {
  readonly app: FastifyInstance;
  readonly instances: MemoryInstances;
  readonly requests: { method: string; route: string; status: number }[];
  readonly outcomes: string[];
  readonly lines: LogLine[];
  /** Sends a request without a socket. `body` is parsed JSON; undefined when the answer is not JSON. */
  send(
    options: InjectOptions,
  ): Promise<{ status: number; headers: Record<string, unknown>; body: unknown; text: string }>;
  /** Listens on a free port of 127.0.0.1 and returns the base URL. */
  listen(): Promise<string>;
}

/** Creates a frontend over `MemoryInstances`; `await using` closes it. */
export function testFrontend(options: Partial<FrontendOptions> = {}): TestFrontend {
  const instances = new MemoryInstances();
  const requests: { method: string; route: string; status: number }[] = [];
  const outcomes: string[] = [];
  const lines: LogLine[] = [];
  const write = (level: string) => (fields: object, text: string) =>
    void lines.push({ level, fields: { ...fields }, text });
  const app = createFrontend({
    version: '0.0.0',
    hosts: { boundHost: '127.0.0.1', allowedHosts: [] },
    auth: null,
    ready: () => ({}),
    metrics: {
      observeRequest: (method, route, status) => void requests.push({ method, route, status }),
      uncaught: () => void lines.push({ level: 'uncaught', fields: {}, text: '' }),
      render: async () => ({ contentType: 'text/plain; version=0.0.4', body: 'up 1\n' }),
    },
    log: { info: write('info'), warn: write('warn'), error: write('error') },
    slowMs: 60_000,
    tracer: { start: () => null },
    addresses: { domain: { domain: 'localhost', scheme: 'http' }, key: Buffer.alloc(32, 7) },
    e2b: { keys: memoryKeys(), domain: null },
    invoked: outcome => void outcomes.push(outcome),
    callSink: NO_CALLS_KEPT,
    instances,
    images: {
      state: async () => 'unavailable',
      ofDriver: async () => {
        throw failedPrecondition('no driver has images');
      },
    },
    functions: {
      resolveFunction: async (_tenant, urn) => {
        throw failedPrecondition(`invalid function: ${urn} is not registered`);
      },
    },
    executors: { defaultSandboxType: 'process' },
    mountPolicy: { closed: ['/srv/rookery', '/run/docker.sock'], allow: null },
    findPath: async path => (path.startsWith('/missing') ? null : { resolved: path, kind: 'directory' }),
    ...options,
  });
  return {
    app,
    instances,
    requests,
    outcomes,
    lines,
    async send(request) {
      const { statusCode, headers, payload } = await app.inject(request);
      const isJson = String(headers['content-type']).startsWith('application/json') && payload !== '';
      return { status: statusCode, headers, body: isJson ? JSON.parse(payload) : undefined, text: payload };
    },
    async listen() {
      await app.listen({ host: '127.0.0.1', port: 0 });
      return `http://127.0.0.1:${(app.server.address() as AddressInfo).port}`;
    },
    [Symbol.asyncDispose]: () => app.close().then(() => {}),
  };
}

/** Returns the smallest body of an inline create, with `changes` applied. */
export function createBody(changes: Record<string, unknown> = {}): Record<string, unknown> {
  return { namespace: 'default', name: 'hello', runtime_spec: runtimeSpec(), ...changes };
}

export function runtimeSpec(changes: Record<string, unknown> = {}): Record<string, unknown> {
  return { runtime: 'python3.11', rootfs: { imageurl: 'python:3.11' }, ...changes };
}

export const SPEC: InstanceSpec = {
  tenant: 'default',
  namespace: 'default',
  name: 'hello',
  sandboxType: 'process',
  runtime: 'python3.11',
  codePath: '',
  handler: '',
  initializer: '',
  preStop: '',
  rootfs: { type: 'host', imageUrl: 'python:3.11', user: '' },
  ports: [],
  cpuMillis: 1000,
  memoryMb: 2048,
  env: {},
  workspace: '',
  mounts: [],
  callTimeoutMs: 900_000,
  initTimeoutMs: 30_000,
  preStopTimeoutMs: 0,
  concurrency: 1,
  functionName: '',
  functionVersion: '',
  functionUrn: '',
};
