import { OTLPTraceExporter } from '@opentelemetry/exporter-trace-otlp-proto';
import { detectResources, envDetector, resourceFromAttributes } from '@opentelemetry/resources';
import { BasicTracerProvider, BatchSpanProcessor, type SpanExporter } from '@opentelemetry/sdk-trace-base';
import type { Logger } from './logger.ts';
import { createTracer, TraceIds, type Tracer } from './tracer.ts';

export interface SpanExportOptions {
  readonly version: string;
  readonly nodeId: string;
  /** The whole URL. */
  readonly url: string;
  readonly log: Pick<Logger, 'info' | 'warn'>;
}

export interface SpanExport {
  readonly tracer: Tracer;
  /** Sends what waits. Never rejects. */
  close(): Promise<void>;
}

/**
 * Spans that are sent over OTLP (HTTP, protobuf), in batches. What waits to be sent has a bound, above which spans are dropped: neither a call
 * nor the service waits for a collector. The SDK itself reads the other variables of OpenTelemetry (headers, certificates, sampling).
 */
export function exportSpans({ version, nodeId, url, log }: SpanExportOptions): SpanExport {
  const ids = new TraceIds();
  const resource = resourceFromAttributes({
    'service.name': 'rookery',
    'service.version': version,
    'service.instance.id': nodeId,
  });
  const exporter = telling(new OTLPTraceExporter({ url }), new URL(url).origin, log);
  const provider = new BasicTracerProvider({
    idGenerator: ids,
    // What the environment says of the resource (OTEL_SERVICE_NAME, OTEL_RESOURCE_ATTRIBUTES) counts over ours.
    resource: resource.merge(detectResources({ detectors: [envDetector] })),
    spanProcessors: [new BatchSpanProcessor(exporter)],
  });
  return {
    tracer: createTracer(provider, version, ids),
    close: () => provider.shutdown().catch(() => undefined),
  };
}

/** Says once that spans do not arrive, and once that they do again. */
function telling(exporter: OTLPTraceExporter, origin: string, log: SpanExportOptions['log']): SpanExporter {
  let isFailing = false;
  return {
    export(spans, done) {
      exporter.export(spans, result => {
        const { error } = result;
        if (error !== undefined && !isFailing) log.warn({ origin, err: error }, 'spans could not be sent and are lost');
        if (error === undefined && isFailing) log.info({ origin }, 'spans are sent again');
        isFailing = error !== undefined;
        done(result);
      });
    },
    forceFlush: () => exporter.forceFlush(),
    shutdown: () => exporter.shutdown(),
  };
}
