import { describe, expect, test } from 'vitest';
import { continueTrace, formatTraceparent, parseTraceparent } from './traceparent.ts';

const TRACE = '0af7651916cd43dd8448eb211c80319c';
const SPAN = 'b7ad6b7169203331';

describe('traceparent', () => {
  test('parseTraceparent and formatTraceparent read and write a header', () => {
    const header = `00-${TRACE}-${SPAN}-01`;
    const parsed = parseTraceparent(header);
    expect(parsed).toEqual({ traceId: TRACE, spanId: SPAN, flags: 1 });
    expect(parsed && formatTraceparent(parsed)).toBe(header);
  });

  test('parseTraceparent accepts further fields in a later version', () => {
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
  ])('parseTraceparent rejects %s', header => {
    expect(parseTraceparent(header)).toBeNull();
  });

  test('continueTrace keeps the trace id and flags of the caller and creates a span id', () => {
    const ours = continueTrace(`00-${TRACE}-${SPAN}-00`, 'x');
    expect(ours).toMatchObject({ traceId: TRACE, flags: 0 });
    expect(ours.spanId).toMatch(/^[0-9a-f]{16}$/);
    expect(ours.spanId).not.toBe(SPAN);
  });

  test('continueTrace without a header creates a new trace each time', () => {
    const all = Array.from({ length: 1000 }, () => formatTraceparent(continueTrace(undefined, 'x')));
    expect(new Set(all).size).toBe(1000);
    for (const one of all) expect(parseTraceparent(one)).not.toBeNull();
  });

  test('continueTrace without a header takes the trace id from a request id that is a UUID', () => {
    const id = '0af76519-16cd-43dd-8448-eb211c80319c';
    expect(continueTrace(undefined, id)).toMatchObject({ traceId: TRACE, flags: 1 });
    expect(continueTrace('nonsense', id).traceId).toBe(TRACE);
    for (const other of ['', 'order 7', '00000000-0000-0000-0000-000000000000', id.toUpperCase(), `${id}0`]) {
      expect(continueTrace(undefined, other).traceId).toMatch(/^(?!0{32})[0-9a-f]{32}$/);
      expect(continueTrace(undefined, other).traceId).not.toBe(TRACE);
    }
  });
});
