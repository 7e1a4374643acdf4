import http from 'node:http';
import https from 'node:https';
import { inspect } from 'node:util';
import type Docker from 'dockerode';
import type { Environment } from '../../core/environment.ts';
import { type ErrorCode, failedPrecondition, messageOf, ServiceError, unavailable } from '../../core/error.ts';
import { within } from '../../lib/deadline.ts';
import { type DockerEndpoint, findEndpoint } from './endpoint.ts';

const REQUEST_TIMEOUT_MS = 30_000;
const MOST_IDLE_CONNECTIONS = 16;
const LIBRARY_WORDS = /^\(HTTP code \d+\) .*? - /;

/** The connection to the daemon. Its errors are `ServiceError`s; the daemon's own refusals carry `statusOf`. */
export class Engine {
  readonly endpoint: DockerEndpoint;
  readonly docker: Docker;
  readonly #agent: http.Agent;

  /** `host`: the setting; without it the daemon is found as `environment` says. Fails with `failed_precondition` when it is wrong or the client library is missing. Nothing is asked yet. */
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
    // The library writes each request out for its debug log, which is off, with everything that hangs on the agent: milliseconds a request,
    // and many more with every open connection.
    Object.defineProperty(this.#agent, inspect.custom, { value: () => 'Agent' });
    this.docker = new Client(options);
  }

  /** One request; bounded. `what` completes "docker could not …" for the daemon's refusals. */
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

/** The status of a refusal by the daemon; null for everything else. */
export function statusOf(error: unknown): number | null {
  const raw = error instanceof ServiceError ? error.cause : error;
  const status = (raw as { statusCode?: unknown } | undefined)?.statusCode;
  return typeof status === 'number' ? status : null;
}

/** The daemon's own sentence. */
export function daemonMessage(error: unknown): string {
  const raw = error instanceof ServiceError && error.cause !== undefined ? error.cause : error;
  const json = (raw as { json?: { message?: unknown } | null }).json;
  // The library has not read the answer to a request for a stream, and puts its own words before it.
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
