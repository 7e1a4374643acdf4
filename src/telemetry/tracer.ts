import {
  type Span as OtelSpan,
  ProxyTracerProvider,
  ROOT_CONTEXT,
  SpanKind,
  SpanStatusCode,
  TraceFlags,
  type TracerProvider,
  trace,
} from '@opentelemetry/api';
import type { CallSpan, CallSpans } from '../core/call-spans.ts';
import { messageOf } from '../core/error.ts';
import { formatTraceparent, newTraceId, parseTraceparent, randomHex } from './traceparent.ts';

/** Work that an OpenTelemetry SDK records. */
export interface Span {
  /** The header to pass on: it makes later spans children of this one. */
  readonly traceparent: string;
  set(name: string, value: string | number | boolean): void;
  /** Adds a part that has already ended, with its times; also after the end of the span. */
  part(part: SpanPart): void;
  /** Ends the span. With an error the span is marked as failed. */
  end(error?: unknown): void;
}

/** A completed part of a span. Times are milliseconds since the epoch. */
export interface SpanPart {
  readonly name: string;
  readonly startMs: number;
  readonly endMs: number;
  readonly parts?: readonly SpanPart[];
  readonly attributes?: Readonly<Record<string, string | number | boolean>>;
  /** Present when the part has failed. */
  readonly error?: string;
  /** Id that the runtime gives to the handler as its span. An SDK of the operator may choose another one. */
  readonly spanId?: string | undefined;
  /** Spans of the handler's code, unchecked. `withCallSpans` turns them into parts. */
  readonly sent?: SentSpans | undefined;
}

/** JSON of a SPANS frame, and the tenant whose secrets it may contain. */
export interface SentSpans {
  readonly tenant: string;
  readonly json: Buffer;
}

/** Returns the spans of a handler's code with hidden values replaced. */
export type SpanReader = (sent: SentSpans) => Promise<CallSpans>;

export interface Tracer {
  /**
   * Starts a span; null when no SDK records. `traceparent` is the client's header.
   * Without a valid header a new trace begins, with the request's id if that is usable as a trace id.
   */
  start(
    name: string,
    kind: 'server' | 'client' | 'internal',
    traceparent: string | undefined,
    requestTraceId: string,
  ): Span | null;
}

export const NO_TRACER: Tracer = { start: () => null };

/** Generates ids of traces and spans for an SDK. */
export class TraceIds {
  /** Id of the next trace that begins; null: random. */
  next: string | null = null;

  readonly generateTraceId = (): string => this.next ?? randomHex(16);
  /** Id of the next span; null: random. */
  nextSpan: string | null = null;

  readonly generateSpanId = (): string => this.nextSpan ?? randomHex(8);
}

/**
 * Returns a tracer for the SDK that the operator has registered before (`node --import …`); undefined: there
 * is none.
 */
export function registeredTracer(version: string): Tracer | undefined {
  const provider = trace.getTracerProvider();
  const isEmpty = provider instanceof ProxyTracerProvider && provider.getDelegateTracer(NAME, version) === undefined;
  return isEmpty ? undefined : createTracer(provider, version);
}

/**
 * Creates a tracer. `ids`: the generator with which the provider was created, when it is the service's own.
 */
export function createTracer(provider: TracerProvider, version: string, ids = new TraceIds()): Tracer {
  const tracer = provider.getTracer(NAME, version);
  const addPart = (parent: OtelSpan, { name, startMs, endMs, parts, attributes, error, spanId }: SpanPart): void => {
    const context = trace.setSpan(ROOT_CONTEXT, parent);
    // `startSpan` reads `ids.nextSpan` synchronously, so no other span can use it.
    ids.nextSpan = spanId ?? null;
    const options = { kind: SpanKind.INTERNAL, startTime: startMs, ...(attributes !== undefined && { attributes }) };
    const span = tracer.startSpan(name, options, context);
    ids.nextSpan = null;
    if (error !== undefined) span.setStatus({ code: SpanStatusCode.ERROR, message: error });
    for (const part of parts ?? []) addPart(span, part);
    span.end(endMs);
  };
  return {
    start(name, kind, traceparent, requestTraceId) {
      const parent = parseTraceparent(traceparent);
      if (parent === null) {
        // `startSpan` reads `ids.next` synchronously, so no other span can use it.
        ids.next = newTraceId(requestTraceId);
        return wrap(tracer.startSpan(name, { kind: KINDS[kind] }, ROOT_CONTEXT), addPart);
      }
      const { traceId, spanId, flags } = parent;
      const context = trace.setSpanContext(ROOT_CONTEXT, { traceId, spanId, traceFlags: flags, isRemote: true });
      return wrap(tracer.startSpan(name, { kind: KINDS[kind] }, context), addPart);
    },
  };
}

/** Returns a tracer whose spans turn the spans of handlers into parts, as `read` returns them. */
export function withCallSpans(tracer: Tracer, read: SpanReader): Tracer {
  return {
    start(...values) {
      const span = tracer.start(...values);
      if (span === null) return null;
      return {
        ...span,
        part(part) {
          const { sent, ...whole } = part;
          if (sent === undefined) span.part(part);
          else {
            void read(sent).then(
              ({ spans }) => span.part({ ...whole, parts: partsBelow(spans, null, part.startMs) }),
              () => span.part(whole),
            );
          }
        },
      };
    },
  };
}

function partsBelow(spans: readonly CallSpan[], parent: number | null, runStartMs: number): readonly SpanPart[] {
  const children = [...spans.entries()].filter(([, span]) => span.parent === parent);
  return children.map(([index, { name, startMicros, micros, attributes, error }]) => ({
    name,
    startMs: runStartMs + startMicros / 1000,
    endMs: runStartMs + (startMicros + micros) / 1000,
    ...(attributes !== undefined && { attributes }),
    ...(error !== undefined && { error }),
    // A parent is before its children, so no span is below itself.
    parts: partsBelow(spans, index, runStartMs),
  }));
}

/** Matches a request id. Runtimes give handlers a span id that consists of its first 16 digits. */
const REQUEST = /^([0-9a-f]{8})-([0-9a-f]{4})-([0-9a-f]{4})-/;

/** Returns the part of a call in which its handler ran. It has the span id that the handler sees. */
export function runPart(
  { runMs, endMs, requestId }: { readonly runMs: number; readonly endMs: number; readonly requestId: string },
  sent: SentSpans | undefined,
): SpanPart {
  const spanId = REQUEST.exec(requestId)?.slice(1).join('');
  return { name: 'run', startMs: endMs - runMs, endMs, spanId, sent };
}

const NAME = 'rookery';
const KINDS = { server: SpanKind.SERVER, client: SpanKind.CLIENT, internal: SpanKind.INTERNAL } as const;

function wrap(span: OtelSpan, addPart: (parent: OtelSpan, part: SpanPart) => void): Span {
  const { traceId, spanId, traceFlags } = span.spanContext();
  return {
    traceparent: formatTraceparent({ traceId, spanId, flags: traceFlags }),
    set: (name, value) => void span.setAttribute(name, value),
    part(part) {
      // A part may follow the end of its span.
      if ((traceFlags & TraceFlags.SAMPLED) !== 0) addPart(span, part);
    },
    end(error) {
      if (error !== undefined) {
        span.setStatus({ code: SpanStatusCode.ERROR, message: messageOf(error) });
      }
      span.end();
    },
  };
}
