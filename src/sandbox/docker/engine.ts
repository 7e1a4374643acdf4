import http from 'node:http';
import https from 'node:https';
import { inspect } from 'node:util';
import type Docker from 'dockerode';
import type { Environment } from '../../core/environment.ts';
import { type ErrorCode, failedPrecondition, messageOf, ServiceError, unavailable } from '../../core/error.ts';
import { within } from '../../lib/deadline.ts';
import { FrameJoiner } from '../../lib/length-frames.ts';
import { type DockerEndpoint, findEndpoint } from './endpoint.ts';

const REQUEST_TIMEOUT_MS = 30_000;
const MOST_IDLE_CONNECTIONS = 16;
const LIBRARY_WORDS = /^\(HTTP code \d+\) .*? - /;

/**
 * Connection to the daemon. All errors are `ServiceError`s; `statusOf` returns the status of a refusal by the
 * daemon.
 */
export class Engine {
  readonly endpoint: DockerEndpoint;
  readonly docker: Docker;
  readonly #agent: http.Agent;

  /**
   * Prepares the connection without a request. `host` is the setting; without it `environment` selects the
   * daemon. Fails with `failed_precondition` when the host is wrong or the client library is missing.
   */
  static async open(host: string | null, environment: Environment): Promise<Engine> {
    const [endpoint, Client] = await Promise.all([findEndpoint(host, environment), loadClient()]);
    return new Engine(endpoint, Client);
  }

  private constructor(endpoint: DockerEndpoint, Client: typeof Docker) {
    this.endpoint = endpoint;
    const { connection } = endpoint;
    const keep = { keepAlive: true, maxFreeSockets: MOST_IDLE_CONNECTIONS };
    if ('protocol' in connection && connection.protocol === 'https') {
      const { ca, cert, key } = connection;
      this.#agent = new https.Agent({ ...keep, ca, cert, key });
    } else {
      this.#agent = new http.Agent(keep);
    }
    const options = { ...connection, agent: this.#agent };
    // The library formats each request for its debug log, even when the log is off. The text would contain
    // all data that the agent references: milliseconds per request, and more for each open connection.
    Object.defineProperty(this.#agent, inspect.custom, { value: () => 'Agent' });
    this.docker = new Client(options);
  }

  /**
   * Sends one request, with a time limit. `what` completes "docker could not …" for refusals by the daemon.
   */
  async request<T>(what: string, send: (docker: Docker) => Promise<T>, timeoutMs = REQUEST_TIMEOUT_MS): Promise<T> {
    try {
      const late = `docker did not answer within ${timeoutMs / 1000} s when it was asked to ${what}`;
      return await within(send(this.docker), timeoutMs, late);
    } catch (error) {
      throw this.#explain(what, error);
    }
  }

  close(): void {
    this.#agent.destroy();
  }

  #explain(what: string, error: unknown): ServiceError {
    if (error instanceof ServiceError) {
      return error.code === 'deadline_exceeded' ? unavailable(error.message, { cause: error }) : error;
    }
    const status = statusOf(error);
    if (status === null) return unavailable(this.#whyAway(error), { cause: error });
    const message = `docker could not ${what}: ${daemonMessage(error)}`;
    const code: ErrorCode = status === 404 ? 'not_found' : 'failed_precondition';
    return new ServiceError(code, message, { cause: error });
  }

  #whyAway(error: unknown): string {
    const { host } = this.endpoint;
    switch ((error as NodeJS.ErrnoException).code) {
      case 'ENOENT':
        return `there is no socket at ${host}; start the daemon, or name another one with docker.host or DOCKER_HOST`;
      case 'ECONNREFUSED':
        return `no daemon listens at ${host}; start it, or name another one with docker.host or DOCKER_HOST`;
      case 'EACCES':
      case 'EPERM':
        return `the server's user may not open ${host}; it needs to be in the group of the socket (usually "docker")`;
      default:
        return `the daemon at ${host} does not answer: ${messageOf(error)}`;
    }
  }
}

/** Returns the HTTP status of a refusal by the daemon, or null for any other error. */
export function statusOf(error: unknown): number | null {
  const raw = error instanceof ServiceError ? error.cause : error;
  const status = (raw as { statusCode?: unknown } | undefined)?.statusCode;
  return typeof status === 'number' ? status : null;
}

/** Returns the daemon's own message. */
export function daemonMessage(error: unknown): string {
  const raw = error instanceof ServiceError && error.cause !== undefined ? error.cause : error;
  const json = (raw as { json?: { message?: unknown } | null }).json;
  // For stream requests the library does not parse the answer and puts its own text before it.
  return typeof json?.message === 'string' ? json.message.trim() : messageOf(raw).replace(LIBRARY_WORDS, '').trim();
}

async function loadClient(): Promise<typeof Docker> {
  try {
    return (await import('dockerode')).default;
  } catch (error) {
    const why = 'its client library is not installed: run `npm install dockerode` where Rookery is installed';
    throw failedPrecondition(why, { cause: error });
  }
}

/** Labels on all containers and networks of Rookery. Several servers may share one daemon. */
export const LABEL_INSTALLATION = 'rookery.installation';
export const LABEL_TENANT = 'rookery.tenant';
export const LABEL_INSTANCE = 'rookery.instance';
/** Label on containers with accounts. */
export const LABEL_ACCOUNTS = 'rookery.accounts';

/** Frame head: the stream, three empty bytes, and the length of the body. */
const HEAD_BYTES = 8;
const STDERR = 2;
/** Frames have no size limit: the daemon is trusted, and sends the bytes of each read as one frame. */
const ANY_BYTES = 0xffff_ffff;

/** Write of a container to stdout or stderr, as the Engine API's raw streams carry it. */
export interface StreamFrame {
  readonly isStderr: boolean;
  readonly data: Buffer;
}

/** Splits a raw stream of the Engine API into frames, chunk by chunk. */
export class FrameSplitter {
  readonly #joiner = new FrameJoiner(ANY_BYTES, HEAD_BYTES);

  push(chunk: Buffer): readonly StreamFrame[] {
    this.#joiner.push(chunk);
    const frames: StreamFrame[] = [];
    for (let frame = this.#joiner.shift(); frame !== null; frame = this.#joiner.shift()) {
      frames.push({ isStderr: frame.head[0] === STDERR, data: frame.body });
    }
    return frames;
  }
}
