import type { IncomingMessage, ServerResponse } from 'node:http';
import type { EntryMetrics } from '../telemetry/metrics.ts';
import type { createAccessLog } from './access-log.ts';
import { errorHeaders } from './answer.ts';
import type { Connections } from './connections.ts';
import { Exchange } from './exchange.ts';
import type { Gate, Verdict } from './gate.ts';
import type { Route } from './route-config.ts';
import { traceIdOf } from './trace.ts';

/** A hot route: `POST`, with at most one parameter in its path. */
export interface LaneRoute {
  /** Its path as it comes most of the time, nothing in it escaped; the first group is the parameter, if it has one. */
  readonly pattern: RegExp;
  readonly bodyLimit: number;
  readonly route: Route;
  /** Answers at once what would be refused whatever its body says, and then returns true; else nothing has happened. */
  readonly early?: (exchange: Exchange, parameter: string) => boolean;
  /** Answers the exchange, now or later. Never throws. */
  readonly handle: (exchange: Exchange, parameter: string) => void;
}

export interface LaneOptions {
  readonly gate: Gate;
  readonly connections: Connections;
  readonly metrics: EntryMetrics;
  readonly accessLog: ReturnType<typeof createAccessLog>;
}

/**
 * The short way to the hot routes: past the router, with the same gate, limits, metrics and log. It takes only what is plain; a body
 * of unknown length or above the limit, an escaped path and whatever comes while the server closes go by the router, whose route does the same.
 */
export class Lane {
  readonly #options: LaneOptions;
  readonly #routes: LaneRoute[] = [];

  constructor(options: LaneOptions) {
    this.#options = options;
  }

  add(route: LaneRoute): void {
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

  #serve(raw: IncomingMessage, response: ServerResponse, { route, early, handle }: LaneRoute, parameter: string): void {
    const startMs = performance.now();
    const { gate, connections } = this.#options;
    connections.requestBegan(raw.socket);
    const traceId = traceIdOf(raw.headers);
    const onAnswered = (exchange: Exchange) => this.#answered(exchange, startMs);
    const pass = (verdict: Verdict) => {
      const isRefused = typeof verdict !== 'string';
      const exchange = new Exchange({ raw, route, traceId, tenant: isRefused ? '' : verdict }, response, onAnswered);
      if (isRefused) {
        exchange.fail(verdict.reason, verdict, errorHeaders(verdict.reason, verdict.status));
        return;
      }
      if (early?.(exchange, parameter)) return;
      readBody(raw, body => {
        exchange.body = body;
        handle(exchange, parameter);
      });
    };
    const verdict = gate(raw, route);
    if (verdict instanceof Promise) void verdict.then(pass);
    else pass(verdict);
  }

  #answered(exchange: Exchange, startMs: number): void {
    const { metrics, accessLog, connections } = this.#options;
    const elapsedMs = performance.now() - startMs;
    const status = exchange.response.statusCode;
    metrics.observeRequest('POST', exchange.route.url ?? '', status, elapsedMs / 1000);
    accessLog(exchange, status, elapsedMs);
    connections.requestEnded(exchange.raw.socket);
  }
}

function isPlain({ headers }: IncomingMessage, bodyLimit: number): boolean {
  if (headers['transfer-encoding'] !== undefined || headers.expect !== undefined) return false;
  const length = headers['content-length'];
  return length === undefined || Number(length) <= bodyLimit;
}

/** The whole body, which node holds to its announced length. Nobody is told when the caller leaves before its end. */
function readBody(request: IncomingMessage, done: (body: Buffer | undefined) => void): void {
  let body: Buffer | undefined;
  let more: Buffer[] | undefined;
  request.on('data', (chunk: Buffer) => {
    if (body === undefined) body = chunk;
    else if (more === undefined) more = [body, chunk];
    else more.push(chunk);
  });
  request.on('end', () => done(more === undefined ? body : Buffer.concat(more)));
}
