import type { Connection, RequestOptions } from './connection.ts';
import type { ListProcessesResponse, StartProcessRequest } from './generated.ts';
import { Terminal } from './terminal.ts';

/** The pid inside the sandbox, or the tag of the start. */
export type ProcessName = number | string;

/** Processes of an agent that outlive their connections. Methods fail with `RookeryError`. */
export class Processes {
  readonly #connection: Connection;
  readonly #instanceId: string;

  /** @internal */
  constructor(connection: Connection, instanceId: string) {
    this.#connection = connection;
    this.#instanceId = instanceId;
  }

  /**
   * Starts a process and returns its pid. `/bin/sh -c` runs a string; a list is an argument vector. The
   * process continues until it ends, is killed, or the sandbox ends.
   */
  async start(
    command: StartProcessRequest['command'],
    options: RequestOptions & Omit<StartProcessRequest, 'command'> = {},
  ): Promise<number> {
    const { signal, timeoutMs, traceId, ...rest } = options;
    const params = { instanceId: this.#instanceId };
    const request = { signal, timeoutMs, traceId, params, body: { command, ...rest } };
    return (await this.#connection.call('startProcess', request)).pid;
  }

  /** Returns the running processes in order of their start. */
  async list(options: RequestOptions = {}): Promise<ListProcessesResponse['processes']> {
    const params = { instanceId: this.#instanceId };
    return (await this.#connection.call('listProcesses', { ...options, params })).processes;
  }

  /** Signals a process, by default with SIGTERM, but not its children. */
  async signal(process: ProcessName, signal = 'SIGTERM', options: RequestOptions = {}): Promise<void> {
    await this.#connection.call('signalProcess', { ...options, params: this.#paramsOf(process), body: { signal } });
  }

  /**
   * Listens to a process: its output from now on, and its exit code. Closing the connection leaves the
   * process running.
   */
  async attach(process: ProcessName, options: RequestOptions = {}): Promise<Terminal> {
    const socket = await this.#connection.webSocket('attachProcess', { ...options, params: this.#paramsOf(process) });
    // The first byte of each message names its stream, also with a terminal.
    return new Terminal(socket, false, options.signal);
  }

  #paramsOf(process: ProcessName) {
    return { instanceId: this.#instanceId, process: String(process) };
  }
}
