import {
  type Span as OtelSpan,
  ProxyTracerProvider,
  ROOT_CONTEXT,
  SpanKind,
  SpanStatusCode,
  type TracerProvider,
  trace,
} from '@opentelemetry/api';
import { messageOf } from '../core/error.ts';
import { formatTraceparent, newTraceId, parseTraceparent, randomHex } from './traceparent.ts';

/** Work that an OpenTelemetry SDK records. */
export interface Span {
  /** The header to pass on: it makes later spans children of this one. */
  readonly traceparent: string;
  set(name: string, value: string | number | boolean): void;
  /** Adds a part that has already ended, with its times. */
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
}

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
  readonly generateSpanId = (): string => randomHex(8);
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
  const addPart = (parent: OtelSpan, { name, startMs, endMs, parts }: SpanPart): void => {
    const context = trace.setSpan(ROOT_CONTEXT, parent);
    const span = tracer.startSpan(name, { kind: SpanKind.INTERNAL, startTime: startMs }, context);
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

const NAME = 'rookery';
const KINDS = { server: SpanKind.SERVER, client: SpanKind.CLIENT, internal: SpanKind.INTERNAL } as const;

function wrap(span: OtelSpan, addPart: (parent: OtelSpan, part: SpanPart) => void): Span {
  const { traceId, spanId, traceFlags } = span.spanContext();
  return {
    traceparent: formatTraceparent({ traceId, spanId, flags: traceFlags }),
    set: (name, value) => void span.setAttribute(name, value),
    part(part) {
      if (span.isRecording()) addPart(span, part);
    },
    end(error) {
      if (error !== undefined) {
        span.setStatus({ code: SpanStatusCode.ERROR, message: messageOf(error) });
      }
      span.end();
    },
  };
}
