import { OTLPTraceExporter } from '@opentelemetry/exporter-trace-otlp-proto';
import { detectResources, envDetector, resourceFromAttributes } from '@opentelemetry/resources';
import { BasicTracerProvider, BatchSpanProcessor, type SpanExporter } from '@opentelemetry/sdk-trace-base';
import type { Log } from '../lib/log.ts';
import { createTracer, TraceIds, type Tracer } from './tracer.ts';

export interface SpanExportOptions {
  readonly version: string;
  readonly nodeId: string;
  /** The whole URL of the collector. */
  readonly url: string;
  readonly log: Log;
}

export interface SpanExport {
  readonly tracer: Tracer;
  /** Sends waiting spans. Never rejects. */
  close(): Promise<void>;
}

/**
 * Sends spans over OTLP (HTTP, protobuf), in batches.
 * The queue is bounded, and spans above the bound are dropped: neither a call nor the service waits for a
 * collector. The SDK itself reads the other variables of OpenTelemetry (headers, certificates, sampling).
 */
export function exportSpans({ version, nodeId, url, log }: SpanExportOptions): SpanExport {
  const ids = new TraceIds();
  const resource = resourceFromAttributes({
    'service.name': 'rookery',
    'service.version': version,
    'service.instance.id': nodeId,
  });
  const exporter = withFailureLog(new OTLPTraceExporter({ url }), new URL(url).origin, log);
  const provider = new BasicTracerProvider({
    idGenerator: ids,
    // Resource attributes of the environment (OTEL_SERVICE_NAME, OTEL_RESOURCE_ATTRIBUTES) override these.
    resource: resource.merge(detectResources({ detectors: [envDetector] })),
    spanProcessors: [new BatchSpanProcessor(exporter)],
  });
  return {
    tracer: createTracer(provider, version, ids),
    close: () => provider.shutdown().catch(() => undefined),
  };
}

/** Logs once when spans cannot be sent, and once when they can again. */
function withFailureLog(exporter: OTLPTraceExporter, origin: string, log: SpanExportOptions['log']): SpanExporter {
  let isFailing = false;
  return {
    export(spans, done) {
      exporter.export(spans, result => {
        const { error } = result;
        if (error !== undefined && !isFailing) log.warn({ origin, err: error }, 'cannot send spans; they are lost');
        if (error === undefined && isFailing) log.info({ origin }, 'spans are sent again');
        isFailing = error !== undefined;
        done(result);
      });
    },
    forceFlush: () => exporter.forceFlush(),
    shutdown: () => exporter.shutdown(),
  };
}
