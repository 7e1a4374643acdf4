import { unavailable } from '../core/error.ts';
import { MAX_TIMER_MS } from '../lib/deadline.ts';
import { type Call, type CallOutcome, timedOut } from './call.ts';
import { ProtocolError } from './decoder.ts';
import { type Cancel, FRAME } from './protocol.ts';

const FIRST_PLACES = 16;
const MAX_ID = 0xffff_ffff;

/**
 * The unanswered calls of a channel by id, and the source of the ids.
 * Each id has a slot in an array, and ids with an occupied slot are skipped. A long-lived `Map` that changes
 * with every call would be rebuilt often, and its old tables are collected late.
 */
export class OpenCalls {
  #places: (OpenCall | undefined)[] = new Array(FIRST_PLACES).fill(undefined);
  #nextId = 1;
  #size = 0;

  get size(): number {
    return this.#size;
  }

  /**
   * Returns the id of the next call, which must be added before any other operation.
   * `isTaken` is true for an id that another call still uses.
   */
  nextId(isTaken: (id: number) => boolean): number {
    if (2 * this.#size >= this.#places.length) this.#grow();
    for (;;) {
      const id = this.#nextId;
      this.#nextId = id === MAX_ID ? 1 : id + 1;
      if (this.#places[this.#placeOf(id)] === undefined && !isTaken(id)) return id;
    }
  }

  add(call: OpenCall): void {
    this.#places[this.#placeOf(call.id)] = call;
    this.#size += 1;
  }

  get(id: number): OpenCall | undefined {
    const call = this.#places[this.#placeOf(id)];
    return call?.id === id ? call : undefined;
  }

  remove({ id }: OpenCall): void {
    this.#places[this.#placeOf(id)] = undefined;
    this.#size -= 1;
  }

  /** Removes all calls, and returns them in the order in which they were added. */
  removeAll(): OpenCall[] {
    const calls = this.#places.filter(call => call !== undefined);
    this.#places.fill(undefined);
    this.#size = 0;
    // Ids wrap around, so the order is the distance from the next id: the oldest call has the smallest.
    return calls.sort((one, other) => ((one.id - this.#nextId) >>> 0) - ((other.id - this.#nextId) >>> 0));
  }

  #placeOf(id: number): number {
    return id & (this.#places.length - 1);
  }

  #grow(): void {
    const calls = this.#places;
    this.#places = new Array(2 * calls.length).fill(undefined);
    for (const call of calls) if (call !== undefined) this.#places[this.#placeOf(call.id)] = call;
  }
}

/**
 * Returns the credit that a CHUNK costs. An empty CHUNK costs 1, because otherwise any number of them could
 * wait.
 */
export function creditOf(payloadBytes: number): number {
  return Math.max(1, payloadBytes);
}

/** The channel of an open call, as the call uses it. */
interface CallOwner {
  /** Sends a CANCEL to the runtime and keeps waiting for its answer. */
  cancel(callId: number, reason: Cancel['reason']): void;
  /** Stops waiting for the call's answer. */
  abandon(callId: number, reason: Cancel['reason']): void;
}

/** A call that was sent and not answered yet: its time limit, its signal and its promise. */
export class OpenCall {
  readonly id: number;
  onChunk: Call['onChunk'];
  /** Called when an abandoned call ends; undefined without a listener, and once the call was answered. */
  onLateEnd: Call['onLateEnd'] | undefined;
  /** CHUNK payload that the runtime may still send; null when the call is no stream. */
  #creditBytes: number | null;
  /**
   * Minimum size of a grant: half of the initial credit.
   * Less than the whole, so that the stream never waits for the reader to take everything.
   */
  readonly #grantBytes: number;
  /** JSON of the spans that preceded the answer. */
  #spans: Buffer | undefined;
  /** Bytes that the reader has taken and that are not granted yet. */
  #owedBytes = 0;
  #signal: Call['signal'];
  readonly #timeoutMs: number;
  readonly #owner: CallOwner;
  #resolve: (outcome: CallOutcome) => void;
  #reject: (error: Error) => void;
  #onAbort: (() => void) | undefined;
  #timer: NodeJS.Timeout | undefined;
  /** Time that is left when the current timer fires. */
  #leftMs: number;

  constructor(
    id: number,
    call: Call,
    owner: CallOwner,
    resolve: (outcome: CallOutcome) => void,
    reject: (error: Error) => void,
  ) {
    const { signal, timeoutMs, waitedMs = 0 } = call;
    this.id = id;
    this.onChunk = call.onChunk;
    this.onLateEnd = call.onLateEnd;
    this.#creditBytes = call.header.stream === true ? (call.header.credit ?? 0) : null;
    this.#grantBytes = Math.floor((this.#creditBytes ?? 0) / 2);
    this.#signal = signal;
    this.#timeoutMs = timeoutMs;
    this.#owner = owner;
    this.#resolve = resolve;
    this.#reject = reject;
    this.#leftMs = Math.max(0, timeoutMs - waitedMs);
    this.#startTimer();
    if (signal) {
      this.#onAbort = () => this.#aborted();
      signal.addEventListener('abort', this.#onAbort);
    }
  }

  /**
   * Records that the reader has taken `bytes`. Returns the credit to send to the runtime.
   * Returns 0 while the amount is below the minimum of a grant.
   */
  grantCredit(bytes: number): number {
    if (this.#creditBytes === null) return 0;
    this.#owedBytes += bytes;
    if (this.#owedBytes < this.#grantBytes) return 0;
    const granted = this.#owedBytes;
    this.#owedBytes = 0;
    this.#creditBytes += granted;
    return granted;
  }

  /** Charges a CHUNK. Throws when the credit is used up; one CHUNK may exceed the remaining credit. */
  spendCredit(payloadBytes: number): void {
    if (this.#creditBytes === null) throw new ProtocolError('CHUNK of a call that is no stream');
    if (this.#creditBytes <= 0) throw new ProtocolError('CHUNK beyond the credit of its stream');
    this.#creditBytes -= creditOf(payloadBytes);
  }

  /** Receives a CHUNK, or SPANS, which it keeps. Throws when it already has some. */
  receivePart(type: typeof FRAME.CHUNK | typeof FRAME.SPANS, payload: Buffer): void {
    if (type === FRAME.CHUNK) {
      this.onChunk?.(payload, this.id);
      return;
    }
    if (this.#spans !== undefined) throw new ProtocolError('two SPANS for one call');
    this.#spans = payload;
  }

  withSpans(outcome: CallOutcome): CallOutcome {
    return this.#spans === undefined ? outcome : { ...outcome, spans: this.#spans };
  }

  complete(outcome: CallOutcome): void {
    const resolve = this.#resolve;
    this.#end();
    this.onLateEnd = undefined;
    resolve(outcome);
  }

  /** Ends the time limit and the wait for the caller: the answer has arrived and cannot be revoked. */
  answered(): void {
    clearTimeout(this.#timer);
    if (this.#onAbort) this.#signal?.removeEventListener('abort', this.#onAbort);
    this.#onAbort = undefined;
  }

  fail(error: Error): void {
    const reject = this.#reject;
    this.#end();
    reject(error);
  }

  /** Starts a timer. Node's timers are limited to 24.8 days, so a longer time takes several. */
  #startTimer(): void {
    const waitMs = Math.min(this.#leftMs, MAX_TIMER_MS);
    this.#leftMs -= waitMs;
    this.#timer = setTimeout(OpenCall.#timePassed, waitMs, this).unref();
  }

  static #timePassed(this: void, call: OpenCall): void {
    if (call.#leftMs > 0) call.#startTimer();
    else call.#timedOut();
  }

  #timedOut(): void {
    this.#owner.abandon(this.id, 'timeout');
    this.fail(timedOut({ timeoutMs: this.#timeoutMs }));
  }

  #aborted(): void {
    if (this.#signal?.reason === 'interrupt') {
      this.#owner.cancel(this.id, 'interrupt');
      return;
    }
    this.#owner.abandon(this.id, 'caller');
    this.fail(unavailable('the caller went away'));
  }

  /**
   * Ends the call and clears all references.
   * Long-lived tables that change with every call keep old entries until the next full garbage collection.
   * Without this, such an entry would keep the call, its request and its answer in memory.
   */
  #end(): void {
    this.answered();
    this.#signal = undefined;
    this.onChunk = undefined;
    this.#resolve = NOBODY;
    this.#reject = NOBODY;
  }
}

const NOBODY = (): void => undefined;
