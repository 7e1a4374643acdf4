import type { IncomingHttpHeaders, IncomingMessage, ServerResponse } from 'node:http';
import type { FastifyContextConfig, FastifyInstance } from 'fastify';
import { ServiceError } from '../../core/error.ts';
import type { EntryMetrics } from '../../telemetry/metrics.ts';
import { isRefusal, type Role, type Verdict } from '../access/credentials.ts';
import type { Gate } from '../access/gate.ts';
import type { HostTurns } from '../access/host-turns.ts';
import type { createAccessLog } from '../access-log.ts';
import { errorHeaders, refusal } from '../answer.ts';
import { FORWARD_WAIT_MS, type Forwarding } from '../forwarding.ts';
import { type Bodies, BodyError } from '../limits/bodies.ts';
import type { Connections } from '../limits/connections.ts';
import { RetryThrottle } from '../limits/retry-throttle.ts';
import { traceIdOf } from '../request.ts';
import type { Route } from '../route-config.ts';
import { Exchange, type ExchangeHost, type PassOn } from './exchange.ts';
import type { PlainHost } from './plain-connections.ts';
import { PlainAnswer, type PlainHead, PlainRequest } from './plain-messages.ts';

/**
 * Checks whether a request would be refused now, whatever its body contains.
 * Returns a function that sends the refusal with `Retry-After`, or undefined if the request is acceptable.
 * Nothing has happened until that function is called.
 */
export type EarlyRefusal = (exchange: Exchange, parameter: string) => (() => void) | undefined;

/** A hot route: POST, with one parameter in its path. */
export interface FastPathRoute {
  /** Matches the path in its usual form, without escapes. The first group is the parameter. */
  readonly pattern: RegExp;
  readonly bodyLimit: number;
  readonly route: Route;
  /** The name of the parameter in the router. */
  readonly parameter: string;
  /** Returns true if the request may be answered in pieces. */
  readonly streams: (headers: IncomingHttpHeaders) => boolean;
  readonly early?: EarlyRefusal;
  /** Returns the timeout that the client set for its call, in milliseconds, or infinity. Must not throw. */
  readonly timeoutMs: (headers: IncomingHttpHeaders) => number;
  /** Answers the exchange, immediately or later. */
  readonly handle: (exchange: Exchange, parameter: string) => void;
  /**
   * Answers an exchange with an error, in the form of the route.
   * Called when `handle` throws, or when the exchange never reached `handle`.
   */
  readonly refuse: (exchange: Exchange, error: unknown) => void;
  /** Answers an exchange whose owning replica is unreachable. */
  readonly unreachable: (exchange: Exchange, error: ServiceError) => void;
}

/** The route of a request that was read without `node:http`. */
interface PlainWay {
  readonly fastPathRoute: FastPathRoute;
  readonly parameter: string;
}

export interface FastPathOptions {
  readonly gate: Gate;
  /** True if authentication is on. */
  readonly hasAuth: boolean;
  readonly bodies: Bodies;
  readonly connections: Connections;
  readonly metrics: EntryMetrics;
  readonly accessLog: ReturnType<typeof createAccessLog>;
  readonly uncaught: (error: unknown, traceId: string) => void;
  /** Replaces the service's own paths in an error text, except those that the client sent. */
  readonly hide: (text: string, sent: Buffer | undefined) => string;
  /** Forwards requests to other replicas. null: this replica answers every request. */
  readonly forwarding: Forwarding | null;
  /** Hosts of public URLs. Requests to them do not reach the hot routes. */
  readonly addresses: HostTurns | null;
}

/**
 * Serves hot routes without the router, with the same gate, limits, metrics and log.
 * Plain requests also bypass `node:http` (`plain-connections.ts`).
 * The router's route, which does the same, serves all other requests.
 * They are requests with a body of unknown length or above the limit, with an escaped path, or while the
 * server closes.
 */
export class FastPath implements ExchangeHost, PlainHost<PlainWay> {
  readonly #options: FastPathOptions;
  readonly #routes: FastPathRoute[] = [];
  readonly #throttle = new RetryThrottle();
  #isOpen = false;

  constructor(options: FastPathOptions) {
    this.#options = options;
  }

  add(route: FastPathRoute): void {
    this.#routes.push(route);
  }

  /** Serves requests from now on. Before, the router serves all. */
  open(): void {
    this.#isOpen = true;
  }

  get #isServing(): boolean {
    return this.#isOpen && !this.#options.connections.isClosing;
  }

  /** Serves a request. Returns false if the router must serve it. */
  tryServe(request: IncomingMessage, response: ServerResponse): boolean {
    if (request.method !== 'POST' || !this.#isServing) return false;
    const url = request.url as string;
    for (const route of this.#routes) {
      const match = route.pattern.exec(url);
      if (match === null) continue;
      if (!isPlain(request, route.bodyLimit)) return false;
      this.#serve(request, response, route, match[1] ?? '');
      return true;
    }
    return false;
  }

  /**
   * Returns the route of a request that may be served without `node:http`, or null.
   * Such a request cannot be forwarded, addressed to a public URL, or answered in pieces.
   */
  routeOf({ method, url, headers, bodyBytes }: PlainHead): PlainWay | null {
    const { forwarding, addresses } = this.#options;
    if (forwarding !== null || method !== 'POST') return null;
    for (const fastPathRoute of this.#routes) {
      const match = fastPathRoute.pattern.exec(url);
      if (match === null) continue;
      if (bodyBytes > fastPathRoute.bodyLimit || fastPathRoute.streams(headers)) return null;
      if (addresses?.isOther(headers.host) === true) return null;
      return { fastPathRoute, parameter: match[1] ?? '' };
    }
    return null;
  }

  tryServePlain(request: PlainRequest, answer: PlainAnswer, { fastPathRoute, parameter }: PlainWay): boolean {
    if (!this.#isServing) return false;
    this.#serve(request, answer, fastPathRoute, parameter);
    return true;
  }

  answered(exchange: Exchange): void {
    const { metrics, accessLog, connections } = this.#options;
    const elapsedMs = performance.now() - exchange.startMs;
    const status = exchange.response.statusCode;
    connections.requestEnded(exchange.raw.socket);
    metrics.observeRequest(exchange.method, exchange.route.url ?? '', status, elapsedMs / 1000);
    accessLog(exchange, status, elapsedMs);
  }

  uncaught(error: unknown, traceId: string): void {
    this.#options.uncaught(error, traceId);
  }

  hide(text: string, sent: Buffer | undefined): string {
    return this.#options.hide(text, sent);
  }

  /** Forwards an exchange. `isOfFastPath`: no hook of the router runs for the answer. */
  passOn(exchange: Exchange, { key, here, fail }: PassOn, isOfFastPath = true): boolean {
    const { forwarding } = this.#options;
    const { raw, response, traceId, tenant, role, route, body } = exchange;
    const isLate = performance.now() - exchange.startMs > FORWARD_WAIT_MS;
    if (forwarding === null || route.livesWith === undefined || isLate) return false;
    if (raw instanceof PlainRequest || response instanceof PlainAnswer) return false;
    const begin = () => {
      if (isOfFastPath) response.once('close', () => this.answered(exchange));
    };
    const { livesWith } = route;
    forwarding.passOn({ livesWith, raw, response, traceId, tenant, role, here, begin, fail }, key, body ?? 'none');
    return true;
  }

  /** Runs a request. An unexpected error ends this exchange only. */
  #serve(
    raw: IncomingMessage | PlainRequest,
    response: ServerResponse | PlainAnswer,
    fastPathRoute: FastPathRoute,
    parameter: string,
  ): void {
    const { route } = fastPathRoute;
    const exchange = new Exchange(raw, response, route, traceIdOf(raw.headers), this);
    const { gate, connections } = this.#options;
    connections.requestBegan(raw.socket);
    try {
      const verdict = gate(raw, route);
      if (verdict instanceof Promise) {
        verdict
          .then(later => this.#pass(exchange, fastPathRoute, parameter, later))
          .catch((error: unknown) => exchange.fault(error));
      } else this.#pass(exchange, fastPathRoute, parameter, verdict);
    } catch (error) {
      exchange.fault(error);
    }
  }

  #pass(exchange: Exchange, fastPathRoute: FastPathRoute, parameter: string, verdict: Verdict): void {
    if (isRefusal(verdict)) {
      const headers = [...errorHeaders(verdict.reason, verdict.status)];
      if (this.#options.hasAuth && fastPathRoute.route.access !== 'public') headers.push('Cache-Control', 'no-store');
      exchange.fail(verdict.reason, verdict, headers);
      return;
    }
    const { tenant, role, name = '' } = verdict;
    exchange.tenant = tenant;
    exchange.role = role;
    exchange.tokenName = name;
    if (this.#options.forwarding === null) this.#answer(exchange, fastPathRoute, parameter);
    else this.#forward(this.#options.forwarding, exchange, fastPathRoute, { parameter, tenant, role });
  }

  #forward(
    forwarding: Forwarding,
    exchange: Exchange,
    fastPathRoute: FastPathRoute,
    { parameter, tenant, role }: { readonly parameter: string; readonly tenant: string; readonly role: Role },
  ): void {
    const { raw, response, traceId } = exchange;
    const { livesWith } = fastPathRoute.route;
    if (livesWith === undefined || raw instanceof PlainRequest || response instanceof PlainAnswer) {
      this.#answer(exchange, fastPathRoute, parameter);
      return;
    }
    const { parameter: name } = fastPathRoute;
    const isTaken = forwarding.tryForward({
      livesWith,
      addressed: { params: { [name]: parameter }, query: {}, headers: raw.headers },
      raw,
      response,
      traceId,
      tenant,
      role,
      upgradeHead: null,
      here: () => this.#answer(exchange, fastPathRoute, parameter),
      begin: () => response.once('close', () => this.answered(exchange)),
      fail: error => {
        if (error instanceof BodyError) refuseBody(exchange, fastPathRoute, error);
        else if (error instanceof ServiceError && error.code === 'unavailable')
          fastPathRoute.unreachable(exchange, error);
        else fastPathRoute.refuse(exchange, error);
      },
    });
    if (!isTaken) this.#answer(exchange, fastPathRoute, parameter);
  }

  #answer(exchange: Exchange, fastPathRoute: FastPathRoute, parameter: string, hasWaited = false): void {
    const refuse = fastPathRoute.early?.(exchange, parameter);
    if (refuse === undefined) {
      this.#handle(exchange, fastPathRoute, parameter);
      return;
    }
    const { socket, headers } = exchange.raw;
    const again = () => {
      try {
        exchange.waitedMs = Math.ceil(performance.now() - exchange.startMs);
        this.#answer(exchange, fastPathRoute, parameter, true);
      } catch (error) {
        exchange.fault(error);
      }
    };
    if (!hasWaited && this.#throttle.delay(socket, fastPathRoute.timeoutMs(headers), again)) return;
    this.#throttle.noteRefusal(socket);
    refuse();
  }

  #handle(exchange: Exchange, fastPathRoute: FastPathRoute, parameter: string): void {
    const { raw } = exchange;
    if (raw instanceof PlainRequest) {
      exchange.body = raw.body;
      fastPathRoute.handle(exchange, parameter);
      return;
    }
    this.#options.bodies.read(raw, exchange.tenant, fastPathRoute.bodyLimit, (error, body) => {
      try {
        if (error !== null) {
          refuseBody(exchange, fastPathRoute, error);
          return;
        }
        exchange.body = body;
        fastPathRoute.handle(exchange, parameter);
      } catch (thrown) {
        exchange.fault(thrown);
      }
    });
  }
}

function refuseBody(exchange: Exchange, { refuse }: FastPathRoute, error: Error): void {
  const { raw } = exchange;
  if (error instanceof ServiceError) refuse(exchange, error);
  else if (error instanceof BodyError && !(raw instanceof PlainRequest || raw.destroyed)) {
    // The rest of the body may never arrive.
    exchange.fail(error.message, refusal(error.statusCode, error.message), ['Connection', 'close']);
  }
}

function isPlain({ headers }: IncomingMessage, bodyLimit: number): boolean {
  if (headers['transfer-encoding'] !== undefined || headers.expect !== undefined) return false;
  const length = headers['content-length'];
  return length === undefined || Number(length) <= bodyLimit;
}

export interface HotRoute {
  /** The path in the router's syntax, with one parameter. */
  readonly url: string;
  readonly parameter: string;
  readonly bodyLimit: number;
  readonly config: FastifyContextConfig;
  /** Returns true if the request may be answered in pieces. Absent: no request may. */
  readonly streams?: (headers: IncomingHttpHeaders) => boolean;
  readonly early?: EarlyRefusal;
  /**
   * Returns the timeout that the client set for its call, in milliseconds. Must not throw. Absent: no
   * timeout.
   */
  readonly timeoutMs?: FastPathRoute['timeoutMs'];
  /** Answers the exchange, immediately or later. `refuse` answers the errors that `handle` throws. */
  readonly handle: (exchange: Exchange, parameter: string) => void;
  /** Answers with an error, in the form of this route. */
  readonly refuse: (exchange: Exchange, error: unknown) => void;
  /** Answers an exchange whose owning replica is unreachable. Absent: `refuse` does. */
  readonly unreachable?: (exchange: Exchange, error: ServiceError) => void;
}

/**
 * Adds a route that is called very often.
 * The router serves it like any other route. Plain requests take the fast path.
 */
export function addHotRoute(app: FastifyInstance, hotRoute: HotRoute): void {
  const { url, parameter, bodyLimit, config, streams, early, refuse } = hotRoute;
  // Answers of hot routes pass no hook that masks, so these routes must not admit a viewer.
  if (config.access === 'read') throw new TypeError(`the hot route ${url} must not be for readers`);
  const handle = (exchange: Exchange, value: string): void => {
    try {
      hotRoute.handle(exchange, value);
    } catch (error) {
      if (!(error instanceof ServiceError)) app.fastPath.uncaught(error, exchange.traceId);
      if (!exchange.isAnswered) refuse(exchange, error);
    }
  };
  app.route<{ Params: Record<string, string> }>({
    method: 'POST',
    url,
    bodyLimit,
    config,
    handler: (request, reply) => {
      handle(Exchange.ofRouter(request, reply), request.params[parameter] ?? '');
    },
  });
  app.fastPath.add({
    pattern: new RegExp(`^${url.replace(`:${parameter}`, '([A-Za-z0-9_.@:$-]+)')}$`),
    bodyLimit,
    route: { ...config, url },
    parameter,
    handle,
    refuse,
    unreachable: hotRoute.unreachable ?? refuse,
    streams: streams ?? (() => false),
    timeoutMs: hotRoute.timeoutMs ?? (() => Number.POSITIVE_INFINITY),
    ...(early === undefined ? {} : { early }),
  });
}
