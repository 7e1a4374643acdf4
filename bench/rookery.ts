import { randomUUID } from 'node:crypto';
import { fileURLToPath } from 'node:url';
import { SignJWT } from 'jose';
import { Served } from '../scripts/served.ts';
import type { Interpreter } from '../src/sandbox/host/interpreters.ts';
import { type Ask, Caller } from './caller.ts';

/** Directory of the bench's echo handler. */
export const AGENT_CODE = fileURLToPath(new URL('agent', import.meta.url));

export interface RookeryOptions {
  readonly withAuth?: boolean;
  /** Additional `--set` settings of `serve`. */
  readonly settings?: readonly string[];
  readonly env?: Readonly<Record<string, string>>;
  /** Flags of Node.js, for example of its profiler. */
  readonly nodeArgs?: readonly string[];
  /** Timeout of each start, in milliseconds. Default: the timeout of Served. */
  readonly readyMs?: number;
}

/** A service with default metrics, traces and logs, and a client that keeps its connections open. */
export class Rookery {
  readonly served: Served;
  readonly token: string | undefined;
  readonly #caller: Caller;
  readonly #python: Interpreter;

  private constructor(served: Served, token: string | undefined, python: Interpreter) {
    this.served = served;
    this.token = token;
    this.#python = python;
    this.#caller = new Caller(served.frontendUrl);
  }

  static async start(python: Interpreter, options: RookeryOptions = {}): Promise<Rookery> {
    const settings = [...(options.settings ?? [])];
    let token: string | undefined;
    const env: Record<string, string> = { ...options.env };
    if (options.withAuth) {
      const secret = randomUUID() + randomUUID();
      settings.push('enable_func_token_auth=true', 'mounts.allow=/');
      env.ROOKERY_JWT_SECRET = secret;
      token = await new SignJWT({ role: 'developer' })
        .setProtectedHeader({ alg: 'HS256' })
        .setSubject('bench')
        .setExpirationTime('4h')
        .sign(new TextEncoder().encode(secret));
    }
    const args = settings.flatMap(setting => ['--set', setting]);
    const { nodeArgs = [], readyMs } = options;
    const served = await Served.start({ args, env, nodeArgs, ...(readyMs !== undefined && { readyMs }) });
    return new Rookery(served, token, python);
  }

  get url(): string {
    return this.served.frontendUrl;
  }

  /**
   * Creates one agent of `code` (default: the bench's echo handler). Returns its id. `spec` replaces fields
   * of runtime_spec.
   */
  async create(
    code = AGENT_CODE,
    spec: {
      readonly runtime?: string;
      readonly handler?: string;
      /** Memory in MB. Undefined means the default of the service. */
      readonly memory?: number | undefined;
      readonly sandbox_type?: string;
      readonly rootfs?: { readonly imageurl: string };
    } = {},
  ): Promise<string> {
    return (await this.createTimed(code, spec)).id;
  }

  /**
   * Creates one agent. Returns its id and the header `Server-Timing` of the answer. `more` has other members
   * of the body.
   */
  async createTimed(
    code = AGENT_CODE,
    spec: Readonly<Record<string, unknown>> = {},
    more: Readonly<Record<string, unknown>> = {},
  ): Promise<{ readonly id: string; readonly timing: string }> {
    const { answer, timing } = await this.#ask('POST', '/api/agent', {
      namespace: 'bench',
      name: randomUUID(),
      mounts: [{ source: code, target: '/code', readonly: true }],
      runtime_spec: {
        runtime: `python${this.#python.version}`,
        codePath: '/code',
        handler: 'handler.handle',
        rootfs: { imageurl: 'host' },
        cpu: 1000,
        memory: 256,
        ...spec,
      },
      ...more,
    });
    return { id: String(answer.instance_id), timing };
  }

  async createMany(count: number, callers = 8): Promise<string[]> {
    const ids: string[] = [];
    let left = count;
    const caller = async () => {
      while (left > 0) {
        left -= 1;
        ids.push(await this.create());
      }
    };
    await Promise.all(Array.from({ length: callers }, caller));
    return ids;
  }

  async deleteAll(ids: readonly string[]): Promise<void> {
    const left = [...ids];
    const caller = async () => {
      for (let id = left.pop(); id !== undefined; id = left.pop()) await this.#send('DELETE', `/api/agent/${id}`);
    };
    await Promise.all(Array.from({ length: 8 }, caller));
  }

  /** Deletes one agent. Returns the header `Server-Timing` of the answer. */
  async deleteTimed(id: string): Promise<string> {
    return (await this.#ask('DELETE', `/api/agent/${id}`)).timing;
  }

  /** Puts a durable agent to sleep. */
  async sleep(id: string): Promise<void> {
    await this.#send('POST', `/api/agent/${id}/sleep`);
  }

  async invoke(id: string, event: unknown): Promise<unknown> {
    return (await this.#send('POST', invokePath(id), event)).data;
  }

  async get(id: string): Promise<Record<string, unknown>> {
    return (await this.#send('GET', `/api/agent/${id}`)).instance as Record<string, unknown>;
  }

  async remove(): Promise<void> {
    this.#caller.close();
    // Node.js writes a profile only when the process exits normally.
    await this.served.end('SIGTERM');
    await this.served.remove();
  }

  /**
   * Starts the next server on the same data directory after this one has ended. The next server then owns the
   * directory.
   */
  async again(): Promise<Rookery> {
    const next = new Rookery(await this.served.next(), this.token, this.#python);
    this.#caller.close();
    return next;
  }

  async #send(method: Ask['method'], path: string, body?: unknown): Promise<Record<string, unknown>> {
    return (await this.#ask(method, path, body)).answer;
  }

  async #ask(
    method: Ask['method'],
    path: string,
    body?: unknown,
  ): Promise<{ readonly answer: Record<string, unknown>; readonly timing: string }> {
    const { status, timing, text } = await this.#caller.ask({ method, path, token: this.token, body });
    if (status !== 200) throw new Error(`${method} ${path} answered ${status}: ${text}`);
    return { answer: JSON.parse(text) as Record<string, unknown>, timing };
  }
}

export function invokePath(id: string): string {
  return `/api/agent/${id}/invoke`;
}
