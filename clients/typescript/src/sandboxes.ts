import { createHash, randomUUID } from 'node:crypto';
import { Agent } from './agent.ts';
import type { Connection, RequestOptions } from './connection.ts';
import { failureOf } from './failures.ts';
import type { Agent as AgentRecord, CreateAgentRequest, RunCodeRequest } from './generated.ts';
import { readLines } from './lines.ts';

export interface SandboxOptions extends RequestOptions {
  /** `base` (default), or `code-interpreter-v1`, in which `runCode` works. */
  readonly template?: string;
  /** An image of the Docker daemon of the service, instead of a template. */
  readonly image?: string;
  /** Absent: a name made from the idempotency key. */
  readonly name?: string;
  /** Namespace of the name; default: `default`. */
  readonly namespace?: string;
  readonly env?: CreateAgentRequest['env_vars'];
  /** Names and values; lists select sandboxes by them. */
  readonly labels?: Readonly<Record<string, string>>;
  /** Time to live. Absent: until it is killed. */
  readonly ttlSeconds?: number;
  /** Longest time without a command or other access. Absent: no limit. */
  readonly idleSeconds?: number;
  /** Action at the end of either time; default: `delete`. */
  readonly onExpiry?: CreateAgentRequest['on_expiry'];
  /** Key that makes repeated creates return the same sandbox, if the options are the same too. */
  readonly idempotencyKey?: string;
}

export interface RunCodeOptions extends RequestOptions {
  /** `python` (default), or `javascript` where the sandbox has Node.js. */
  readonly language?: string;
  /** Id of a context of the interpreter, instead of a language. */
  readonly context?: string;
  /** Variables for this cell only. */
  readonly env?: Readonly<Record<string, string>>;
}

/** A line of the interpreter. The type says which members it has. */
export interface CodeLine {
  readonly type: string;
  readonly text?: string;
  readonly is_main_result?: boolean;
  readonly name?: string;
  readonly value?: string;
  readonly traceback?: string;
  readonly [member: string]: unknown;
}

export interface ForkOptions extends RequestOptions {
  /** Number of forks; default: 1. */
  readonly count?: number;
  /** Name of the fork; with `count` above 1, `-1`, `-2` … follow it. Absent: the service makes names up. */
  readonly name?: string;
  /** Variables in addition to those of the sandbox. */
  readonly env?: CreateAgentRequest['env_vars'];
  /** Time to live. Absent: that with which the sandbox was created. */
  readonly ttlSeconds?: number;
  /** True if the files suffice, although the sandbox runs processes. */
  readonly filesOnly?: boolean;
  /** Key that makes repeated forks return the same sandboxes, if the options are the same too. */
  readonly idempotencyKey?: string;
}

const INTERPRETER = 'code-interpreter-v1';
/** End of a sandbox of `Sandboxes.runCode` whose client has disappeared. */
const RUN_TTL_SECONDS = 3600;

/** Result of a cell of code: the lines of the interpreter, in their order. */
export class CodeRun {
  readonly lines: readonly CodeLine[];

  constructor(lines: readonly CodeLine[]) {
    this.lines = lines;
  }

  /** All text that was written to standard output. */
  get stdout(): string {
    return this.#text('stdout');
  }

  /** All text that was written to the error output. */
  get stderr(): string {
    return this.#text('stderr');
  }

  /** Displayed values, and the value of the last expression, which has `is_main_result`. */
  get results(): readonly CodeLine[] {
    return this.lines.filter(({ type }) => type === 'result');
  }

  /** Text of the last expression's value; undefined without one. */
  get text(): string | undefined {
    return this.results.find(result => result.is_main_result === true)?.text;
  }

  /** The error that ended the code, with `name`, `value` and `traceback`; undefined if it succeeded. */
  get error(): CodeLine | undefined {
    return this.lines.find(({ type }) => type === 'error');
  }

  #text(stream: string): string {
    return this.lines.map(line => (line.type === stream ? line.text : '')).join('');
  }
}

/** Creates and finds sandboxes: agents without code. */
export class Sandboxes {
  readonly #connection: Connection;

  constructor(connection: Connection) {
    this.#connection = connection;
  }

  /**
   * Creates a sandbox and returns it when it runs. `await using sandbox = …` ends it at the end of the block.
   */
  async create(options: SandboxOptions = {}): Promise<Sandbox> {
    const { signal, timeoutMs, traceId, template = 'base', image, idempotencyKey = randomUUID() } = options;
    const { labels, ttlSeconds, idleSeconds, onExpiry, env } = options;
    const request = { signal, timeoutMs, traceId };
    const body: CreateAgentRequest = {
      namespace: options.namespace ?? 'default',
      name: options.name ?? `sandbox-${createHash('sha256').update(idempotencyKey).digest('hex').slice(0, 8)}`,
      ...(image === undefined ? { template } : { image }),
      ...(env === undefined ? {} : { env_vars: env }),
      ...(labels === undefined ? {} : { labels: { ...labels } }),
      ...(ttlSeconds === undefined ? {} : { ttl_seconds: ttlSeconds }),
      ...(idleSeconds === undefined ? {} : { idle_seconds: idleSeconds }),
      ...(onExpiry === undefined ? {} : { on_expiry: onExpiry }),
    };
    const { instance_id } = await this.#connection.call('createAgent', {
      ...request,
      body,
      headers: { 'idempotency-key': idempotencyKey },
      mayRepeat: true,
      isUnbounded: true,
    });
    return await this.get(instance_id, request);
  }

  /** Returns the sandbox with an id. Fails with status 404 if there is none. */
  async get(id: string, options: RequestOptions = {}): Promise<Sandbox> {
    const { instance } = await this.#connection.call('getAgent', { ...options, params: { instanceId: id } });
    return new Sandbox(this.#connection, instance);
  }

  /**
   * Starts sandboxes with a copy of the files, variables and settings of a sandbox. Memory is not copied, so
   * the sandbox must run no processes, unless `filesOnly` is set. Fails with the error of the first fork that
   * did not start, after ending the others.
   */
  async fork(id: string, options: ForkOptions = {}): Promise<Sandbox[]> {
    const { count, name, env, ttlSeconds, filesOnly, idempotencyKey = randomUUID(), ...request } = options;
    const forks = await this.#connection.call('forkAgent', {
      ...request,
      params: { instanceId: id },
      body: {
        ...(count === undefined ? {} : { count }),
        ...(name === undefined ? {} : { name }),
        ...(env === undefined ? {} : { env_vars: env }),
        ...(ttlSeconds === undefined ? {} : { ttl_seconds: ttlSeconds }),
        ...(filesOnly === undefined ? {} : { files_only: filesOnly }),
      },
      headers: { 'idempotency-key': idempotencyKey },
      mayRepeat: true,
      isUnbounded: true,
    });
    const ids = forks.flatMap(fork => fork.instance_id ?? []);
    const error = forks.find(fork => fork.error !== undefined)?.error;
    if (error === undefined) return await Promise.all(ids.map(each => this.get(each, request)));
    for (const each of ids) {
      const params = { instanceId: each };
      await this.#connection.call('deleteAgent', { ...request, params, query: { grace: 0 } });
    }
    throw failureOf(`a fork did not start: ${error.message}`, { status: error.code });
  }

  /** Yields the sandboxes of the tenant. Each page is requested when it is needed. */
  async *list({
    labels = {},
    template,
    ...options
  }: RequestOptions & Pick<SandboxOptions, 'labels' | 'template'> = {}): AsyncGenerator<Sandbox> {
    const label = Object.entries(labels).map(([name, value]) => `${name}=${value}`);
    let cursor: string | undefined;
    do {
      const page = await this.#connection.call('listAgents', { ...options, query: { label, template, cursor } });
      for (const record of page.instances) {
        if (record.template !== undefined) yield new Sandbox(this.#connection, record);
      }
      cursor = page.next_cursor ?? undefined;
    } while (cursor);
  }

  /** Runs code in a sandbox that is made for it and ended afterwards. */
  async runCode(code: string, options: Omit<RunCodeOptions, 'context'> = {}): Promise<CodeRun> {
    const { signal, timeoutMs, traceId } = options;
    const wanted = { signal, timeoutMs, traceId, template: INTERPRETER, ttlSeconds: RUN_TTL_SECONDS };
    await using sandbox = await this.create(wanted);
    return await sandbox.runCode(code, options);
  }
}

/** A sandbox: an agent without a handler. Methods fail with `RookeryError`. */
export class Sandbox extends Agent {
  readonly #connection: Connection;

  /** @internal */
  constructor(connection: Connection, record: AgentRecord) {
    super(connection, record);
    this.#connection = connection;
  }

  /**
   * Runs a cell of code and returns its output and its results. The code's own error is in `error` of the
   * result. Names stay for later cells. Needs the template `code-interpreter-v1`, or an image with `python3`.
   */
  async runCode(code: string, options: RunCodeOptions = {}): Promise<CodeRun> {
    const lines: CodeLine[] = [];
    for await (const line of this.streamCode(code, options)) lines.push(line);
    return new CodeRun(lines);
  }

  /** Yields the lines of the interpreter as they happen. The end of the iteration interrupts the cell. */
  async *streamCode(code: string, options: RunCodeOptions = {}): AsyncGenerator<CodeLine> {
    const { language, context, env, ...request } = options;
    const body: RunCodeRequest = {
      code,
      ...(language === undefined ? {} : { language }),
      ...(context === undefined ? {} : { context_id: context }),
      ...(env === undefined ? {} : { env_vars: { ...env } }),
    };
    const chunks = await this.#connection.stream('runCode', {
      ...request,
      params: { instanceId: this.id },
      body,
      isUnbounded: true,
    });
    for await (const line of readLines(chunks)) yield JSON.parse(line) as CodeLine;
  }

  /** Starts sandboxes with a copy of the files of this one: `Sandboxes.fork`. */
  async fork(options: ForkOptions = {}): Promise<Sandbox[]> {
    return await new Sandboxes(this.#connection).fork(this.id, options);
  }

  /** Ends the sandbox at once, with all its processes and files. */
  async kill(options: RequestOptions = {}): Promise<void> {
    await this.delete(options);
  }
}
