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
  /** The header that is passed on: spans below this one hang on it. */
  readonly traceparent: string;
  set(name: string, value: string | number | boolean): void;
  /** Something that happened within it and is over; its time is known only now. */
  part(part: SpanPart): void;
  /** With an error the span is marked as failed. */
  end(error?: unknown): void;
}

/** Times are milliseconds since the epoch. */
export interface SpanPart {
  readonly name: string;
  readonly startMs: number;
  readonly endMs: number;
  readonly parts?: readonly SpanPart[];
}

export interface Tracer {
  /**
   * Null when nobody records: then there is nothing to do, and nothing was done. `traceparent` is the caller's; without a valid one a trace
   * begins, which has the id of the request where that can be one.
   */
  start(
    name: string,
    kind: 'server' | 'client' | 'internal',
    traceparent: string | undefined,
    requestTraceId: string,
  ): Span | null;
}

export const NO_TRACER: Tracer = { start: () => null };

/** Ids of traces and spans as an SDK asks for them. */
export class TraceIds {
  /** That of the next trace that begins; null: a random one. */
  next: string | null = null;

  readonly generateTraceId = (): string => this.next ?? randomHex(16);
  readonly generateSpanId = (): string => randomHex(8);
}

/** Spans for the SDK that the operator has registered before this is called (`node --import …`); undefined: there is none. */
export function registeredTracer(version: string): Tracer | undefined {
  const provider = trace.getTracerProvider();
  const isEmpty = provider instanceof ProxyTracerProvider && provider.getDelegateTracer(NAME, version) === undefined;
  return isEmpty ? undefined : createTracer(provider, version);
}

/** `ids`: those that the provider was made with, when it is ours. */
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
        // Asked for within `startSpan`, and by nobody else meanwhile.
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
