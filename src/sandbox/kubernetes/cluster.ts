import { EventEmitter, once } from 'node:events';
import { type ClientRequest, Agent as HttpAgent, request as httpRequest, type IncomingMessage } from 'node:http';
import { Agent, request as httpsRequest, type RequestOptions } from 'node:https';
import { KubeConfig } from '@kubernetes/client-node';
import type { Environment } from '../../core/environment.ts';
import {
  deadlineExceeded,
  failedPrecondition,
  messageOf,
  resourceExhausted,
  ServiceError,
  unavailable,
} from '../../core/error.ts';
import { pause } from '../../lib/backoff.ts';
import { onAbort, sharedController } from '../../lib/linked-signal.ts';

const REQUEST_TIMEOUT_MS = 10_000;
/** Time limit for the start of a streamed answer. */
const STREAM_TIMEOUT_MS = 10_000;
const MAX_ANSWER_BYTES = 512 * 1024 * 1024;
/** Limit on idle connections; each of them saves a handshake. */
const MAX_IDLE_CONNECTIONS = 64;
/** Limit on attempts: the API server asks for a pause when it is overloaded. */
const MAX_TRIES = 5;
const CONTENT_TYPES = {
  json: 'application/json-patch+json',
  merge: 'application/merge-patch+json',
  strategic: 'application/strategic-merge-patch+json',
} as const;

export interface ClusterOptions {
  /** Path of a file; null uses the service account of the service's own pod. */
  readonly kubeconfig: string | null;
  /** Null uses the namespace of the context or of the service account, else `default`. */
  readonly namespace: string | null;
  readonly environment: Environment;
}

export interface ApiRequest {
  readonly method?: 'GET' | 'POST' | 'PUT' | 'PATCH' | 'DELETE';
  /** Path such as `/api/v1/namespaces/…`. */
  readonly path: string;
  readonly query?: Readonly<Record<string, string | number | boolean>>;
  readonly body?: unknown;
  /** Kind of patch in `body`. */
  readonly patch?: keyof typeof CONTENT_TYPES;
  readonly timeoutMs?: number;
  readonly signal?: AbortSignal;
}

/** Refusal by the API server; the cause of a `ServiceError`. */
export class ApiRefusal extends Error {
  readonly status: number;
  /** Reason word of the API: `NotFound`, `AlreadyExists`, `Conflict`, `Expired`, `Forbidden`, … */
  readonly reason: string;

  constructor(status: number, reason: string, message: string) {
    super(message);
    this.status = status;
    this.reason = reason;
  }
}

/** Returns the HTTP status with which the API server refused a request; undefined when it did not answer. */
export function statusOf(error: unknown): number | undefined {
  const cause = error instanceof ServiceError ? error.cause : error;
  return cause instanceof ApiRefusal ? cause.status : undefined;
}

/**
 * Client for the API server of a cluster. The library reads the configuration and logs in. Requests use kept
 * connections, because the library's own requests need a handshake each. Every request has a time limit.
 * Errors are `ServiceError`s: with an `ApiRefusal` as the cause when the API server refused, `unavailable`
 * when it did not answer. Objects stay as the API writes them: times are texts.
 */
export class KubernetesApi {
  readonly namespace: string;
  /** Address of the API server, for messages. */
  readonly server: string;
  readonly #config: KubeConfig;
  #agent: { readonly key: string; readonly agent: Agent | HttpAgent } | undefined;
  /** Aborts all pending requests. */
  readonly #closing = sharedController();
  /** Emits the method and the status of each request that was sent (0: no answer). */
  readonly requests = new EventEmitter<{ sent: [method: string, status: number] }>();

  private constructor(config: KubeConfig, namespace: string, server: string) {
    this.#config = config;
    this.namespace = namespace;
    this.server = server;
  }

  /** Reads the configuration and sends no request. Fails with `failed_precondition`. */
  static open({ kubeconfig, namespace, environment }: ClusterOptions): KubernetesApi {
    const config = new KubeConfig();
    const place = load(config, kubeconfig, environment);
    const cluster = config.getCurrentCluster();
    if (cluster === null) {
      throw failedPrecondition(
        `${place} names no cluster: expected a current-context with a cluster, got "${config.getCurrentContext()}"`,
      );
    }
    const own = config.getContextObject(config.getCurrentContext())?.namespace;
    return new KubernetesApi(config, namespace ?? (own === undefined || own === '' ? 'default' : own), cluster.server);
  }

  /** Sends a request and returns the parsed answer. `what` completes "the API server … did not …". */
  async request<T>(what: string, asked: ApiRequest): Promise<T> {
    const timeoutMs = asked.timeoutMs ?? REQUEST_TIMEOUT_MS;
    const untilMs = performance.now() + timeoutMs;
    for (let tries = 1; ; tries++) {
      const leftMs = Math.max(1, untilMs - performance.now());
      const message = await this.#send(what, asked, leftMs);
      const text = await readAll(message, what, untilMs, this.server);
      const status = message.statusCode ?? 0;
      if (status >= 200 && status < 300) return parse(text, what) as T;
      const waitMs = Number(message.headers['retry-after'] ?? 1) * 1000;
      const mayTry = status === 429 && tries < MAX_TRIES && performance.now() + waitMs < untilMs;
      if (!mayTry) throw refusalOf(what, status, text);
      await pause(waitMs, asked.signal);
      asked.signal?.throwIfAborted();
    }
  }

  /**
   * Sends a request with a streamed answer, which the caller reads and destroys. An abort of `signal` ends
   * the request or destroys the answer.
   */
  async stream(what: string, asked: ApiRequest, signal: AbortSignal): Promise<IncomingMessage> {
    const message = await this.#send(what, { ...asked, signal }, STREAM_TIMEOUT_MS);
    const status = message.statusCode ?? 0;
    if (status < 200 || status >= 300) {
      throw refusalOf(what, status, await readAll(message, what, performance.now() + STREAM_TIMEOUT_MS, this.server));
    }
    const letGo = onAbort(signal, () => message.destroy());
    message.once('close', letGo);
    return message;
  }

  /** Closes all connections. */
  close(): void {
    this.#closing.abort();
    this.#agent?.agent.destroy();
  }

  async #send(what: string, asked: ApiRequest, timeoutMs: number): Promise<IncomingMessage> {
    const { method = 'GET', path, query = {}, body, patch, signal } = asked;
    const url = new URL(this.server.replace(/\/+$/, '') + path);
    for (const [name, value] of Object.entries(query)) url.searchParams.set(name, String(value));
    const bytes = body === undefined ? undefined : Buffer.from(JSON.stringify(body));
    const options = await this.#options();
    const headers: Record<string, string | number> = { ...(options.headers as object), Accept: 'application/json' };
    if (bytes !== undefined) {
      headers['Content-Type'] = patch === undefined ? 'application/json' : CONTENT_TYPES[patch];
      headers['Content-Length'] = bytes.length;
    }
    for (let tries = 1; ; tries++) {
      const request = (url.protocol === 'http:' ? httpRequest : httpsRequest)(url, { ...options, method, headers });
      try {
        const message = await this.#answer(request, bytes, timeoutMs, signal);
        this.requests.emit('sent', method, message.statusCode ?? 0);
        return message;
      } catch (error) {
        this.requests.emit('sent', method, 0);
        if (this.#closing.signal.aborted) throw unavailable('the kubernetes driver is closed');
        if (signal?.aborted) throw deadlineExceeded(`the caller cancelled the request to the API server to ${what}`);
        // The API server closed an idle connection at the moment of its reuse.
        const isStale = request.reusedSocket && (error as NodeJS.ErrnoException).code === 'ECONNRESET';
        if (isStale && tries < MAX_TRIES) continue;
        throw this.#away(what, error);
      }
    }
  }

  async #answer(
    request: ClientRequest,
    bytes: Buffer | undefined,
    timeoutMs: number,
    signal?: AbortSignal,
  ): Promise<IncomingMessage> {
    const late = new Error(`it did not answer within ${Math.ceil(timeoutMs / 1000)} s`);
    const timer = setTimeout(() => request.destroy(late), timeoutMs);
    const giveUp = () => request.destroy(new Error('given up'));
    const releases = [
      onAbort(this.#closing.signal, giveUp),
      ...(signal === undefined ? [] : [onAbort(signal, giveUp)]),
    ];
    try {
      request.on('error', () => undefined);
      request.end(bytes);
      const [message] = (await once(request, 'response')) as [IncomingMessage];
      message.on('error', () => undefined);
      return message;
    } finally {
      clearTimeout(timer);
      for (const release of releases) release();
    }
  }

  /** Logs in when needed: a token may have expired, and a plugin then provides another. */
  async #options(): Promise<RequestOptions> {
    const options: RequestOptions = {};
    try {
      await this.#config.applyToHTTPSOptions(options);
    } catch (error) {
      throw failedPrecondition(`the kubeconfig gives no way to log in to ${this.server}: ${messageOf(error)}`, {
        cause: error,
      });
    }
    if (this.#closing.signal.aborted) throw unavailable('the kubernetes driver is closed');
    const made = options.agent as Agent;
    // A proxy has an agent of its own.
    if (made.constructor !== Agent && made.constructor !== HttpAgent) return options;
    const { ca, cert, key, pfx, passphrase, rejectUnauthorized, servername } = options;
    const secrets = [ca, cert, key, pfx, passphrase, rejectUnauthorized, servername];
    const mark = secrets.map(secret => (secret === undefined ? '' : String(secret))).join('\0');
    if (this.#agent?.key !== mark) {
      // Requests in flight finish on the old agent.
      const known = { keepAlive: true, maxFreeSockets: MAX_IDLE_CONNECTIONS };
      const tls = Object.fromEntries(
        Object.entries({ ca, cert, key, pfx, passphrase, rejectUnauthorized, servername }).filter(
          ([, value]) => value !== undefined,
        ),
      );
      const agent = this.server.startsWith('http:') ? new HttpAgent(known) : new Agent({ ...known, ...tls });
      this.#agent = { key: mark, agent };
    }
    return { headers: options.headers ?? {}, agent: this.#agent.agent, ...(options.auth && { auth: options.auth }) };
  }

  #away(what: string, error: unknown): ServiceError {
    return unavailable(`the API server ${this.server} did not ${what}: ${reasonOf(error)}`, { cause: error });
  }
}

/**
 * Loads the configuration and returns its source, for messages. Uses only a configuration meant for this
 * service. A kubeconfig that `kubectl` finds may lead to any cluster.
 */
function load(config: KubeConfig, kubeconfig: string | null, environment: Environment): string {
  try {
    if (kubeconfig !== null) config.loadFromFile(kubeconfig);
    else if (environment.KUBERNETES_SERVICE_HOST !== undefined) config.loadFromCluster();
    else
      throw failedPrecondition(
        'no cluster is known: expected the setting kubernetes.kubeconfig, or the service account of a pod',
      );
    return kubeconfig ?? 'the service account of this pod';
  } catch (error) {
    if (error instanceof ServiceError) throw error;
    throw failedPrecondition(`the kubeconfig ${kubeconfig ?? ''} cannot be used: ${messageOf(error)}`, {
      cause: error,
    });
  }
}

/** Reads the body, with limits on size and time. */
async function readAll(message: IncomingMessage, what: string, untilMs: number, server: string): Promise<string> {
  const parts: Buffer[] = [];
  let bytes = 0;
  const timer = setTimeout(() => message.destroy(), Math.max(1, untilMs - performance.now()));
  try {
    for await (const part of message as AsyncIterable<Buffer>) {
      bytes += part.length;
      if (bytes > MAX_ANSWER_BYTES) throw new Error('its answer is too large');
      parts.push(part);
    }
  } catch (error) {
    throw unavailable(`the API server ${server} did not ${what}: ${reasonOf(error)}`, { cause: error });
  } finally {
    clearTimeout(timer);
  }
  return Buffer.concat(parts).toString();
}

function parse(text: string, what: string): unknown {
  if (text === '') return undefined;
  try {
    return JSON.parse(text);
  } catch (error) {
    throw unavailable(`the API server was to ${what}, and its answer is not JSON`, { cause: error });
  }
}

function refusalOf(what: string, status: number, text: string): ServiceError {
  let said: { message?: string; reason?: string } = {};
  try {
    said = JSON.parse(text) as typeof said;
  } catch {
    said = { message: text.slice(0, 300) };
  }
  const message = said.message ?? `status ${status}`;
  const cause = new ApiRefusal(status, said.reason ?? '', message);
  const sentence = `the API server refused to ${what}: ${message}`;
  if (status === 401)
    return failedPrecondition(`${sentence} (the credentials of the kubeconfig are not accepted)`, { cause });
  if (status === 429) return resourceExhausted(sentence, { cause });
  if (status >= 500) return unavailable(sentence, { cause });
  return failedPrecondition(sentence, { cause });
}

function reasonOf(error: unknown): string {
  const { code } = error as NodeJS.ErrnoException;
  if (code === 'ECONNREFUSED') return 'nothing listens there';
  return messageOf(error) || String(code ?? error);
}
