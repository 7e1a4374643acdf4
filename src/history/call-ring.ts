import type { CallSink, FinishedCall } from '../core/finished-call.ts';

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
  /** Bytes of inputs and outputs. */
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

  constructor(options: CallRingOptions) {
    this.#options = options;
    this.#now = options.now ?? (() => performance.now());
    this.#calls = new Array<FinishedCall | undefined>(options.maxCalls);
  }

  get size(): number {
    return this.#size;
  }

  /** Returns the number of calls that a full ring has dropped since the last call of this method. */
  drainDropped(): number {
    const dropped = this.#dropped;
    this.#dropped = 0;
    return dropped;
  }

  wants(target: string, isOk: boolean, elapsedMs: number): boolean {
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
    const kept = this.#withoutRest(
      traceparent.length > MAX_TRACEPARENT_CHARS ? { ...call, traceparent: undefined } : call,
    );
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
    const wholeBytes = { input: input.length, output: output?.length ?? 0 };
    return { ...call, wholeBytes, input: this.#prefixOf(input), output: output && this.#prefixOf(output) };
  }

  #prefixOf(body: Buffer): Buffer {
    const { bodyBytes } = this.#options;
    // One byte more shows that something is missing.
    return body.length <= bodyBytes ? body : Buffer.from(body.subarray(0, bodyBytes + 1));
  }
}

function bytesOf({ input, output }: FinishedCall): number {
  return input.length + (output?.length ?? 0);
}
