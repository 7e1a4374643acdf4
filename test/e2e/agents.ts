import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { Agent, request } from 'undici';
import { findInterpreters } from '../../scripts/pythons.ts';
import { Served, type ServeOptions } from '../../scripts/served.ts';

export interface Answer {
  readonly status: number;
  readonly body: Record<string, unknown> & {
    readonly message?: string;
    readonly data?: unknown;
  };
  /** Value of the header `X-Advice`. */
  readonly advice?: string;
}

/**
 * A served Rookery with a code directory of Python handlers and helpers for requests. `dispose` removes
 * everything.
 */
export class Bed {
  readonly codeDir: string;
  readonly runtime: string;
  server: Served;
  /** HTTP agent with more connections than undici's default, so that parallel calls run in parallel. */
  #agent = newAgent();

  private constructor(server: Served, codeDir: string, runtime: string) {
    this.server = server;
    this.codeDir = codeDir;
    this.runtime = runtime;
  }

  /** Starts a service; `files` maps names to Python source. */
  static async start(files: Readonly<Record<string, string>>, options: ServeOptions = {}): Promise<Bed> {
    const python = (await findInterpreters()).at(-1);
    if (!python) throw new Error('no Python interpreter is here');
    const server = await Served.start(options);
    const codeDir = mkdtempSync(join(tmpdir(), 'rookery-code-'));
    for (const [name, source] of Object.entries(files)) writeFileSync(join(codeDir, name), source);
    return new Bed(server, codeDir, `python${python.version}`);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#agent.close();
    try {
      await this.server.remove();
    } finally {
      rmSync(this.codeDir, { recursive: true, force: true });
    }
  }

  async ask(
    method: 'GET' | 'POST' | 'PUT' | 'PATCH' | 'DELETE',
    path: string,
    body?: unknown,
    more: AskOptions = {},
  ): Promise<Answer> {
    const {
      statusCode,
      headers,
      body: answer,
    } = await request(`${more.meta ? this.server.metaUrl : this.server.frontendUrl}${path}`, {
      method,
      dispatcher: this.#agent,
      ...(body === undefined ? {} : { body: typeof body === 'string' ? body : JSON.stringify(body) }),
      headers: { 'content-type': 'application/json', ...more.headers },
      ...(more.signal ? { signal: more.signal } : {}),
    });
    const text = await answer.text();
    const advice = headers['x-advice'];
    return {
      status: statusCode,
      body: text === '' ? {} : JSON.parse(text),
      ...(typeof advice === 'string' ? { advice } : {}),
    };
  }

  createBody(name: string, handler: string, spec: Readonly<Record<string, unknown>> = {}, more: object = {}): object {
    return {
      namespace: 'e2e',
      name,
      mounts: [{ source: this.codeDir, target: '/code', readonly: true }],
      runtime_spec: { runtime: this.runtime, codePath: '/code', handler, rootfs: { imageurl: 'host' }, ...spec },
      ...more,
    };
  }

  /** Creates an agent and returns its id; throws with the server's message when the create fails. */
  async create(
    name: string,
    handler: string,
    spec: Readonly<Record<string, unknown>> = {},
    more: object = {},
  ): Promise<string> {
    const answer = await this.ask('POST', '/api/agent', this.createBody(name, handler, spec, more));
    if (answer.status !== 200) throw new Error(`create answered ${answer.status}: ${JSON.stringify(answer.body)}`);
    return String(answer.body.instance_id);
  }

  invoke(id: string, event: unknown = {}, more: AskOptions = {}): Promise<Answer> {
    return this.ask('POST', `/api/agent/${id}/invoke`, event, more);
  }

  /** Closes the server's keep-alive connections. */
  async disconnect(): Promise<void> {
    await this.#agent.close();
    this.#agent = newAgent();
  }

  /** Kills the server with SIGKILL and starts a new one on the same data directory. */
  async killAndRestart(): Promise<void> {
    await this.server.end('SIGKILL');
    this.server = await this.server.next();
  }
}

function newAgent(): Agent {
  return new Agent({ connections: 256, headersTimeout: 120_000, bodyTimeout: 120_000 });
}

interface AskOptions {
  readonly headers?: Readonly<Record<string, string>>;
  readonly signal?: AbortSignal;
  /** Sends the request to the meta_service. */
  readonly meta?: boolean;
}
