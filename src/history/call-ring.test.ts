import { describe, expect, test } from 'vitest';
import { finishedCall } from '../../test/history/finished-call.ts';
import { CallRing } from './call-ring.ts';
import { RecordedTargets } from './recorded-targets.ts';

function ringOf(options: Partial<ConstructorParameters<typeof CallRing>[0]> = {}) {
  const clock = { ms: 0 };
  const filled = { times: 0 };
  const ring = new CallRing({
    rules: { slowMs: 100, perSecond: 2 },
    ...{ maxCalls: 3, maxBytes: 1_000_000, bodyBytes: 16 },
    filled: () => void filled.times++,
    now: () => clock.ms,
    ...options,
  });
  return { ring, clock, filled };
}

describe('CallRing', () => {
  test('wants every failed and slow call, and the first others of each second', () => {
    const { ring, clock } = ringOf();
    const wanted = () => [ring.wants('a', true, 1), ring.wants('a', false, 1), ring.wants('a', true, 100)];
    expect([wanted(), wanted(), wanted()]).toEqual([
      [true, true, true],
      [true, true, true],
      [false, true, true],
    ]);
    expect(ring.wants('b', true, 1)).toBe(true);
    clock.ms = 1000;
    expect(ring.wants('a', true, 1)).toBe(true);
  });

  test('wants no ordinary call with a rate of 0', () => {
    const { ring } = ringOf({ rules: { slowMs: 100, perSecond: 0 } });
    expect([ring.wants('a', true, 1), ring.wants('a', true, 1), ring.wants('a', false, 1)]).toEqual([
      false,
      false,
      true,
    ]);
  });

  test('bounds the failed calls of one target per second', () => {
    const { ring } = ringOf();
    let wanted = 0;
    for (let calls = 0; calls < 5000; calls++) if (ring.wants('a', false, 1)) wanted += 1;
    expect(wanted).toBe(1000);
    expect(ring.wants('b', false, 1)).toBe(true);
  });

  test('wants and marks every call of a recorded agent or function until its end', () => {
    const { ring } = ringOf({ rules: { slowMs: 100, perSecond: 0 } });
    const endsAtMs = Date.now() + 60_000;
    const urn = (name: string, version: string) => `sn:cn:yrk:acme:function:0@demo@${name}:${version}`;
    ring.record(
      new RecordedTargets([
        { tenant: 'acme', kind: 'agent', target: 'a', endsAtMs },
        { tenant: 'acme', kind: 'agent', target: 'over', endsAtMs: 0 },
        { tenant: 'acme', kind: 'function', target: '0@demo@hello', endsAtMs },
      ]),
    );
    const wanted = (target: string) => ring.wants(target, true, 1);
    expect(['a', 'a', urn('hello', '$latest'), urn('hello', 'v1')].map(wanted)).toEqual([true, true, true, true]);
    expect(['b', 'over', urn('other', 'v1'), urn('hello', 'v1').replace('acme', 'b')].map(wanted)).not.toContain(true);
    for (const target of ['a', 'b']) ring.push(finishedCall({ target, input: Buffer.alloc(20_000) }));
    const [recorded, other] = ring.shiftMany(2);
    expect(recorded).toMatchObject({ isRecorded: true, input: { length: 20_000 } });
    expect(other).toMatchObject({ wholeBytes: { input: 20_000 }, input: { length: 17 } });
    ring.record(null);
    expect(wanted('a')).toBe(false);
  });

  test('drops the oldest calls when it is full, and counts them', () => {
    const { ring, filled } = ringOf();
    for (const id of ['1', '2', '3', '4', '5']) ring.push(finishedCall({ id }));
    expect(ring.shiftMany(2).map(({ id }) => id)).toEqual(['3', '4']);
    ring.push(finishedCall({ id: '6' }));
    expect(ring.shiftMany(9).map(({ id }) => id)).toEqual(['5', '6']);
    expect([ring.drainDropped(), ring.drainDropped(), ring.size, filled.times]).toEqual([2, 0, 0, 1]);
    ring.push(finishedCall({ id: '7' }));
    expect(filled.times).toBe(2);
  });

  test('drops the oldest calls when their bodies are too large together', () => {
    const { ring } = ringOf({ maxBytes: 1000 });
    for (const id of ['1', '2', '3']) ring.push(finishedCall({ id, input: Buffer.alloc(400) }));
    expect(ring.shiftMany(9).map(({ id }) => id)).toEqual(['2', '3']);
    expect(ring.drainDropped()).toBe(1);
  });

  test('keeps the beginnings of large bodies, and their lengths', () => {
    const { ring } = ringOf();
    ring.push(finishedCall({ input: Buffer.alloc(100_000, 'a'), output: Buffer.from('{}') }));
    const [call] = ring.shiftMany(1);
    expect(call?.input.toString()).toBe('a'.repeat(17));
    expect(call?.input.buffer.byteLength).toBeLessThan(100_000);
    expect(call?.wholeBytes).toEqual({ input: 100_000, output: 2 });
  });
});
