import type { IncomingMessage, ServerResponse } from 'node:http';
import { ServiceError } from '../core/error.ts';
import type { EntryMetrics } from '../telemetry/metrics.ts';
import type { createAccessLog } from './access-log.ts';
import { errorHeaders, refusal } from './answer.ts';
import { type Bodies, BodyError } from './bodies.ts';
import type { Connections } from './connections.ts';
import { Exchange, type ExchangeHost } from './exchange.ts';
import { type Gate, isRefusal, type Verdict } from './gate.ts';
import type { Route } from './route-config.ts';
import { traceIdOf } from './trace.ts';

/** A hot route: `POST`, with at most one parameter in its path. */
export interface FastPathRoute {
  /** Its path as it comes most of the time, nothing in it escaped; the first group is the parameter, if it has one. */
  readonly pattern: RegExp;
  readonly bodyLimit: number;
  readonly route: Route;
  /** Answers at once what would be refused whatever its body says, and then returns true; else nothing has happened. */
  readonly early?: (exchange: Exchange, parameter: string) => boolean;
  /** Answers the exchange, now or later. */
  readonly handle: (exchange: Exchange, parameter: string) => void;
  /** Answers an exchange that `handle` threw for, or that never got there, in the form of the route. */
  readonly refuse: (exchange: Exchange, error: unknown) => void;
}

export interface FastPathOptions {
  readonly gate: Gate;
  readonly bodies: Bodies;
  readonly connections: Connections;
  readonly metrics: EntryMetrics;
  readonly accessLog: ReturnType<typeof createAccessLog>;
  readonly uncaught: (error: unknown, traceId: string) => void;
  /** Takes out of the text of a failure what is not for callers. */
  readonly hide: (text: string) => string;
}

/**
 * The short way to the hot routes: past the router, with the same gate, limits, metrics and log. It takes only what is plain; a body
 * of unknown length or above the limit, an escaped path and whatever comes while the server closes go by the router, whose route does the same.
 */
export class FastPath implements ExchangeHost {
  readonly #options: FastPathOptions;
  readonly #routes: FastPathRoute[] = [];

  constructor(options: FastPathOptions) {
    this.#options = options;
  }

  add(route: FastPathRoute): void {
    this.#routes.push(route);
  }

  /** False: it is for the router. */
  take(request: IncomingMessage, response: ServerResponse): boolean {
    if (request.method !== 'POST' || this.#options.connections.isClosing) return false;
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

  answered(exchange: Exchange): void {
    const { metrics, accessLog, connections } = this.#options;
    const elapsedMs = performance.now() - exchange.startMs;
    const status = exchange.response.statusCode;
    connections.requestEnded(exchange.raw.socket);
    metrics.observeRequest('POST', exchange.route.url ?? '', status, elapsedMs / 1000);
    accessLog(exchange, status, elapsedMs);
  }

  uncaught(error: unknown, traceId: string): void {
    this.#options.uncaught(error, traceId);
  }

  hide(text: string): string {
    return this.#options.hide(text);
  }

  /** An error anywhere on the way of an exchange ends that exchange, and nothing else. */
  #serve(raw: IncomingMessage, response: ServerResponse, fastPathRoute: FastPathRoute, parameter: string): void {
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
    const { tenant } = verdict;
    exchange.tenant = tenant;
    if (fastPathRoute.early?.(exchange, parameter)) return;
    this.#options.bodies.read(exchange.raw, tenant, fastPathRoute.bodyLimit, (error, body) => {
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
  if (error instanceof ServiceError) refuse(exchange, error);
  else if (error instanceof BodyError && !exchange.raw.destroyed) {
    // The rest of the body may never come.
    exchange.fail(error.message, refusal(error.statusCode, error.message), ['Connection', 'close']);
  }
}

function isPlain({ headers }: IncomingMessage, bodyLimit: number): boolean {
  if (headers['transfer-encoding'] !== undefined || headers.expect !== undefined) return false;
  const length = headers['content-length'];
  return length === undefined || Number(length) <= bodyLimit;
}
