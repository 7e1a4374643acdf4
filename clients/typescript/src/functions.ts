import type { Code } from './code.ts';
import type { Connection, RequestOptions } from './connection.ts';
import { RookeryError } from './error.ts';
import type { FunctionInstance, FunctionVersion, Operations, RegisterFunctionRequest } from './generated.ts';
import { readLines } from './lines.ts';
import { untilThere } from './looks.ts';
import { type RunOptions, runFields } from './runs.ts';
import { serverEvents } from './server-events.ts';

export interface RegisterOptions extends RunOptions, RequestOptions {
  /** `faas` unless it is said; agents are made from one of kind `agent`. */
  readonly kind?: 'faas' | 'agent';
  readonly description?: string;
  /** Seconds that one call may take. */
  readonly timeout?: number;
  readonly minInstances?: number;
  readonly maxInstances?: number;
  /** Calls at once in one instance. */
  readonly concurrency?: number;
}

export interface CallFunctionOptions extends RequestOptions {
  /** All calls of a session reach the same instance. */
  readonly session?: string;
  /** Only instances that are reserved for it. */
  readonly label?: string;
}

const LATEST = '$latest';
const PAUSES = { firstMs: 50, longestMs: 2000 };

export class Functions {
  readonly #connection: Connection;
  readonly #code: Code;

  constructor(connection: Connection, code: Code) {
    this.#connection = connection;
    this.#code = code;
  }

  /** Registers a function: `hello`, `demo@hello` or `0@demo@hello`. Its code is uploaded. */
  async register(name: string, options: RegisterOptions): Promise<FunctionHandle> {
    const body: RegisterFunctionRequest = { name: wholeName(name), ...(await this.#fields(options)) };
    const answer = await this.#connection.call('registerFunction', { ...requestOf(options), body });
    return new FunctionHandle(this.#connection, answer.function);
  }

  /** Changes `$latest`: every option is said again. Published versions stay. */
  async update(name: string, options: RegisterOptions): Promise<FunctionHandle> {
    const { record } = await this.get(name, requestOf(options));
    const body = { revisionId: record.revisionId, ...(await this.#fields(options)) };
    const params = { name: wholeName(name) };
    const answer = await this.#connection.call('updateFunction', { ...requestOf(options), params, body });
    return new FunctionHandle(this.#connection, answer.function);
  }

  /** The latest one, or a published version. */
  async get(name: string, options: RequestOptions & { readonly version?: string } = {}): Promise<FunctionHandle> {
    const { version = LATEST, ...request } = options;
    const asked = { ...request, params: { name: wholeName(name) }, query: { versionNumber: version } };
    const answer = await this.#connection.call('getFunction', asked);
    return new FunctionHandle(this.#connection, answer.function);
  }

  async *list(options: RequestOptions = {}): AsyncGenerator<FunctionHandle> {
    const pageSize = 100;
    for (let pageIndex = 1; ; pageIndex++) {
      const query = { pageIndex, pageSize } as Operations['listFunctions']['query'];
      const { result } = await this.#connection.call('listFunctions', { ...options, query });
      for (const record of result.functions) yield new FunctionHandle(this.#connection, record);
      if (result.functions.length < pageSize) return;
    }
  }

  /** What became of an asynchronous call. */
  asyncCall(id: string): AsyncCall {
    return new AsyncCall(this.#connection, id);
  }

  async #fields(options: RegisterOptions): Promise<Omit<RegisterFunctionRequest, 'name'>> {
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
      ...(options.description === undefined ? {} : { description: options.description }),
      ...(options.timeout === undefined ? {} : { timeout: options.timeout }),
      ...(options.minInstances === undefined ? {} : { minInstance: options.minInstances }),
      ...(options.maxInstances === undefined ? {} : { maxInstance: options.maxInstances }),
      ...(options.concurrency === undefined ? {} : { concurrentNum: options.concurrency }),
    };
  }
}

/** One version of a function. */
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

  get #params() {
    return { params: { urn: this.urn } };
  }

  /** Calls it and answers what the handler returns. It is sent again only when it has certainly not begun. */
  async invoke<T = unknown>(event: unknown = {}, options: CallFunctionOptions = {}): Promise<T> {
    const request = this.#callOf(event, options, {});
    const text = await this.#connection.text('invokeFunction', request);
    return (text === '' ? undefined : JSON.parse(text)) as T;
  }

  /** What the handler writes or yields, piece by piece; its return value is the last. */
  async *stream(event: unknown = {}, options: CallFunctionOptions = {}): AsyncGenerator<string> {
    const request = this.#callOf(event, options, { accept: 'text/event-stream' });
    for await (const { type, data } of serverEvents(await this.#connection.stream('invokeFunction', request))) {
      if (type === 'error') throw callFailure(data);
      if (data === '[DONE]') return;
      yield data;
    }
    throw new RookeryError('the stream ended before its end');
  }

  /** Calls it without waiting for its end. */
  async start(event: unknown = {}, options: CallFunctionOptions = {}): Promise<AsyncCall> {
    const request = this.#callOf(event, options, { 'x-invoke-type': 'async' });
    const text = await this.#connection.text('invokeFunction', request);
    return new AsyncCall(this.#connection, (JSON.parse(text) as { requestId: string }).requestId);
  }

  /** Makes a version of the latest revision that never changes; without a name it gets a number. */
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

  async instances(options: RequestOptions = {}): Promise<FunctionInstance[]> {
    const { instances } = await this.#connection.call('listFunctionInstances', { ...options, ...this.#params });
    return instances;
  }

  async logs(options: RequestOptions = {}): Promise<string> {
    return await this.#connection.text('readFunctionLogs', { ...options, ...this.#params });
  }

  /** The lines of its log as they come, until `signal` aborts. */
  async *follow(options: RequestOptions = {}): AsyncGenerator<string> {
    const request = { ...options, ...this.#params, query: { follow: true } };
    yield* readLines(await this.#connection.stream('readFunctionLogs', request));
  }

  /** Deletes this version; with `$latest` goes the whole function. */
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

/** A call that goes on by itself. */
export class AsyncCall {
  readonly id: string;
  readonly #connection: Connection;

  constructor(connection: Connection, id: string) {
    this.#connection = connection;
    this.id = id;
  }

  async status(options: RequestOptions = {}) {
    return await this.#connection.call('getAsyncResult', { ...options, params: { id: this.id } });
  }

  /** Waits for its end, without `timeoutMs` however long it takes, and answers what the handler returned. */
  async result<T = unknown>(options: RequestOptions = {}): Promise<T> {
    return await untilThere(options, PAUSES, async request => {
      const { status, result, error } = await this.status(request);
      if (status === 'completed') return { value: result as T };
      if (status !== 'failed') return null;
      throw new RookeryError(error?.message ?? 'the call failed', { status: 200, code: error?.code ?? 0 });
    });
  }
}

function requestOf({ signal, timeoutMs, traceId }: RequestOptions): RequestOptions {
  return { signal, timeoutMs, traceId };
}

function callFailure(data: string): RookeryError {
  const { code, message, trace_id: traceId } = JSON.parse(data) as { code: number; message: string; trace_id?: string };
  return new RookeryError(message, { status: 200, code, traceId });
}

/** As the command line reads them. */
function wholeName(given: string): string {
  const parts = given.split(/[@/]/);
  if (given.startsWith('sn:') || parts.length > 2) return given;
  return parts.length === 1 ? `0@default@${given}` : `0@${parts.join('@')}`;
}
