import { randomBytes } from 'node:crypto';
import {
  type Span as OtelSpan,
  ProxyTracerProvider,
  ROOT_CONTEXT,
  SpanKind,
  SpanStatusCode,
  trace,
} from '@opentelemetry/api';
import { messageOf } from '../core/error.ts';

/** The fields of a W3C `traceparent`, version 00. */
export interface TraceParent {
  /** 32 hex digits. */
  readonly traceId: string;
  /** 16 hex digits. */
  readonly spanId: string;
  readonly flags: number;
}

/** Later versions may carry more behind another dash. */
const TRACEPARENT = /^([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-.*)?$/;
const ALL_ZEROS = /^0+$/;

/** Null when it is absent or not valid: the specification says to start a new trace then. */
export function parseTraceparent(header: string | undefined): TraceParent | null {
  const match = header === undefined ? null : TRACEPARENT.exec(header);
  if (match === null) return null;
  const [, version, traceId = '', spanId = '', flags = '', rest] = match;
  if (version === 'ff' || (version === '00' && rest !== undefined)) return null;
  if (ALL_ZEROS.test(traceId) || ALL_ZEROS.test(spanId)) return null;
  return { traceId, spanId, flags: Number.parseInt(flags, 16) };
}

export function formatTraceparent({ traceId, spanId, flags }: TraceParent): string {
  return `00-${traceId}-${spanId}-${flags.toString(16).padStart(2, '0')}`;
}

/** The caller's trace with a span id of ours, or a new sampled trace when there is none. */
export function continueTrace(header: string | undefined): TraceParent {
  const parent = parseTraceparent(header);
  if (parent === null) return { traceId: randomHex(16), spanId: randomHex(8), flags: 1 };
  return { traceId: parent.traceId, spanId: randomHex(8), flags: parent.flags };
}

/** Work that an OpenTelemetry SDK records. */
export interface Span {
  /** What is passed on, so that spans below this one hang on it. */
  readonly traceparent: string;
  set(name: string, value: string | number | boolean): void;
  /** With an error the span is marked as failed. */
  end(error?: unknown): void;
}

export interface Tracer {
  /** Null when nobody records: then there is nothing to do, and nothing was done. */
  start(name: string, kind: 'server' | 'client' | 'internal', traceparent: string | undefined): Span | null;
}

/**
 * Spans for the OpenTelemetry SDK that the operator has registered before this is called (`node --import …`), or a
 * tracer that does nothing. The service brings no SDK of its own.
 */
export function createTracer(version: string): Tracer {
  const provider = trace.getTracerProvider();
  const tracer =
    provider instanceof ProxyTracerProvider
      ? provider.getDelegateTracer('rookery', version)
      : provider.getTracer('rookery', version);
  if (tracer === undefined) return { start: () => null };
  return {
    start(name, kind, traceparent) {
      const parent = parseTraceparent(traceparent);
      const context =
        parent === null
          ? ROOT_CONTEXT
          : trace.setSpanContext(ROOT_CONTEXT, {
              traceId: parent.traceId,
              spanId: parent.spanId,
              traceFlags: parent.flags,
              isRemote: true,
            });
      return wrap(tracer.startSpan(name, { kind: KINDS[kind] }, context));
    },
  };
}

const KINDS = { server: SpanKind.SERVER, client: SpanKind.CLIENT, internal: SpanKind.INTERNAL } as const;

function wrap(span: OtelSpan): Span {
  const { traceId, spanId, traceFlags } = span.spanContext();
  return {
    traceparent: formatTraceparent({ traceId, spanId, flags: traceFlags }),
    set: (name, value) => void span.setAttribute(name, value),
    end(error) {
      if (error !== undefined) {
        span.setStatus({ code: SpanStatusCode.ERROR, message: messageOf(error) });
      }
      span.end();
    },
  };
}

/** Asking the system for random bytes costs more than the id: they come by the page. */
const pool = { bytes: Buffer.alloc(0), at: 0 };
const POOL_BYTES = 4096;

function randomHex(byteCount: number): string {
  if (pool.at + byteCount > pool.bytes.length) {
    pool.bytes = randomBytes(POOL_BYTES);
    pool.at = 0;
  }
  pool.at += byteCount;
  const hex = pool.bytes.toString('hex', pool.at - byteCount, pool.at);
  return ALL_ZEROS.test(hex) ? randomHex(byteCount) : hex;
}
