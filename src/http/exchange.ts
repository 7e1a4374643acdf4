import type { IncomingMessage, ServerResponse } from 'node:http';
import type { FastifyReply, FastifyRequest } from 'fastify';
import { internal, type ServiceError } from '../core/error.ts';
import { type ErrorAnswer, errorHeaders, headerText, JSON_TYPE, refusal } from './answer.ts';
import { type CallerSignal, callerSignal } from './caller.ts';
import type { Role } from './credentials.ts';
import { PlainAnswer } from './plain-answer.ts';
import type { PlainRequest } from './plain-request.ts';
import type { Route } from './route-config.ts';

/** Names and values in turn. */
export type HeaderList = readonly string[];

/** Above it, copying the bytes into a text costs more than a second buffer in the write. */
export const SMALL_ANSWER_BYTES = 16 * 1024;

/** An exchange whose answer may be written piece by piece. */
export interface StreamExchange {
  readonly response: ServerResponse;
  /** The beginning of an answer that goes on until `response.end`. */
  begin(status: number, headers: HeaderList): ServerResponse;
}

/** Who learns what becomes of exchanges. */
export interface ExchangeHost {
  /** Its answer has been written. */
  answered(exchange: Exchange): void;
  /** Something threw on its way. */
  uncaught(error: unknown, traceId: string): void;
  /** Takes out of the text of a failure what is not for callers, unless they have sent it. */
  hide(text: string, sent: Buffer | undefined): string;
  /** See `Exchange.passOn`. */
  passOn(exchange: Exchange, how: PassOn): boolean;
}

/** For an exchange whose function went to another replica after it was taken to be here, and before anything of it ran. */
export interface PassOn {
  /** The URN of the function. */
  readonly key: string;
  /** It came back meanwhile. */
  readonly here: () => void;
  /** Nobody could take it. */
  readonly fail: (error: unknown) => void;
}

/**
 * One request of a hot route and its answer, whichever way the request came: read from its connection, by the fast path, or by the router.
 * The answer is written as one piece, since what lies between a handler and node costs more than a warm call.
 */
export class Exchange {
  readonly raw: IncomingMessage | PlainRequest;
  readonly response: ServerResponse | PlainAnswer;
  readonly route: Route;
  readonly traceId: string;
  readonly startMs = performance.now();
  /** How long it was held before it was handled, whole milliseconds. */
  waitedMs = 0;
  /** `''` until the request has passed the gate. */
  tenant = '';
  role: Role = 'viewer';
  /** Undefined when there is none, and until it has been read. */
  body: Buffer | undefined;
  /** Why it was refused or failed, for the access log. */
  failure: ServiceError | string | null = null;
  readonly #host: ExchangeHost;
  #content: string | Buffer = '';
  /** Its answer is among those of this turn. */
  #isWaiting = false;
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
      exchange.#isWaiting = false;
      try {
        exchange.response.end(exchange.#content);
        exchange.#host.answered(exchange);
      } catch (error) {
        // The others of this turn are written whatever becomes of this one.
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

  /** Takes a request out of the router's hands; its hooks still run when the answer has been written. */
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

  /** Lets the replica answer that has the thing now. False: there is none, or this has taken too long, and nothing has happened. */
  passOn(how: PassOn): boolean {
    return this.#host.passOn(this, how);
  }

  /** Answers with JSON that is there already; it is written when this turn of the event loop ends. */
  answer(status: number, json: string | Buffer, headers: HeaderList = []): void {
    const bytes = typeof json === 'string' ? Buffer.byteLength(json) : json.length;
    this.#writeHead(status, [
      'X-Trace-Id',
      this.traceId,
      'Content-Type',
      JSON_TYPE,
      'Content-Length',
      String(bytes),
      ...headers,
    ]);
    this.#content = json;
    this.#isWaiting = true;
    if (Exchange.#answered.push(this) === 1) setImmediate(Exchange.#write);
  }

  /** Answers with what an error becomes; `reason` is kept for the access log. */
  fail(reason: ServiceError | string, { status, body }: ErrorAnswer, headers?: HeaderList): void {
    this.failure = reason;
    if (this.#routed) this.#routed.failure = reason;
    const json = JSON.stringify(body);
    // Refusals under overload are ours, word by word.
    const text = status === 429 ? json : this.#host.hide(json, this.body);
    this.answer(status, text, headers ?? errorHeaders(reason, status));
  }

  /**
   * The end of an exchange on whose way something threw: a plain 500, or a connection that breaks off when the status is gone. It is
   * logged with the trace id and counted, and nothing else comes to harm. Never throws.
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

  /** This exchange, when it can be answered piece by piece. */
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

  /** Values of headers may come from anywhere: one that cannot be a header is written as far as it can. */
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
