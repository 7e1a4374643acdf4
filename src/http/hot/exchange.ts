import type { IncomingMessage, ServerResponse } from 'node:http';
import type { FastifyReply, FastifyRequest } from 'fastify';
import { internal, type ServiceError } from '../../core/error.ts';
import type { CallSignal } from '../../lib/call-signal.ts';
import { callerSignal } from '../access/caller.ts';
import type { Role } from '../access/credentials.ts';
import { type ErrorAnswer, errorHeaders, headerText, JSON_TYPE, refusal } from '../answer.ts';
import type { Route } from '../route-config.ts';
import type { PlainRequest } from './plain-messages.ts';
import { PlainAnswer } from './plain-messages.ts';

/** Header names and values, alternating. */
export type HeaderList = readonly string[];

/**
 * Largest answer that is written as text. For a larger one, the copy costs more than a second buffer in the
 * write.
 */
export const SMALL_ANSWER_BYTES = 16 * 1024;

/** An exchange whose answer may be written in pieces. */
export interface StreamExchange {
  readonly response: ServerResponse;
  /** Writes the head of an answer that continues until `response.end`. */
  begin(status: number, headers: HeaderList): ServerResponse;
}

/** Callbacks of an exchange. */
export interface ExchangeHost {
  /** Called when the answer has been written. */
  answered(exchange: Exchange): void;
  /** Called for an error that no handler caught. */
  uncaught(error: unknown, traceId: string): void;
  /** Replaces the service's own paths in an error text, except those that the client sent. */
  hide(text: string, sent: Buffer | undefined): string;
  /** See `Exchange.passOn`. */
  passOn(exchange: Exchange, how: PassOn): boolean;
}

/** Callbacks for an exchange whose function moved to another replica before any part of the exchange ran. */
export interface PassOn {
  /** The URN of the function. */
  readonly key: string;
  /** Called if this replica owns the function again. */
  readonly here: () => void;
  /** Called if no replica accepted the request. */
  readonly fail: (error: unknown) => void;
}

/**
 * A request of a hot route and its answer.
 * The request was read from its connection, by the fast path of `node:http`, or by the router.
 * The answer is written in one piece, because the layers between a handler and Node cost more than a warm
 * call.
 */
export class Exchange {
  readonly raw: IncomingMessage | PlainRequest;
  readonly response: ServerResponse | PlainAnswer;
  readonly route: Route;
  readonly traceId: string;
  readonly startMs = performance.now();
  /** Delay before the request was handled, in whole milliseconds. */
  waitedMs = 0;
  /** `''` until the request has passed the gate. */
  tenant = '';
  role: Role = 'viewer';
  /** The name of the token; `''`: it has none. */
  tokenName = '';
  /** Undefined if the request has no body, or its body has not been read. */
  body: Buffer | undefined;
  /** Reason of a refusal or failure, for the access log. */
  failure: ServiceError | string | null = null;
  readonly #host: ExchangeHost;
  #content: string | Buffer = '';
  /** True while the answer is in `#answered`. */
  #isWaiting = false;
  /** The router's request, whose failure the hooks of the router log. Undefined on the fast path. */
  #routed: FastifyRequest | undefined;

  /** The answers of this turn of the event loop. */
  static #answered: Exchange[] = [];

  /**
   * Writes all answers of this turn, one right after the other.
   * The first write to a sleeping process has to wake it.
   * Such a write costs twice as much as a write to a running process.
   * If other work separated the writes, each would be a first one.
   */
  static #write(this: void): void {
    const answered = Exchange.#answered;
    Exchange.#answered = [];
    for (const exchange of answered) {
      exchange.#isWaiting = false;
      try {
        exchange.response.end(exchange.#content);
        exchange.#host.answered(exchange);
      } catch (error) {
        // A failed write must not prevent the other writes of this turn.
        exchange.fault(error);
      }
    }
  }

  constructor(
    raw: IncomingMessage | PlainRequest,
    response: ServerResponse | PlainAnswer,
    route: Route,
    traceId: string,
    host: ExchangeHost,
  ) {
    this.raw = raw;
    this.response = response;
    this.route = route;
    this.traceId = traceId;
    this.body = undefined;
    this.#host = host;
  }

  /** Takes a request over from the router. The router's hooks still run when the answer has been written. */
  static ofRouter(request: FastifyRequest, reply: FastifyReply): Exchange {
    reply.hijack();
    const { fastPath } = request.server;
    const exchange = new Exchange(request.raw, reply.raw, request.route, request.traceId, {
      answered() {},
      passOn: (passed, how) => fastPath.passOn(passed, how, false),
      uncaught: (error, traceId) => fastPath.uncaught(error, traceId),
      hide: (text, sent) => fastPath.hide(text, sent),
    });
    exchange.tenant = request.tenant;
    exchange.role = request.role;
    exchange.tokenName = request.tokenName;
    exchange.body = request.body as Buffer | undefined;
    exchange.#routed = request;
    return exchange;
  }

  get method(): string {
    return this.raw.method ?? '';
  }

  /** Aborts when the client disconnects. */
  get caller(): CallSignal {
    return callerSignal(this.raw.socket);
  }

  get isAnswered(): boolean {
    return this.response.headersSent;
  }

  /**
   * Forwards the request to the replica that owns the resource. Returns false if forwarding is impossible.
   * It is impossible without other replicas, for a plain request, or more than `FORWARD_WAIT_MS` after the
   * start. Nothing has happened then.
   */
  passOn(how: PassOn): boolean {
    return this.#host.passOn(this, how);
  }

  /** Answers with complete JSON, which is written at the end of this turn of the event loop. */
  answer(status: number, json: string | Buffer, headers: HeaderList = []): void {
    const bytes = typeof json === 'string' ? Buffer.byteLength(json) : json.length;
    this.#writeHead(status, [
      'X-Trace-Id',
      this.traceId,
      'Content-Type',
      JSON_TYPE,
      'X-Content-Type-Options',
      'nosniff',
      'Content-Length',
      String(bytes),
      ...headers,
    ]);
    this.#content = json;
    this.#isWaiting = true;
    if (Exchange.#answered.push(this) === 1) setImmediate(Exchange.#write);
  }

  /** Answers with an error. Stores `reason` for the access log. */
  fail(reason: ServiceError | string, { status, body }: ErrorAnswer, headers?: HeaderList): void {
    this.failure = reason;
    if (this.#routed) this.#routed.failure = reason;
    const json = JSON.stringify(body);
    // The service writes the whole text of a 429, so the text contains no path to hide.
    const text = status === 429 ? json : this.#host.hide(json, this.body);
    this.answer(status, text, headers ?? errorHeaders(reason, status));
  }

  /**
   * Ends an exchange after an unexpected error, with a plain 500.
   * Closes the connection if the head of an answer was already sent.
   * Logs the error with the trace id and counts it. Other exchanges are not affected. Never throws.
   */
  fault(error: unknown): void {
    this.#host.uncaught(error, this.traceId);
    if (this.#isWaiting || this.response.writableEnded) return;
    if (this.response.headersSent) {
      this.response.destroy();
      return;
    }
    const text = `internal error: the log has it under trace id ${this.traceId}`;
    this.fail(internal(text, { cause: error }), refusal(500, text));
  }

  /** Returns the exchange as one that is answered in pieces. Throws a `TypeError` for a plain answer. */
  inPieces(): StreamExchange {
    const { response } = this;
    if (response instanceof PlainAnswer)
      throw new TypeError('a plain answer is one piece: `streams` of the route is wrong');
    return { response, begin: (status, headers) => this.#begin(response, status, headers) };
  }

  #begin(response: ServerResponse, status: number, headers: HeaderList): ServerResponse {
    this.#writeHead(status, ['X-Trace-Id', this.traceId, ...headers]);
    response.once('close', () => this.#host.answered(this));
    return response;
  }

  /**
   * Writes the head of an answer. Replaces characters that a header cannot contain, and an invalid status by
   * 500.
   */
  #writeHead(status: number, headers: string[]): void {
    try {
      this.response.writeHead(status, headers);
    } catch (error) {
      if (this.response.headersSent) throw error;
      this.#host.uncaught(error, this.traceId);
      this.response.writeHead(
        Number.isInteger(status) && status >= 200 && status <= 599 ? status : 500,
        headers.map(headerText),
      );
    }
  }
}
