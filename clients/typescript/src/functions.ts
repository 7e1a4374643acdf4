import { inspect } from 'node:util';
import type { Code } from './code.ts';
import type { Connection, RequestOptions } from './connection.ts';
import { RookeryError } from './error.ts';
import { Conflict, failureOf, NotFound } from './failures.ts';
import { followLog } from './followed-log.ts';
import type { FunctionInstance, FunctionVersion, Operations, RegisterFunctionRequest } from './generated.ts';
import { untilThere } from './looks.ts';
import { mapped } from './mapped.ts';
import { hasFields, type RunOptions, runFields } from './runs.ts';
import { serverEvents } from './server-events.ts';

export interface RegisterOptions extends RunOptions, RequestOptions {
  /** Kind of the function; default: `faas`. Agents can be created from functions of kind `agent`. */
  readonly kind?: 'faas' | 'agent';
  readonly description?: string;
  /** Seconds after which the service stops a call. */
  readonly timeout?: number;
  readonly minInstances?: number;
  readonly maxInstances?: number;
  /** Maximum number of concurrent calls in one instance. */
  readonly concurrency?: number;
  /** JSON Schema of the event. With it and a description, the function is a tool of the MCP server. */
  readonly inputSchema?: Readonly<Record<string, unknown>>;
  /** Refuses events that do not fit `inputSchema` before the call. */
  readonly validateInput?: boolean;
}

export interface CallFunctionOptions extends RequestOptions {
  /** Session id: all calls of a session reach the same instance. */
  readonly session?: string;
  /** Label of a reservation: only instances reserved under this label run the call. */
  readonly label?: string;
}

export interface MapOptions extends Omit<CallFunctionOptions, 'session'> {
  /** Maximum number of calls at the same time; default: 10. Inputs are taken as they are needed. */
  readonly concurrency?: number;
  /**
   * Yields the `RookeryError` of a failed call instead of its result. Default: false: the first failure ends
   * the iteration, and the calls that run are cancelled.
   */
  readonly returnErrors?: boolean;
}

const LATEST = '$latest';
/** Maximum number of attempts of a deployment while other clients change the function. */
const DEPLOY_ATTEMPTS = 5;
const PAUSES = { firstMs: 50, longestMs: 2000 };

type Fields = Omit<RegisterFunctionRequest, 'name'>;

/** Registers, changes and finds functions. */
export class Functions {
  readonly #connection: Connection;
  readonly #code: Code;

  constructor(connection: Connection, code: Code) {
    this.#connection = connection;
    this.#code = code;
  }

  /**
   * Registers a function, uploads its code, and returns its version `$latest`.
   * The name is `hello`, `demo@hello` or `0@demo@hello`.
   */
  async register(name: string, options: RegisterOptions): Promise<FunctionHandle> {
    return await this.#register(name, await this.#fields(options), requestOf(options));
  }

  /**
   * Changes `$latest` of a function and returns it. Published versions stay unchanged. An omitted option that
   * has a default returns to the default: `runtime`, `handler`, `cpu`, `memory`, `image` and so on. Other
   * omitted options keep their stored values. Fails if another client changed the function at the same time.
   */
  async update(name: string, options: RegisterOptions): Promise<FunctionHandle> {
    const { record } = await this.get(name, requestOf(options));
    return await this.#change(record, await this.#fields(options), requestOf(options));
  }

  /**
   * Registers a function, or changes it if anything differs, and returns `$latest`. Omitted options count
   * as in `update`. Instances of an unchanged function continue. Any number of clients may call it at once.
   */
  async deploy(name: string, options: RegisterOptions): Promise<FunctionHandle> {
    const fields = await this.#fields(options);
    for (let left = DEPLOY_ATTEMPTS - 1; ; left--) {
      try {
        return await this.#deploy(name, fields, requestOf(options));
      } catch (error) {
        if (left === 0 || !(error instanceof Conflict)) throw error;
      }
    }
  }

  async #deploy(name: string, fields: Fields, request: RequestOptions): Promise<FunctionHandle> {
    const latest = await this.get(name, request).catch((error: unknown) => {
      if (error instanceof NotFound) return null;
      throw error;
    });
    if (latest === null) return await this.#register(name, fields, request);
    return hasFields(latest.record, fields) ? latest : await this.#change(latest.record, fields, request);
  }

  async #register(name: string, fields: Fields, request: RequestOptions): Promise<FunctionHandle> {
    const body: RegisterFunctionRequest = { name: wholeName(name), ...fields };
    const answer = await this.#connection.call('registerFunction', { ...request, body });
    return new FunctionHandle(this.#connection, answer.function);
  }

  async #change(record: FunctionVersion, fields: Fields, request: RequestOptions): Promise<FunctionHandle> {
    const body = { revisionId: record.revisionId, ...fields };
    const params = { name: record.name };
    const answer = await this.#connection.call('updateFunction', { ...request, params, body });
    return new FunctionHandle(this.#connection, answer.function);
  }

  /** Returns `$latest` of a function, or its published version `version`. Fails if there is none. */
  async get(name: string, options: RequestOptions & { readonly version?: string } = {}): Promise<FunctionHandle> {
    const { version = LATEST, ...request } = options;
    const asked = { ...request, params: { name: wholeName(name) }, query: { versionNumber: version } };
    const answer = await this.#connection.call('getFunction', asked);
    return new FunctionHandle(this.#connection, answer.function);
  }

  /** Yields all functions. Each page is requested when it is needed. */
  async *list(options: RequestOptions = {}): AsyncGenerator<FunctionHandle> {
    const pageSize = 100;
    for (let pageIndex = 1; ; pageIndex++) {
      const query = { pageIndex, pageSize } as Operations['listFunctions']['query'];
      const { result } = await this.#connection.call('listFunctions', { ...options, query });
      for (const record of result.functions) yield new FunctionHandle(this.#connection, record);
      if (result.functions.length < pageSize) return;
    }
  }

  /** Returns a handle of an asynchronous call that was started before. Sends nothing. */
  asyncCall(id: string): AsyncCall {
    return new AsyncCall(this.#connection, id);
  }

  async #fields(options: RegisterOptions): Promise<Fields> {
    const { code, sandbox, env } = options;
    const codePath =
      code === undefined || code.startsWith('code://') ? code : await this.#code.upload(code, requestOf(options));
    return {
      ...runFields(options),
      kind: options.kind ?? 'faas',
      ...(codePath === undefined ? {} : { storageType: 'package', codePath }),
      ...(sandbox === undefined ? {} : { sandboxType: sandbox }),
      ...(env === undefined ? {} : { environment: env }),
      ...(options.expose === undefined ? {} : { expose: options.expose }),
      ...(options.inputSchema === undefined ? {} : { inputSchema: options.inputSchema }),
      ...(options.validateInput === undefined ? {} : { validateInput: options.validateInput }),
      ...(options.description === undefined ? {} : { description: options.description }),
      ...(options.timeout === undefined ? {} : { timeout: options.timeout }),
      ...(options.minInstances === undefined ? {} : { minInstance: options.minInstances }),
      ...(options.maxInstances === undefined ? {} : { maxInstance: options.maxInstances }),
      ...(options.concurrency === undefined ? {} : { concurrentNum: options.concurrency }),
    };
  }
}

/** A version of a function. Methods fail with `RookeryError`. */
export class FunctionHandle {
  readonly record: FunctionVersion;
  readonly #connection: Connection;

  constructor(connection: Connection, record: FunctionVersion) {
    this.#connection = connection;
    this.record = record;
  }

  get urn(): string {
    return this.record.functionVersionUrn;
  }

  get name(): string {
    return this.record.name;
  }

  /** Shows the name and the version in logs, but nothing of the environment. */
  [inspect.custom](): string {
    return `${this.constructor.name} ${inspect({ name: this.name, version: this.record.versionNumber })}`;
  }

  get #params() {
    return { params: { urn: this.urn } };
  }

  /**
   * Calls the function and returns the result of its handler. Without `timeoutMs` only the service limits the
   * time. The client retries only if the service has certainly not started the call.
   */
  async invoke<T = unknown>(event: unknown = {}, options: CallFunctionOptions = {}): Promise<T> {
    const request = this.#callOf(event, options, {});
    const text = await this.#connection.text('invokeFunction', request);
    return (text === '' ? undefined : JSON.parse(text)) as T;
  }

  /**
   * Calls the function and yields each piece that its handler writes or yields; the return value is the last
   * piece. Fails if the handler fails or the stream breaks.
   */
  async *stream(event: unknown = {}, options: CallFunctionOptions = {}): AsyncGenerator<string> {
    const request = this.#callOf(event, options, { accept: 'text/event-stream' });
    for await (const { type, data } of serverEvents(await this.#connection.stream('invokeFunction', request))) {
      if (type === 'error') throw callFailure(data);
      if (data === '[DONE]') return;
      yield data;
    }
    throw new RookeryError('the stream ended before its end');
  }

  /** Starts an asynchronous call and returns its handle without waiting for the result. */
  async start(event: unknown = {}, options: CallFunctionOptions = {}): Promise<AsyncCall> {
    const request = this.#callOf(event, options, { 'x-invoke-type': 'async' });
    const text = await this.#connection.text('invokeFunction', request);
    return new AsyncCall(this.#connection, (JSON.parse(text) as { requestId: string }).requestId);
  }

  /** Another name of `start`. */
  async spawn(event: unknown = {}, options: CallFunctionOptions = {}): Promise<AsyncCall> {
    return await this.start(event, options);
  }

  /**
   * Calls the function for each input and yields the results in the order of the inputs. `timeoutMs` limits
   * each call.
   */
  map<T = unknown>(
    inputs: Iterable<unknown> | AsyncIterable<unknown>,
    { concurrency = 10, returnErrors = false, ...options }: MapOptions = {},
  ): AsyncGenerator<T> {
    return mapped(inputs, { concurrency, returnErrors, signal: options.signal }, (event, signal) =>
      this.invoke<T>(event, { ...options, signal }),
    );
  }

  /**
   * Publishes the latest revision as an immutable version. Without a name the service makes one from the
   * time. Fails if the function has changed since `record` was read.
   */
  async publish(
    version = '',
    options: RequestOptions & { readonly description?: string } = {},
  ): Promise<FunctionHandle> {
    const { description = '', ...request } = options;
    const body = { revisionId: this.record.revisionId, versionNumber: version, versionDesc: description };
    const params = { name: this.name };
    const answer = await this.#connection.call('publishFunction', { ...request, params, body });
    return new FunctionHandle(this.#connection, answer.function);
  }

  /** Returns the running instances of this version. */
  async instances(options: RequestOptions = {}): Promise<FunctionInstance[]> {
    const { instances } = await this.#connection.call('listFunctionInstances', { ...options, ...this.#params });
    return instances;
  }

  /** Returns the logs of all running instances. Each line begins with the start of its instance id. */
  async logs(options: RequestOptions = {}): Promise<string> {
    return await this.#connection.text('readFunctionLogs', { ...options, ...this.#params });
  }

  /**
   * Yields lines of all instances as the service receives them, until `signal` aborts. Instances that start
   * later are included.
   */
  async *follow(options: RequestOptions = {}): AsyncGenerator<string> {
    const request = { ...options, ...this.#params, query: { follow: true } };
    yield* followLog(this.#connection, { name: 'readFunctionLogs', options: request, isOfInstances: true });
  }

  /** Deletes this version. Deleting `$latest` deletes the function with all its versions. */
  async delete(options: RequestOptions = {}): Promise<void> {
    const query = { versionNumber: this.record.versionNumber };
    await this.#connection.call('deleteFunction', { ...options, params: { name: this.name }, query });
  }

  #callOf(event: unknown, options: CallFunctionOptions, headers: Readonly<Record<string, string>>) {
    const { session, label, ...request } = options;
    return {
      ...request,
      ...this.#params,
      body: event,
      headers: { ...headers, 'x-instance-session': session, 'x-instance-label': label },
      isUnbounded: true,
    };
  }
}

/** Handle of an asynchronous call, which continues without a connection. */
export class AsyncCall {
  readonly id: string;
  readonly #connection: Connection;

  constructor(connection: Connection, id: string) {
    this.#connection = connection;
    this.id = id;
  }

  /** Returns the current state of the call. */
  async status(options: RequestOptions = {}) {
    return await this.#connection.call('getAsyncResult', { ...options, params: { id: this.id } });
  }

  /**
   * Waits until the call ends and returns the result of its handler. Fails with `RookeryError` if the call
   * failed, or after `timeoutMs` milliseconds. Without `timeoutMs` the wait has no limit.
   */
  async result<T = unknown>(options: RequestOptions = {}): Promise<T> {
    return await untilThere(options, PAUSES, async request => {
      const { status, result, error } = await this.status(request);
      if (status === 'completed') return { value: result as T };
      if (status !== 'failed') return null;
      throw failureOf(error?.message ?? 'the call failed', { status: 200, code: error?.code ?? 0 });
    });
  }
}

function requestOf({ signal, timeoutMs, traceId }: RequestOptions): RequestOptions {
  return { signal, timeoutMs, traceId };
}

function callFailure(data: string): RookeryError {
  const { code, message, trace_id: traceId } = JSON.parse(data) as { code: number; message: string; trace_id?: string };
  return failureOf(message, { status: 200, code, traceId });
}

/** Completes a name to `0@SERVICE@FUNCTION`, by the rules of the command line. URNs stay unchanged. */
function wholeName(given: string): string {
  const parts = given.split(/[@/]/);
  if (given.startsWith('sn:') || parts.length > 2) return given;
  return parts.length === 1 ? `0@default@${given}` : `0@${parts.join('@')}`;
}
