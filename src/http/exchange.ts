import type { IncomingMessage, ServerResponse } from 'node:http';
import type { FastifyReply, FastifyRequest } from 'fastify';
import type { ServiceError } from '../core/error.ts';
import { type ErrorAnswer, errorHeaders, JSON_TYPE } from './answer.ts';
import { type CallerSignal, callerSignal } from './caller.ts';
import type { Route } from './route-config.ts';

/** Names and values in turn. */
export type HeaderList = readonly string[];

/**
 * One request of a hot route and its answer, whichever way the request came: by the lane, or by the router. The answer is
 * written as one piece, since what lies between a handler and node costs more than a warm call.
 */
export class Exchange {
  readonly raw: IncomingMessage;
  readonly response: ServerResponse;
  readonly route: Route;
  readonly traceId: string;
  readonly tenant: string;
  /** Undefined when there is none, and until it has been read. */
  body: Buffer | undefined;
  /** Why it was refused or failed, for the access log. */
  failure: ServiceError | string | null = null;
  readonly #onAnswered: (exchange: Exchange) => void;
  #content: string | Buffer = '';
  /** The router's own, whose failure its hooks log. */
  #routed: FastifyRequest | undefined;

  /** The answers of this turn. */
  static #answered: Exchange[] = [];

  /**
   * Writes them one right after the other. The first write to a process that sleeps has to wake it and costs twice as much as one
   * to a process that is awake: written between other work, each would be a first one.
   */
  static #write(this: void): void {
    const answered = Exchange.#answered;
    Exchange.#answered = [];
    for (const exchange of answered) {
      exchange.response.end(exchange.#content);
      exchange.#onAnswered(exchange);
    }
  }

  constructor(
    request: {
      readonly raw: IncomingMessage;
      readonly route: Route;
      readonly traceId: string;
      readonly tenant: string;
    },
    response: ServerResponse,
    onAnswered: (exchange: Exchange) => void,
  ) {
    this.raw = request.raw;
    this.route = request.route;
    this.traceId = request.traceId;
    this.tenant = request.tenant;
    this.body = undefined;
    this.response = response;
    this.#onAnswered = onAnswered;
  }

  /** Takes a request out of the router's hands; its hooks still run when the answer has been written. */
  static ofRouter(request: FastifyRequest, reply: FastifyReply): Exchange {
    reply.hijack();
    const exchange = new Exchange(request, reply.raw, () => undefined);
    exchange.body = request.body as Buffer | undefined;
    exchange.#routed = request;
    return exchange;
  }

  get method(): string {
    return this.raw.method ?? '';
  }

  /** Aborts when the caller goes away. */
  get caller(): CallerSignal {
    return callerSignal(this.raw.socket);
  }

  get isAnswered(): boolean {
    return this.response.headersSent;
  }

  /** Answers with JSON that is there already; it is written when this turn of the event loop ends. */
  answer(status: number, json: string | Buffer, headers: HeaderList = []): void {
    const { response } = this;
    const bytes = typeof json === 'string' ? Buffer.byteLength(json) : json.length;
    response.writeHead(status, [
      'X-Trace-Id',
      this.traceId,
      'Content-Type',
      JSON_TYPE,
      'Content-Length',
      String(bytes),
      ...headers,
    ]);
    this.#content = json;
    if (Exchange.#answered.push(this) === 1) setImmediate(Exchange.#write);
  }

  /** Answers with what an error becomes; `reason` is kept for the access log. */
  fail(reason: ServiceError | string, { status, body }: ErrorAnswer, headers?: HeaderList): void {
    this.failure = reason;
    if (this.#routed) this.#routed.failure = reason;
    this.answer(status, JSON.stringify(body), headers ?? errorHeaders(reason, status));
  }

  /** The beginning of an answer that goes on until `response.end`. */
  begin(status: number, headers: HeaderList): ServerResponse {
    const { response } = this;
    response.writeHead(status, ['X-Trace-Id', this.traceId, ...headers]);
    response.once('close', () => this.#onAnswered(this));
    return response;
  }
}
