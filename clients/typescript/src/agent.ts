import { inspect } from 'node:util';
import { CommandResult } from './command-result.ts';
import type { AnswerOf, CallOptions, Connection, RequestOptions } from './connection.ts';
import { Files } from './files.ts';
import { followLog } from './followed-log.ts';
import type { AgentExecRequest, Agent as AgentRecord, AgentStatsResponse } from './generated.ts';
import { Processes } from './processes.ts';
import { openTerminal, type Terminal, type TerminalOptions } from './terminal.ts';

export interface InvokeOptions extends RequestOptions {
  /** Milliseconds after which the service stops the handler; the call then fails. */
  readonly runMs?: number;
}

export interface LogOptions extends RequestOptions {
  /** Maximum number of lines to return, counted from the newest. Absent: all lines. */
  readonly tail?: number;
  /** Time of the earliest line to return: RFC 3339, or an age such as `10m`. Absent: no limit. */
  readonly since?: string;
  /**
   * Number of an earlier run whose log to return: 1 (the previous run) to 3; excludes `since`. Absent: the
   * current run.
   */
  readonly previous?: number;
}

/** An agent instance. Methods fail with `RookeryError`. */
export class Agent {
  readonly id: string;
  /** The agent's record at the time of the last read; `refresh` reads it again. */
  record: AgentRecord;
  readonly files: Files;
  readonly processes: Processes;
  readonly #connection: Connection;

  /** @internal */
  constructor(connection: Connection, record: AgentRecord) {
    this.#connection = connection;
    this.record = record;
    this.id = record.instance_id;
    this.files = new Files(connection, this.id);
    this.processes = new Processes(connection, this.id);
  }

  get name(): string {
    return this.record.name;
  }

  /** Shows the id and the name in logs, but nothing of the environment. */
  [inspect.custom](): string {
    return `${this.constructor.name} ${inspect({ id: this.id, name: this.name })}`;
  }

  /**
   * URL of the exposed port: a host name of its own if there is one, otherwise a path. Null without an
   * exposed port.
   */
  get address(): string | null {
    const { expose } = this.record;
    if (expose === undefined) return null;
    return expose.address ?? new URL(expose.path, this.#connection.url).href;
  }

  get #params() {
    return { params: { instanceId: this.id } };
  }

  /** Reads the record again, stores it in `record` and returns it. */
  async refresh(options: RequestOptions = {}): Promise<AgentRecord> {
    const { instance } = await this.#connection.call('getAgent', { ...options, ...this.#params });
    this.record = instance;
    return instance;
  }

  /**
   * Calls the handler and returns its result. Without `timeoutMs` only the service limits the time.
   * The client retries only if the service has certainly not started the call.
   */
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

  /**
   * Runs a command in the sandbox and returns its exit code and output. `/bin/sh -c` runs a string; a list is
   * an argument vector. The client stops waiting after `timeoutMs` milliseconds. The service kills the
   * process group after `timeout` seconds. An exit code other than 0 is no failure of this method, but of
   * `check()` of its result.
   */
  async exec(
    command: AgentExecRequest['command'],
    options: RequestOptions & Omit<AgentExecRequest, 'command'> = {},
  ): Promise<CommandResult> {
    const { signal, timeoutMs, traceId, ...rest } = options;
    const request = { signal, timeoutMs, traceId, isUnbounded: true };
    const body = { command, ...rest };
    return new CommandResult(await this.#connection.call('agentExec', { ...request, ...this.#params, body }));
  }

  /**
   * Starts a command with open input and output streams, by default a login shell. The command gets a
   * terminal unless `tty` is false.
   */
  async terminal(options: TerminalOptions = {}): Promise<Terminal> {
    return await openTerminal(this.#connection, this.id, options);
  }

  /** Returns the log of the current run, or of an earlier one (`previous`). */
  async logs({ tail, since, previous, ...options }: LogOptions = {}): Promise<string> {
    const query = { tail, since, previous };
    return await this.#connection.text('agentLogs', { ...options, ...this.#params, query });
  }

  /** Yields lines of the log as the service receives them, until the log ends or `signal` aborts. */
  async *follow({ tail, since, ...options }: Omit<LogOptions, 'previous'> = {}): AsyncGenerator<string> {
    const query = { tail, since, follow: true };
    yield* followLog(this.#connection, { name: 'agentLogs', options: { ...options, ...this.#params, query } });
  }

  /** Returns the resources that the agent uses now. */
  async stats(options: RequestOptions = {}): Promise<AgentStatsResponse> {
    return await this.#connection.call('agentStats', { ...options, ...this.#params });
  }

  /**
   * Returns the HTTP URL of a TCP port in the sandbox, published or not. Requests to the URL need the token.
   */
  portUrl(port: number, path = '/'): string {
    const base = new URL(this.#connection.url);
    const asked = new URL(path, 'http://inside');
    base.pathname = `${base.pathname.replace(/\/$/, '')}/serverless/v1/http${asked.pathname}`;
    base.search = asked.search;
    base.searchParams.set('instance', this.id);
    base.searchParams.set('port', String(port));
    return base.href;
  }

  /**
   * Returns a signed link to the exposed port, which a browser can open without a token. The link expires
   * after `expiresSeconds`: 10 to 604800, by default 3600.
   */
  async link(expiresSeconds?: number, options: RequestOptions = {}): Promise<string> {
    const body = expiresSeconds === undefined ? {} : { expires_seconds: expiresSeconds };
    const { url } = await this.#connection.call('linkAgent', { ...options, ...this.#params, body });
    return url;
  }

  /** Replaces the sandbox by a new one under the same id and reads the record. The agent loses its memory. */
  async restart(options: RequestOptions = {}): Promise<void> {
    await this.#connection.call('restartAgent', { ...options, ...this.#params, isUnbounded: true });
    await this.refresh(options);
  }

  /**
   * Sets the time to live to `seconds` from now, for a paused agent from its resume; 0: no end. `onlyLater`
   * never moves the end to an earlier time.
   */
  async setTtl(seconds: number, options: RequestOptions & { readonly onlyLater?: boolean } = {}): Promise<void> {
    const { onlyLater = false, ...request } = options;
    const body = { ttl_seconds: seconds, only_later: onlyLater };
    this.record = (await this.#connection.call('setAgentTtl', { ...request, ...this.#params, body })).instance;
  }

  /** Freezes all processes of the agent and keeps their memory. Until the resume every use of it fails. */
  async pause(options: RequestOptions = {}): Promise<void> {
    this.record = (await this.#connection.call('pauseAgent', { ...options, ...this.#params })).instance;
  }

  /** Continues a paused agent. Returns false if the agent was running. */
  async resume(options: RequestOptions = {}): Promise<boolean> {
    const { instance, resumed } = await this.#connection.call('resumeAgent', { ...options, ...this.#params });
    this.record = instance;
    return resumed;
  }

  /**
   * Removes the sandbox of a durable agent that is idle and keeps its saved state. The next use of the agent
   * starts it. Fails with 409 while the agent is in use: `wait` waits up to that many seconds for the end of
   * its uses, and `force` cuts them off.
   */
  async sleep({ wait, force, ...options }: RequestOptions & { wait?: number; force?: boolean } = {}): Promise<void> {
    const call = { ...options, ...this.#params, query: { wait, force }, isUnbounded: wait !== undefined };
    this.record = (await this.#connection.call('sleepAgent', call)).instance;
  }

  /**
   * Changes settings of a durable agent: members of a create. State and alarms stay. The next start takes
   * them; with `now` they take effect between two calls.
   */
  async update(
    changes: NonNullable<CallOptions<'updateAgent'>['body']>,
    { now = false, ...options }: RequestOptions & { now?: boolean } = {},
  ): Promise<void> {
    const query = now ? { apply: 'now' as const } : {};
    const call = { ...options, ...this.#params, query, body: changes, isUnbounded: now };
    this.record = (await this.#connection.call('updateAgent', call)).instance;
  }

  /** Returns the alarms of a durable agent by name, without their payloads. */
  async alarms(options: RequestOptions = {}): Promise<AnswerOf<'listAgentAlarms'>> {
    return await this.#connection.call('listAgentAlarms', { ...options, ...this.#params });
  }

  /** Sets an alarm of a durable agent, and replaces the one of this name. */
  async setAlarm(
    name: string,
    alarm: NonNullable<CallOptions<'setAgentAlarm'>['body']>,
    options: RequestOptions = {},
  ): Promise<void> {
    const params = { ...this.#params.params, name };
    await this.#connection.call('setAgentAlarm', { ...options, params, body: alarm });
  }

  /** Cancels an alarm. Fails with 404 if there is none of this name. */
  async cancelAlarm(name: string, options: RequestOptions = {}): Promise<void> {
    await this.#connection.call('cancelAgentAlarm', { ...options, params: { ...this.#params.params, name } });
  }

  /** Starts a sleeping agent with its saved state. Returns false if the agent was running. */
  async wake(options: RequestOptions = {}): Promise<boolean> {
    const { instance, woken } = await this.#connection.call('wakeAgent', { ...options, ...this.#params });
    this.record = instance;
    return woken;
  }

  /** Runs `pre_stop`, then stops the agent and removes its sandbox. */
  async delete(options: RequestOptions = {}): Promise<void> {
    await this.#connection.call('deleteAgent', { ...options, ...this.#params, isUnbounded: true });
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.delete();
  }
}
