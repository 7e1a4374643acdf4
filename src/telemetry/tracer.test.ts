import { trace } from '@opentelemetry/api';
import { afterEach, describe, expect, test } from 'vitest';
import { continueTrace, createTracer, formatTraceparent, parseTraceparent } from './tracer.ts';

const TRACE = '0af7651916cd43dd8448eb211c80319c';
const SPAN = 'b7ad6b7169203331';

describe('traceparent', () => {
  test('is read and written', () => {
    const header = `00-${TRACE}-${SPAN}-01`;
    const parsed = parseTraceparent(header);
    expect(parsed).toEqual({ traceId: TRACE, spanId: SPAN, flags: 1 });
    expect(parsed && formatTraceparent(parsed)).toBe(header);
  });

  test('of a later version may carry more', () => {
    expect(parseTraceparent(`01-${TRACE}-${SPAN}-00-more`)?.traceId).toBe(TRACE);
  });

  test.each([
    undefined,
    '',
    'nonsense',
    `00-${TRACE}-${SPAN}-01-more`,
    `ff-${TRACE}-${SPAN}-01`,
    `00-${'0'.repeat(32)}-${SPAN}-01`,
    `00-${TRACE}-${'0'.repeat(16)}-01`,
    `00-${TRACE.toUpperCase()}-${SPAN}-01`,
    `00-${TRACE}-${SPAN}-1`,
  ])('%s is not valid', header => {
    expect(parseTraceparent(header)).toBeNull();
  });

  test('of a caller is continued with a span of ours and its flags', () => {
    const ours = continueTrace(`00-${TRACE}-${SPAN}-00`);
    expect(ours).toMatchObject({ traceId: TRACE, flags: 0 });
    expect(ours.spanId).toMatch(/^[0-9a-f]{16}$/);
    expect(ours.spanId).not.toBe(SPAN);
  });

  test('is new and different each time without one', () => {
    const all = Array.from({ length: 1000 }, () => formatTraceparent(continueTrace(undefined)));
    expect(new Set(all).size).toBe(1000);
    for (const one of all) expect(parseTraceparent(one)).not.toBeNull();
  });
});

describe('spans', () => {
  afterEach(() => trace.disable());

  test('without an SDK there are none', () => {
    expect(createTracer('1').start('x', 'server', undefined)).toBeNull();
  });

  test('with an SDK a span hangs on the trace of the caller and tells how it ended', () => {
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
    const span = createTracer('1').start('invoke', 'server', `00-${TRACE}-1111111111111111-01`);
    expect(span?.traceparent).toBe(`00-${TRACE}-${SPAN}-01`);
    span?.set('tenant', 't');
    span?.end(new Error('boom'));
    expect(seen).toEqual([
      { name: 'invoke', kind: 1, parent: TRACE, tenant: 't', status: { code: 2, message: 'boom' }, isEnded: true },
    ]);
  });
});
