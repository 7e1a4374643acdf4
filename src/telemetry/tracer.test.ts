import { trace } from '@opentelemetry/api';
import { BasicTracerProvider, InMemorySpanExporter, SimpleSpanProcessor } from '@opentelemetry/sdk-trace-base';
import { afterEach, describe, expect, test, vi } from 'vitest';
import { createTracer, NO_TRACER, registeredTracer, runPart, TraceIds, withCallSpans } from './tracer.ts';

const TRACE = '0af7651916cd43dd8448eb211c80319c';
const TRACE_UUID = '0af76519-16cd-43dd-8448-eb211c80319c';
const SPAN = 'b7ad6b7169203331';

describe('spans', () => {
  afterEach(() => trace.disable());

  test('the tracer creates no spans without an SDK', () => {
    expect(registeredTracer('1')).toBeUndefined();
    expect(NO_TRACER.start('x', 'server', undefined, 'r')).toBeNull();
  });

  test('a span under an SDK joins the trace of the caller and records its error', () => {
    const seen: Record<string, unknown>[] = [];
    trace.setGlobalTracerProvider({
      getTracer: () => ({
        startSpan(name, options, context) {
          const parent = context === undefined ? undefined : trace.getSpanContext(context);
          const record: Record<string, unknown> = { name, kind: options?.kind, parent: parent?.traceId };
          seen.push(record);
          return {
            spanContext: () => ({ traceId: parent?.traceId ?? TRACE, spanId: SPAN, traceFlags: 1 }),
            setAttribute: (key: string, value: unknown) => Object.assign(record, { [key]: value }),
            setStatus: (status: object) => Object.assign(record, { status }),
            end: () => Object.assign(record, { isEnded: true }),
          } as never;
        },
        startActiveSpan: () => {
          throw new Error('not used');
        },
      }),
    });
    const span = registeredTracer('1')?.start('invoke', 'server', `00-${TRACE}-1111111111111111-01`, 'r');
    expect(span?.traceparent).toBe(`00-${TRACE}-${SPAN}-01`);
    span?.set('tenant', 't');
    span?.end(new Error('boom'));
    expect(seen).toEqual([
      { name: 'invoke', kind: 1, parent: TRACE, tenant: 't', status: { code: 2, message: 'boom' }, isEnded: true },
    ]);
  });

  test('span parts have the right parents and the reported times', async () => {
    const exporter = new InMemorySpanExporter();
    const ids = new TraceIds();
    const provider = new BasicTracerProvider({ idGenerator: ids, spanProcessors: [new SimpleSpanProcessor(exporter)] });
    const span = createTracer(provider, '1', ids).start('call', 'server', undefined, TRACE_UUID);
    // OpenTelemetry takes a time below the age of the process as relative to the start of the process.
    // Therefore the test uses a time of the clock.
    const startMs = 1_700_000_005_000;
    const endMs = startMs + 30;
    span?.part({ name: 'start', startMs, endMs, parts: [{ name: 'load', startMs: startMs + 10, endMs }] });
    span?.end();
    await provider.forceFlush();
    const [load, start, call] = exporter.getFinishedSpans();
    expect([call, start, load].map(each => each?.name)).toEqual(['call', 'start', 'load']);
    expect(call?.spanContext().traceId).toBe(TRACE);
    expect(call?.parentSpanContext).toBeUndefined();
    expect(start?.parentSpanContext?.spanId).toBe(call?.spanContext().spanId);
    expect(load?.parentSpanContext?.spanId).toBe(start?.spanContext().spanId);
    expect([load?.startTime, load?.duration]).toEqual([
      [1_700_000_005, 10_000_000],
      [0, 20_000_000],
    ]);
    for (const each of [load, start, call]) expect(each?.spanContext().traceId).toBe(TRACE);
  });

  test('a span of an unsampled trace is not exported, and the trace continues', async () => {
    const exporter = new InMemorySpanExporter();
    const provider = new BasicTracerProvider({ spanProcessors: [new SimpleSpanProcessor(exporter)] });
    const span = createTracer(provider, '1').start('call', 'server', `00-${TRACE}-${SPAN}-00`, 'r');
    expect(span?.traceparent).toMatch(new RegExp(`^00-${TRACE}-[0-9a-f]{16}-00$`));
    span?.part({ name: 'start', startMs: 1, endMs: 2 });
    span?.end();
    expect(exporter.getFinishedSpans()).toEqual([]);
  });

  test('the run of a call is exported with the id of the handler, after the end of its span, also if its spans cannot be read', async () => {
    const exporter = new InMemorySpanExporter();
    const ids = new TraceIds();
    const provider = new BasicTracerProvider({ idGenerator: ids, spanProcessors: [new SimpleSpanProcessor(exporter)] });
    const reads: Promise<never>[] = [];
    const tracer = withCallSpans(createTracer(provider, '1', ids), () => {
      const read = Promise.reject<never>(new Error('no database'));
      reads.push(read);
      return read;
    });
    const span = tracer.start('call', 'server', undefined, TRACE_UUID);
    const run = { runMs: 5, endMs: 1_700_000_005_000, requestId: '01234567-89ab-4cde-8f01-23456789abcd' };
    span?.part(runPart(run, { tenant: 't', json: Buffer.from('{"spans":[]}') }));
    span?.end();
    await Promise.allSettled(reads);
    await vi.waitFor(() => expect(exporter.getFinishedSpans().map(({ name }) => name)).toEqual(['call', 'run']));
    const [call, ran] = exporter.getFinishedSpans();
    expect(ran?.spanContext().spanId).toBe('0123456789ab4cde');
    expect(ran?.parentSpanContext?.spanId).toBe(call?.spanContext().spanId);
  });
});
