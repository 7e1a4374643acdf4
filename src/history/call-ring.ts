import type { CallSink, FinishedCall } from '../core/finished-call.ts';
import { LIMITS } from '../core/limits.ts';
import type { RecordedTargets } from './recorded-targets.ts';

/** Rules that decide which calls are kept. */
export interface CallRules {
  /** Duration from which a successful call is always kept. */
  readonly slowMs: number;
  /** Most other successful calls of one agent or function version that are kept per second. */
  readonly perSecond: number;
}

/**
 * Most failed and slow calls of one agent or function version that are kept per second. Otherwise one of them
 * could displace the calls of all others.
 */
const MAX_NOTABLE = 1000;
const WINDOW_MS = 1000;
/** Bytes of input or output from which a copy of the beginning is kept instead of a reference. */
const COPIED_BYTES = 8 * 1024;
/** Longer values of `traceparent` are not kept: those that handlers pass on have 55 characters. */
const MAX_TRACEPARENT_CHARS = 256;

export interface CallRingOptions {
  readonly rules: CallRules;
  readonly maxCalls: number;
  /** Bytes of inputs, outputs and spans. */
  readonly maxBytes: number;
  /** Bytes of an input or output that are needed. */
  readonly bodyBytes: number;
  /** Called when the first call enters an empty ring. */
  readonly filled: () => void;
  readonly now?: () => number;
}

/** Calls of one agent or function version in the current second. */
interface Window {
  plain: number;
  notable: number;
}

/**
 * Buffers calls in memory until they are written. Its work on the path of a call is a lookup and a store. A
 * full ring drops its oldest calls and counts them.
 */
export class CallRing implements CallSink {
  readonly #options: CallRingOptions;
  readonly #now: () => number;
  readonly #windows = new Map<string, Window>();
  #windowEndsMs = 0;
  readonly #calls: (FinishedCall | undefined)[];
  /** Position of the oldest call. */
  #at = 0;
  #size = 0;
  #bytes = 0;
  #dropped = 0;
  /** Null: no recordings, so that the path of a call has no lookup for them. */
  #recorded: RecordedTargets | null = null;

  constructor(options: CallRingOptions) {
    this.#options = options;
    this.#now = options.now ?? (() => performance.now());
    this.#calls = new Array<FinishedCall | undefined>(options.maxCalls);
  }

  get size(): number {
    return this.#size;
  }

  /** Keeps all calls of these targets; null: of none. */
  record(targets: RecordedTargets | null): void {
    this.#recorded = targets;
  }

  /** Returns the number of calls that a full ring has dropped since the last call of this method. */
  drainDropped(): number {
    const dropped = this.#dropped;
    this.#dropped = 0;
    return dropped;
  }

  wants(target: string, isOk: boolean, elapsedMs: number): boolean {
    if (this.#recorded?.has(target, Date.now()) === true) return true;
    const nowMs = this.#now();
    if (nowMs >= this.#windowEndsMs) {
      this.#windows.clear();
      this.#windowEndsMs = nowMs + WINDOW_MS;
    }
    const window = this.#windows.get(target);
    const { slowMs, perSecond } = this.#options.rules;
    const isNotable = !isOk || elapsedMs >= slowMs;
    if (window === undefined) {
      this.#windows.set(target, isNotable ? { plain: 0, notable: 1 } : { plain: 1, notable: 0 });
      return isNotable || perSecond > 0;
    }
    if (isNotable) return window.notable++ < MAX_NOTABLE;
    return window.plain++ < perSecond;
  }

  push(call: FinishedCall): void {
    const { maxCalls, maxBytes } = this.#options;
    const { traceparent = '' } = call;
    const short = traceparent.length > MAX_TRACEPARENT_CHARS ? { ...call, traceparent: undefined } : call;
    const isRecorded = this.#recorded?.has(call.target, Date.now()) === true;
    const kept = this.#withoutRest(isRecorded ? { ...short, isRecorded } : short);
    const bytes = bytesOf(kept);
    while (this.#size > 0 && (this.#size >= maxCalls || this.#bytes + bytes > maxBytes)) {
      this.#shift();
      this.#dropped += 1;
    }
    this.#calls[(this.#at + this.#size) % maxCalls] = kept;
    this.#size += 1;
    this.#bytes += bytes;
    if (this.#size === 1) this.#options.filled();
  }

  /** Removes and returns up to `count` of the oldest calls. */
  shiftMany(count: number): FinishedCall[] {
    const taken: FinishedCall[] = [];
    while (taken.length < count && this.#size > 0) taken.push(this.#shift());
    return taken;
  }

  #shift(): FinishedCall {
    const call = this.#calls[this.#at] as FinishedCall;
    this.#calls[this.#at] = undefined;
    this.#at = (this.#at + 1) % this.#options.maxCalls;
    this.#size -= 1;
    this.#bytes -= bytesOf(call);
    return call;
  }

  /** Returns the call with the beginnings of large bodies, so that the ring does not hold megabytes. */
  #withoutRest(call: FinishedCall): FinishedCall {
    const { input, output } = call;
    if (input.length <= COPIED_BYTES && (output === null || output.length <= COPIED_BYTES)) return call;
    const bodyBytes = keptBytesOf(call, this.#options.bodyBytes);
    const wholeBytes = { input: input.length, output: output?.length ?? 0 };
    return { ...call, wholeBytes, input: prefixOf(input, bodyBytes), output: output && prefixOf(output, bodyBytes) };
  }
}

/** Returns the most bytes of an input or output that are kept. A setting of 0 holds for all calls. */
export function keptBytesOf({ isRecorded = false }: FinishedCall, bodyBytes: number): number {
  return isRecorded && bodyBytes > 0 ? Math.max(bodyBytes, LIMITS.recordedBodyBytes) : bodyBytes;
}

function prefixOf(body: Buffer, bytes: number): Buffer {
  // One byte more shows that something is missing.
  return body.length <= bytes ? body : Buffer.from(body.subarray(0, bytes + 1));
}

/** Returns the bytes of a call's input, output and spans. */
export function bytesOf({ input, output, spans }: FinishedCall): number {
  return input.length + (output?.length ?? 0) + (spans?.length ?? 0);
}
