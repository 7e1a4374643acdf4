import type { IncomingHttpHeaders, IncomingMessage, ServerResponse } from 'node:http';
import { ServiceError } from '../core/error.ts';
import type { EntryMetrics } from '../telemetry/metrics.ts';
import type { createAccessLog } from './access-log.ts';
import type { AddressHosts } from './address-host.ts';
import { errorHeaders, refusal } from './answer.ts';
import { type Bodies, BodyError } from './bodies.ts';
import type { Connections } from './connections.ts';
import type { Role } from './credentials.ts';
import { Exchange, type ExchangeHost, type PassOn } from './exchange.ts';
import { FORWARD_WAIT_MS, type Forwarding } from './forwarding.ts';
import type { Gate } from './gate.ts';
import { HastyCallers } from './hasty-callers.ts';
import { PlainAnswer } from './plain-answer.ts';
import type { PlainHost } from './plain-connections.ts';
import { type PlainHead, PlainRequest } from './plain-request.ts';
import type { Route } from './route-config.ts';
import { traceIdOf } from './trace.ts';
import { isRefusal, type Verdict } from './verdict.ts';

/**
 * How a request is refused, with `Retry-After`, that would be refused now whatever its body says; undefined when it would not be. Nothing has
 * happened until the refusal is called.
 */
export type EarlyRefusal = (exchange: Exchange, parameter: string) => (() => void) | undefined;

/** A hot route, with at most one parameter in its path. */
export interface FastPathRoute {
  readonly method: 'POST' | 'DELETE';
  /** Its path as it comes most of the time, nothing in it escaped; the first group is the parameter, if it has one. */
  readonly pattern: RegExp;
  readonly bodyLimit: number;
  readonly route: Route;
  /** The name of the parameter, as the router has it. */
  readonly parameter: string | null;
  /** Whether a request may be answered piece by piece. */
  readonly streams: (headers: IncomingHttpHeaders) => boolean;
  readonly early?: EarlyRefusal;
  /** How long the caller waits for its answer, where it says so, milliseconds; must not fail. */
  readonly timeoutMs: (headers: IncomingHttpHeaders) => number;
  /** Answers the exchange, now or later. */
  readonly handle: (exchange: Exchange, parameter: string) => void;
  /** Answers an exchange that `handle` threw for, or that never got there, in the form of the route. */
  readonly refuse: (exchange: Exchange, error: unknown) => void;
  /** Answers an exchange that another replica should have answered. */
  readonly unreachable: (exchange: Exchange, error: ServiceError) => void;
}

/** Where a request goes that was read without `node:http`. */
interface PlainWay {
  readonly fastPathRoute: FastPathRoute;
  readonly parameter: string;
}

export interface FastPathOptions {
  readonly gate: Gate;
  readonly bodies: Bodies;
  readonly connections: Connections;
  readonly metrics: EntryMetrics;
  readonly accessLog: ReturnType<typeof createAccessLog>;
  readonly uncaught: (error: unknown, traceId: string) => void;
  /** Takes out of the text of a failure what is not for callers. */
  readonly hide: (text: string, sent: Buffer | undefined) => string;
  /** Null: everything is answered here. */
  readonly forwarding: Forwarding | null;
  /** Hosts whose requests are not for the hot routes. */
  readonly addresses: AddressHosts | null;
}

/**
 * The short way to the hot routes: past the router, and past `node:http` where a request is plain enough (`plain-connections.ts`), with the
 * same gate, limits, metrics and log. It takes only what is plain; a body of unknown length or above the limit, an escaped path and whatever
 * comes while the server closes go by the router, whose route does the same.
 */
export class FastPath implements ExchangeHost, PlainHost<PlainWay> {
  readonly #options: FastPathOptions;
  readonly #routes: FastPathRoute[] = [];
  readonly #hasty = new HastyCallers();

  constructor(options: FastPathOptions) {
    this.#options = options;
  }

  add(route: FastPathRoute): void {
    this.#routes.push(route);
  }

  /** False: it is for the router. */
  take(request: IncomingMessage, response: ServerResponse): boolean {
    const { method } = request;
    if ((method !== 'POST' && method !== 'DELETE') || this.#options.connections.isClosing) return false;
    // What ends something waits for the answers before it, which may be of what it ends.
    if (method === 'DELETE' && response.socket === null) return false;
    const url = request.url as string;
    for (const route of this.#routes) {
      const match = route.method === method ? route.pattern.exec(url) : null;
      if (match === null) continue;
      if (!isPlain(request, route.bodyLimit)) return false;
      this.#serve(request, response, route, match[1] ?? '');
      return true;
    }
    return false;
  }

  /** Nothing is read without `node:http` that may have to go to another replica, is for an address, or may be answered in pieces. */
  routeOf({ method, url, headers, bodyBytes }: PlainHead): PlainWay | null {
    const { forwarding, addresses } = this.#options;
    if (forwarding !== null) return null;
    for (const fastPathRoute of this.#routes) {
      const match = fastPathRoute.method === method ? fastPathRoute.pattern.exec(url) : null;
      if (match === null) continue;
      if (bodyBytes > fastPathRoute.bodyLimit || fastPathRoute.streams(headers)) return null;
      if (addresses !== null && addresses.nameOf(headers.host) !== null) return null;
      return { fastPathRoute, parameter: match[1] ?? '' };
    }
    return null;
  }

  takePlain(request: PlainRequest, answer: PlainAnswer, { fastPathRoute, parameter }: PlainWay): boolean {
    if (this.#options.connections.isClosing) return false;
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

  /** `isOfFastPath`: nobody else hears of the answer. */
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

  /** An error anywhere on the way of an exchange ends that exchange, and nothing else. */
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
      exchange.fail(verdict.reason, verdict, errorHeaders(verdict.reason, verdict.status));
      return;
    }
    const { tenant, role } = verdict;
    exchange.tenant = tenant;
    exchange.role = role;
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
    const isTaken = forwarding.takes({
      livesWith,
      addressed: { params: name === null ? {} : { [name]: parameter }, query: {}, headers: raw.headers },
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
    if (!hasWaited && this.#hasty.letWait(socket, fastPathRoute.timeoutMs(headers), again)) return;
    this.#hasty.refused(socket);
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
    // The rest of the body may never come.
    exchange.fail(error.message, refusal(error.statusCode, error.message), ['Connection', 'close']);
  }
}

function isPlain({ headers }: IncomingMessage, bodyLimit: number): boolean {
  if (headers['transfer-encoding'] !== undefined || headers.expect !== undefined) return false;
  const length = headers['content-length'];
  return length === undefined || Number(length) <= bodyLimit;
}
