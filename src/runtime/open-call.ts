import { unavailable } from '../core/error.ts';
import { goOn, startTimer, stopTimer, type Timed } from '../lib/lazy-timer.ts';
import { MAX_TIMER_MS } from '../lib/long-timer.ts';
import { type Call, type CallOutcome, timedOut } from './call.ts';
import { ProtocolError } from './decoder.ts';
import type { Cancel } from './protocol.ts';

/** The part of its stream's credit that a CHUNK takes. An empty one is not free, or there would be no bound of how many wait. */
export function creditOf(payloadBytes: number): number {
  return Math.max(1, payloadBytes);
}

/** The channel of an open call, as the call sees it. */
interface CallOwner {
  /** Tells the runtime, and goes on waiting for its answer. */
  cancel(callId: number, reason: Cancel['reason']): void;
  /** Nobody waits for its answer any more. */
  abandon(callId: number, reason: Cancel['reason']): void;
}

/** A call that was sent and not answered yet: its time, its caller, and whoever waits for it. */
export class OpenCall implements Timed {
  readonly id: number;
  onChunk: Call['onChunk'];
  /** Undefined also once it was answered. */
  onLateEnd: Call['onLateEnd'] | undefined;
  /** CHUNK payload that it may send yet; null when it is no stream. */
  #creditBytes: number | null;
  /** What its reader has taken is granted in pieces of so many bytes at least: less than it began with, so that it never waits for the rest of one. */
  readonly #grantBytes: number;
  /** Taken, and not granted yet. */
  #owedBytes = 0;
  #signal: Call['signal'];
  readonly #timeoutMs: number;
  readonly #owner: CallOwner;
  #resolve: (outcome: CallOutcome) => void;
  #reject: (error: Error) => void;
  #onAbort: (() => void) | undefined;
  timer: NodeJS.Timeout | undefined;
  dueMs = 0;
  before: Timed | undefined;
  after: Timed | undefined;
  /** Behind the timer that runs. */
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
    const leftMs = timeoutMs - waitedMs;
    const waitMs = Math.min(leftMs, MAX_TIMER_MS);
    this.#leftMs = leftMs - waitMs;
    startTimer(this, waitMs);
    if (signal) {
      this.#onAbort = () => this.#aborted();
      signal.addEventListener('abort', this.#onAbort);
    }
  }

  /** Its reader has taken `bytes`. How many it may send more, which it has to be told; 0: they are kept until there are more. */
  grantCredit(bytes: number): number {
    if (this.#creditBytes === null) return 0;
    this.#owedBytes += bytes;
    if (this.#owedBytes < this.#grantBytes) return 0;
    const granted = this.#owedBytes;
    this.#owedBytes = 0;
    this.#creditBytes += granted;
    return granted;
  }

  /** A CHUNK comes. Throws when it may not: one may overdraw what is left, the next has to wait. */
  spendCredit(payloadBytes: number): void {
    if (this.#creditBytes === null) throw new ProtocolError('CHUNK of a call that is no stream');
    if (this.#creditBytes <= 0) throw new ProtocolError('CHUNK beyond the credit of its stream');
    this.#creditBytes -= creditOf(payloadBytes);
  }

  settle(outcome: CallOutcome): void {
    const resolve = this.#resolve;
    this.#end();
    this.onLateEnd = undefined;
    resolve(outcome);
  }

  fail(error: Error): void {
    const reject = this.#reject;
    this.#end();
    reject(error);
  }

  timePassed(): void {
    if (this.#leftMs > 0) {
      const waitMs = Math.min(this.#leftMs, MAX_TIMER_MS);
      this.#leftMs -= waitMs;
      goOn(this, waitMs);
      return;
    }
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
   * Lets go of everything too. Tables that live long and change with every call keep what was in them when they were last made anew, until
   * the next collection of the whole heap: this call, and with it all that it leads to, the request and its answer.
   */
  #end(): void {
    stopTimer(this);
    if (this.#onAbort) this.#signal?.removeEventListener('abort', this.#onAbort);
    this.#onAbort = undefined;
    this.#signal = undefined;
    this.onChunk = undefined;
    this.#resolve = NOBODY;
    this.#reject = NOBODY;
  }
}

const NOBODY = (): void => undefined;
