import type { Connection, RequestOptions } from './connection.ts';
import { Files } from './files.ts';
import type { AgentExecRequest, AgentExecResponse, Agent as AgentRecord, AgentStatsResponse } from './generated.ts';
import { readLines } from './lines.ts';
import { openTerminal, type Terminal, type TerminalOptions } from './terminal.ts';

export interface InvokeOptions extends RequestOptions {
  /** How long the service lets the handler run. */
  readonly runMs?: number;
}

export interface LogOptions extends RequestOptions {
  /** Only so many of the newest lines. */
  readonly tail?: number;
  /** Only lines from then on: RFC 3339. */
  readonly since?: string;
  /** Of the run before (1), or the one before that. */
  readonly previous?: number;
}

/** One agent instance. */
export class Agent {
  readonly id: string;
  /** As it was when it was read last: see `refresh`. */
  record: AgentRecord;
  readonly files: Files;
  readonly #connection: Connection;

  /** @internal */
  constructor(connection: Connection, record: AgentRecord) {
    this.#connection = connection;
    this.record = record;
    this.id = record.instance_id;
    this.files = new Files(connection, this.id);
  }

  get name(): string {
    return this.record.name;
  }

  /** Where its exposed port is: by its own host name, else by path; null when none is exposed. */
  get address(): string | null {
    const { expose } = this.record;
    if (expose === undefined) return null;
    return expose.address ?? new URL(expose.path, this.#connection.url).href;
  }

  get #params() {
    return { params: { instanceId: this.id } };
  }

  async refresh(options: RequestOptions = {}): Promise<AgentRecord> {
    const { instance } = await this.#connection.call('getAgent', { ...options, ...this.#params });
    this.record = instance;
    return instance;
  }

  /** Calls the handler and answers what it returns. It is sent again only when it has certainly not begun. */
  async invoke<T = unknown>(event: unknown = {}, options: InvokeOptions = {}): Promise<T> {
    const answer = await this.#connection.call('invokeAgent', {
      ...options,
      ...this.#params,
      body: event,
      headers: { 'x-invoke-timeout-ms': options.runMs?.toString() },
      isUnbounded: true,
    });
    return answer.data as T;
  }

  /** Runs a command to its end: a text by `/bin/sh -c`, or a list of arguments. */
  async exec(
    command: AgentExecRequest['command'],
    options: RequestOptions & Omit<AgentExecRequest, 'command'> = {},
  ): Promise<AgentExecResponse> {
    const { signal, timeoutMs, traceId, ...rest } = options;
    const request = { signal, timeoutMs, traceId, isUnbounded: true };
    return await this.#connection.call('agentExec', { ...request, ...this.#params, body: { command, ...rest } });
  }

  /** A command (else a login shell) with open streams; with a terminal unless `tty` is false. */
  async terminal(options: TerminalOptions = {}): Promise<Terminal> {
    return await openTerminal(this.#connection, this.id, options);
  }

  async logs({ tail, since, previous, ...options }: LogOptions = {}): Promise<string> {
    const query = { tail, since, previous };
    return await this.#connection.text('agentLogs', { ...options, ...this.#params, query });
  }

  /** The lines of its log as they come, until it ends or `signal` aborts. */
  async *follow({ tail, since, ...options }: Omit<LogOptions, 'previous'> = {}): AsyncGenerator<string> {
    const query = { tail, since, follow: true };
    yield* readLines(await this.#connection.stream('agentLogs', { ...options, ...this.#params, query }));
  }

  async stats(options: RequestOptions = {}): Promise<AgentStatsResponse> {
    return await this.#connection.call('agentStats', { ...options, ...this.#params });
  }

  /** Where a TCP port inside is for HTTP, published or not. What asks there has to send the token. */
  portUrl(port: number, path = '/'): string {
    const base = new URL(this.#connection.url);
    const asked = new URL(path, 'http://inside');
    base.pathname = `${base.pathname.replace(/\/$/, '')}/serverless/v1/http${asked.pathname}`;
    base.search = asked.search;
    base.searchParams.set('instance', this.id);
    base.searchParams.set('port', String(port));
    return base.href;
  }

  /** A signed link to the exposed port, for a browser. */
  async link(expiresSeconds?: number, options: RequestOptions = {}): Promise<string> {
    const body = expiresSeconds === undefined ? {} : { expires_seconds: expiresSeconds };
    const { url } = await this.#connection.call('linkAgent', { ...options, ...this.#params, body });
    return url;
  }

  /** Starts it anew: what it had in memory is gone. */
  async restart(options: RequestOptions = {}): Promise<void> {
    await this.#connection.call('restartAgent', { ...options, ...this.#params, isUnbounded: true });
    await this.refresh(options);
  }

  async delete(options: RequestOptions = {}): Promise<void> {
    await this.#connection.call('deleteAgent', { ...options, ...this.#params, isUnbounded: true });
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.delete();
  }
}
