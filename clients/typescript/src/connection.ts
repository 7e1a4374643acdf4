import { setMaxListeners } from 'node:events';
import { readFileSync } from 'node:fs';
import { Agent, type IncomingMessage, request as plainRequest, validateHeaderValue } from 'node:http';
import { Agent as SecureAgent, request as secureRequest } from 'node:https';
import { Readable } from 'node:stream';
import { setTimeout as delay } from 'node:timers/promises';
import { WebSocket } from 'ws';
import { RookeryError, usageError } from './error.ts';
import { failureOf, Timeout, Unavailable } from './failures.ts';
import { fileProblem } from './file-problem.ts';
import { type Operations, PATHS } from './generated.ts';
import { retryAfterMs, secondsUntil } from './retry.ts';

export interface RookeryOptions {
  /** URL of the frontend. Default: `$ROOKERY_ADDRESS`, otherwise `http://127.0.0.1:8888`. */
  readonly url?: string;
  /** Bearer token. Default: `$ROOKERY_TOKEN`, otherwise the content of the file `$ROOKERY_TOKEN_FILE`. */
  readonly token?: string;
  /** Tenant, which counts only if the service has authentication off. Default: `$ROOKERY_TENANT`. */
  readonly tenant?: string;
  /** Milliseconds for requests whose duration the service does not limit itself. Default: 5 minutes. */
  readonly timeoutMs?: number;
  /** Maximum number of retries per request. Default: 4. */
  readonly retries?: number;
}

/** Options that every method accepts. */
export interface RequestOptions {
  /** Signal that cancels the request. The method then fails with the signal's reason or an `AbortError`. */
  readonly signal?: AbortSignal | undefined;
  /**
   * Milliseconds for the request and all its retries. A stream must begin within this time; it may end later.
   */
  readonly timeoutMs?: number | undefined;
  /** Trace id that the service logs and returns (`X-Trace-Id`). Absent: the service makes one. */
  readonly traceId?: string | undefined;
}

export type OperationName = keyof Operations;
/** Failure answer of the registry, which has a code in its body. `call` throws a `RookeryError` for it. */
type Refused = { code: number; message: string; warnings?: string[] };
type Succeeded<T> = T extends unknown ? (Refused extends T ? (unknown extends T ? T : never) : T) : never;
export type AnswerOf<N extends OperationName> = Succeeded<Operations[N]['answer']>;

export interface CallOptions<N extends OperationName> extends RequestOptions {
  readonly params?: Operations[N]['params'] | undefined;
  readonly query?: Operations[N]['query'] | undefined;
  readonly body?: Operations[N]['body'] | undefined;
  /** Raw body, which is sent unchanged instead of `body`. */
  readonly content?: Content | undefined;
  readonly headers?: Readonly<Record<string, string | undefined>> | undefined;
  /**
   * True if sending the request twice has the same effect as once. Default: true for GET, PUT and DELETE,
   * except `updateFunction`.
   */
  readonly mayRepeat?: boolean;
  /**
   * True if the service limits the duration itself, as for calls and creates. Then no default timeout
   * applies.
   */
  readonly isUnbounded?: boolean;
}

export interface Content {
  readonly type: string;
  readonly data: Uint8Array | (() => Readable);
  readonly bytes?: number;
}

const DEFAULT_URL = 'http://127.0.0.1:8888';
const DEFAULT_TIMEOUT_MS = 5 * 60_000;
const DEFAULT_RETRIES = 4;
const PROBE_MS = 30_000;
const TOO_LONG = 'the request took longer than its timeout';
/** Longest delay of a Node.js timer. A timer with a longer delay fires immediately. */
const LONGEST_TIMER_MS = 2 ** 31 - 1;
/**
 * PUT operations that must not be repeated. An update names the revision that it changes, so the service
 * refuses a second one after the first has succeeded.
 */
const NOT_TWICE: ReadonlySet<OperationName> = new Set(['updateFunction']);
const REPEATABLE = new Set(['GET', 'PUT', 'DELETE']);
const META = '/api/meta/';
/** Code of the registry for `function [...] is not found`. */
const NO_FUNCTION = 4115;

/** Sends operations to the service, retries them if that is safe, and reads their answers. */
export class Connection {
  readonly url: URL;
  readonly #headers: Readonly<Record<string, string>>;
  readonly #timeoutMs: number;
  readonly #retries: number;
  readonly #agent: Agent;

  constructor(options: RookeryOptions, environment: NodeJS.ProcessEnv) {
    checkOptions(options);
    this.url = parseUrl(options.url || environment.ROOKERY_ADDRESS || DEFAULT_URL);
    const token = options.token || environment.ROOKERY_TOKEN || readToken(environment.ROOKERY_TOKEN_FILE);
    const tenant = options.tenant || environment.ROOKERY_TENANT;
    this.#headers = {
      ...(token ? { authorization: `Bearer ${token}` } : {}),
      ...(tenant ? { 'x-tenant-id': tenant } : {}),
    };
    this.#timeoutMs = options.timeoutMs ?? DEFAULT_TIMEOUT_MS;
    this.#retries = options.retries ?? DEFAULT_RETRIES;
    this.#agent = new (this.url.protocol === 'https:' ? SecureAgent : Agent)({ keepAlive: true });
  }

  /** Closes all open connections. */
  close(): void {
    this.#agent.destroy();
  }

  /** Returns the JSON of the answer. Fails with `RookeryError` if the service reports a failure. */
  async call<N extends OperationName>(name: N, options: CallOptions<N> = {}): Promise<AnswerOf<N>> {
    const value = await this.#send(name, options, async answer => {
      const text = (await readAll(answer)).toString('utf8');
      const read = text === '' ? {} : parseObject(text);
      if (read === undefined) {
        const why = `the service answered what is not JSON: ${text.slice(0, 200)}`;
        throw new RookeryError(why, { status: answer.statusCode ?? 0 });
      }
      const isRefusal = PATHS[name][1].startsWith(META) && read.code !== 0;
      if (isRefusal) throw failure(answer, text);
      return read;
    });
    return value as AnswerOf<N>;
  }

  async text<N extends OperationName>(name: N, options: CallOptions<N> = {}): Promise<string> {
    return (await this.bytes(name, options)).toString('utf8');
  }

  async bytes<N extends OperationName>(name: N, options: CallOptions<N> = {}): Promise<Buffer> {
    return await this.#send(name, options, readAll);
  }

  /** Returns the chunks of the answer once it has begun. A broken connection fails with `RookeryError`. */
  async stream<N extends OperationName>(name: N, options: CallOptions<N> = {}): Promise<AsyncGenerator<Buffer>> {
    return chunksOf(await this.#send(name, options, async answer => answer), options.signal);
  }

  /** Maximum number of retries per request. @internal */
  get retries(): number {
    return this.#retries;
  }

  /** Returns the chunks of the answer and its content type (`''`: none) once it has begun. @internal */
  async typedStream<N extends OperationName>(
    name: N,
    options: CallOptions<N> = {},
  ): Promise<{ readonly type: string; readonly chunks: AsyncGenerator<Buffer> }> {
    const answer = await this.#send(name, options, async answer => answer);
    return { type: answer.headers['content-type'] ?? '', chunks: chunksOf(answer, options.signal) };
  }

  /** Returns the answer as a Node.js stream, which can be piped, once the answer has begun. */
  async readable<N extends OperationName>(name: N, options: CallOptions<N> = {}): Promise<Readable> {
    const answer = await this.#send(name, options, async answer => answer);
    const stream = Readable.from(chunksOf(answer, options.signal), { objectMode: false });
    const end = stream._destroy.bind(stream);
    // A generator that waits for a chunk ends after that chunk, which may never come, or with the answer.
    stream._destroy = (error, done) => {
      answer.destroy();
      end(error, done);
    };
    return stream;
  }

  /** Opens a WebSocket and returns it paused. Not retried. @internal */
  async webSocket<N extends OperationName>(name: N, options: CallOptions<N> = {}): Promise<WebSocket> {
    options.signal?.throwIfAborted();
    const url = this.#urlOf(name, options);
    url.protocol = url.protocol === 'https:' ? 'wss:' : 'ws:';
    const socket = new WebSocket(url, { headers: this.#headersOf(options), perMessageDeflate: false });
    const { signal, timeoutMs = this.#timeoutMs } = options;
    return await new Promise((resolve, reject) => {
      let isOpen = false;
      const fail = (error?: unknown) => {
        clearTimeout(timer);
        reject(signal?.aborted ? signal.reason : error);
        socket.terminate();
      };
      // With `handshakeTimeout` the library would report a lost connection, not a timeout.
      const timer = setTimeout(() => fail(new Timeout(TOO_LONG)), Math.min(LONGEST_TIMER_MS, timeoutMs));
      const abort = () => fail();
      signal?.addEventListener('abort', abort, { once: true });
      socket.once('close', () => signal?.removeEventListener('abort', abort));
      socket.once('open', () => {
        isOpen = true;
        clearTimeout(timer);
        // Messages that arrive with the handshake would be lost, because no listener is registered yet.
        socket.pause();
        resolve(socket);
      });
      socket.once('unexpected-response', (_, answer) => {
        readAll(answer).then(body => fail(failure(answer, body.toString('utf8'))), fail);
      });
      socket.on('error', error => {
        if (!isOpen) fail(this.#unreachable(error));
      });
    });
  }

  #urlOf<N extends OperationName>(name: N, { params, query }: CallOptions<N>): URL {
    const path = PATHS[name][1].replace(/\{(\w+)\}/g, (_, key: string) =>
      encodeURIComponent(String((params as Record<string, string> | undefined)?.[key])),
    );
    const url = new URL(this.url.pathname.replace(/\/$/, '') + path, this.url);
    for (const [key, value] of Object.entries(query ?? {})) {
      for (const one of Array.isArray(value) ? value : [value]) {
        if (one !== undefined) url.searchParams.append(key, String(one));
      }
    }
    return url;
  }

  #headersOf({ headers, traceId }: CallOptions<OperationName>): Record<string, string> {
    const all = { ...this.#headers, 'x-trace-id': traceId, ...headers };
    const sent = Object.entries(all).filter((one): one is [string, string] => one[1] !== undefined);
    for (const [header, value] of sent) checkHeader(header, value);
    return Object.fromEntries(sent);
  }

  async #send<N extends OperationName, T>(
    name: N,
    options: CallOptions<N>,
    read: (answer: IncomingMessage) => Promise<T>,
  ): Promise<T> {
    const method = PATHS[name][0];
    // One signal may serve any number of calls; Node.js would warn of a leak above 10 listeners.
    if (options.signal !== undefined) setMaxListeners(0, options.signal);
    const { mayRepeat = REPEATABLE.has(method) && !NOT_TWICE.has(name), signal, isUnbounded = false } = options;
    const timeoutMs = options.timeoutMs ?? (isUnbounded ? null : this.#timeoutMs);
    const endsAtMs = timeoutMs === null ? Number.POSITIVE_INFINITY : performance.now() + timeoutMs;
    for (let tried = 1; ; tried++) {
      try {
        return await this.#once(name, options, endsAtMs - performance.now(), read);
      } catch (error) {
        if (tried > 1 && method === 'DELETE' && isGone(error)) return {} as T;
        const waitMs = tried > this.#retries ? null : retryAfterMs(error, tried, mayRepeat);
        if (waitMs === null || performance.now() + waitMs >= endsAtMs) throw error;
        await delay(waitMs, undefined, signal === undefined ? {} : { signal }).catch(() => signal?.throwIfAborted());
      }
    }
  }

  #once<N extends OperationName, T>(
    name: N,
    options: CallOptions<N>,
    timeoutMs: number,
    read: (answer: IncomingMessage) => Promise<T>,
  ): Promise<T> {
    const { body, signal } = options;
    const content: Content | undefined =
      options.content ??
      (body === undefined ? undefined : { type: 'application/json', data: Buffer.from(JSON.stringify(body)) });
    const length = content?.bytes ?? (content?.data instanceof Uint8Array ? content.data.byteLength : undefined);
    const url = this.#urlOf(name, options);
    return new Promise<T>((resolve, reject) => {
      const request = (url.protocol === 'https:' ? secureRequest : plainRequest)(url, {
        method: PATHS[name][0],
        agent: this.#agent,
        headers: {
          ...this.#headersOf(options),
          ...(content === undefined ? {} : { 'content-type': content.type }),
          ...(length === undefined ? {} : { 'content-length': length }),
        },
        ...(signal === undefined ? {} : { signal }),
      });
      let late: RookeryError | undefined;
      const fail = (cause: unknown) => {
        clearTimeout(timer);
        const error = late ?? cause;
        if (signal?.aborted) reject(signal.reason);
        else reject(error instanceof RookeryError ? error : this.#unreachable(error as Error));
      };
      const timer = Number.isFinite(timeoutMs)
        ? setTimeout(
            () => {
              // Without `cause`, so that the request is not retried.
              late = new Timeout(TOO_LONG);
              request.destroy(late);
              // Deno does not report the end of a request that waits for its answer.
              fail(late);
            },
            Math.min(LONGEST_TIMER_MS, Math.max(0, timeoutMs)),
          )
        : undefined;
      request.on('socket', socket => socket.setKeepAlive(true, PROBE_MS));
      request.on('error', fail);
      request.on('response', answer => {
        const { statusCode = 0 } = answer;
        const done =
          statusCode >= 200 && statusCode < 300
            ? read(answer)
            : readAll(answer).then(text => Promise.reject(failure(answer, text.toString('utf8'))));
        done.then(value => {
          clearTimeout(timer);
          resolve(value);
        }, fail);
      });
      const data = content?.data;
      if (typeof data === 'function') {
        data()
          .on('error', error => request.destroy(error))
          .pipe(request);
      } else request.end(data);
    });
  }

  #unreachable(cause: Error): RookeryError {
    const why = (cause as NodeJS.ErrnoException).code === 'ECONNREFUSED' ? 'nothing listens there' : cause.message;
    return new Unavailable(`${this.url.origin} cannot be reached: ${why}`, { cause });
  }
}

async function* chunksOf(answer: IncomingMessage, signal: AbortSignal | undefined): AsyncGenerator<Buffer> {
  try {
    yield* answer as AsyncIterable<Buffer>;
  } catch (cause) {
    signal?.throwIfAborted();
    throw new Unavailable(`the connection broke: ${(cause as Error).message}`, { cause });
  }
}

/** Checks that a header can be sent. The error leaves out the value, which may be a token. */
function checkHeader(name: string, value: string): void {
  try {
    validateHeaderValue(name, value);
  } catch {
    throw usageError(`what is to be sent as ${name} has characters that no header has`);
  }
}

function isGone(error: unknown): boolean {
  return error instanceof RookeryError && (error.status === 404 || error.code === NO_FUNCTION);
}

function failure({ statusCode = 0, headers }: IncomingMessage, text: string): RookeryError {
  const parsed = parseObject(text);
  const body = Array.isArray(parsed) ? undefined : parsed;
  const header = (name: string) => (typeof headers[name] === 'string' ? headers[name] : undefined);
  const inner = Number(header('x-inner-code') ?? 0);
  return failureOf(
    typeof body?.message === 'string' && body.message !== ''
      ? body.message
      : `the service answered ${statusCode}: ${text.slice(0, 200)}`,
    {
      status: statusCode,
      code: typeof body?.code === 'number' ? body.code : statusCode,
      innerCode: Number.isInteger(inner) && inner > 0 ? inner : undefined,
      traceId: header('x-trace-id'),
      advice: header('x-advice'),
      retryAfterSeconds: secondsUntil(header('retry-after')),
      body,
    },
  );
}

async function readAll(answer: IncomingMessage): Promise<Buffer> {
  const chunks: Buffer[] = [];
  for await (const chunk of answer as AsyncIterable<Buffer>) chunks.push(chunk);
  return Buffer.concat(chunks);
}

function parseObject(text: string): Record<string, unknown> | undefined {
  try {
    const value: unknown = JSON.parse(text);
    return typeof value === 'object' && value !== null ? (value as Record<string, unknown>) : undefined;
  } catch {
    return undefined;
  }
}

const OPTION_NAMES: Readonly<Record<keyof RookeryOptions, true>> = {
  url: true,
  token: true,
  tenant: true,
  timeoutMs: true,
  retries: true,
};

/** Refuses what a program without types may pass. Ignored, it would mean the service of this machine. */
function checkOptions(options: RookeryOptions): void {
  if (typeof options !== 'object' || options === null)
    throw usageError(
      `the options of Rookery must be an object, such as { url: '${DEFAULT_URL}' }, not ${options === null ? 'null' : `a ${typeof options}`}`,
    );
  const unknown = Object.keys(options).find(name => !Object.hasOwn(OPTION_NAMES, name));
  if (unknown !== undefined)
    throw usageError(`Rookery has no option "${unknown}", only ${Object.keys(OPTION_NAMES).join(', ')}`);
}

function parseUrl(given: string): URL {
  const text = /^[a-z]+:\/\//i.test(given) ? given : `http://${given}`;
  const url = URL.canParse(text) ? new URL(text) : null;
  if (url !== null && (url.protocol === 'http:' || url.protocol === 'https:')) return url;
  throw usageError(`url must be that of a service, such as ${DEFAULT_URL}, not ${JSON.stringify(given)}`);
}

function readToken(file: string | undefined): string | undefined {
  if (!file) return undefined;
  try {
    return readFileSync(file, 'utf8').trim();
  } catch (error) {
    throw usageError(`the token file ${file} cannot be read: ${fileProblem(error)}`);
  }
}
