import { expect, test } from 'vitest';
import { logOffsetMs, logRangeOf, rowAt, type WaterfallCall, waterfallOf } from './waterfall.ts';

const CALL: WaterfallCall = {
  kind: 'function',
  ...{ start_time: '2026-01-31T12:00:00.500Z', outcome: 'error', duration_ms: 100 },
  ...{ queue_ms: 5, place_ms: 0, start_ms: 20, load_ms: 15, run_ms: 50 },
  spans: [
    { name: 'fetch', parent: null, start_ms: 0, duration_ms: 30, outcome: 'ok', attributes: { url: 'x', n: 2 } },
    { name: 'save', parent: null, start_ms: 30, duration_ms: 20, outcome: 'error', error: 'no table' },
    { name: 'parse', parent: 0, start_ms: 10, duration_ms: 5, outcome: 'ok' },
  ],
};

test('a waterfall has the call, its stages in order, and the spans as a tree below run', () => {
  const rows = waterfallOf(CALL).map(({ name, depth, startMs, durationMs, isFailed, text }) => {
    return [name, depth, startMs, durationMs, isFailed, text];
  });
  expect(rows).toEqual([
    ['call', 0, 0, 100, true, ''],
    ['queue', 1, 0, 5, false, ''],
    ['start', 1, 5, 20, false, ''],
    ['load', 1, 25, 15, false, ''],
    ['run', 1, 40, 50, false, ''],
    ['fetch', 2, 40, 30, false, 'url=x n=2'],
    ['parse', 3, 50, 5, false, ''],
    ['save', 2, 70, 20, true, 'error: no table'],
    ['the rest', 1, 90, 10, false, ''],
  ]);
});

test('a call that did not run has a line for itself and for the time that it waited', () => {
  const rows = waterfallOf({ ...CALL, queue_ms: 0, start_ms: 0, load_ms: 0, run_ms: 0, spans: [] });
  expect(rows.map(({ name }) => name)).toEqual(['call', 'the rest']);
  expect(rowAt(rows, 5)).toBeNull();
});

test('a call of a service without spans has its stages', () => {
  const { spans: _, ...older } = CALL;
  expect(waterfallOf(older).map(({ name }) => name)).toEqual(['call', 'queue', 'start', 'load', 'run', 'the rest']);
});

test.each([
  [1, 'fetch'],
  [52, 'parse'],
  [60, 'fetch'],
  [80, 'save'],
  [500, 'save'],
])('a line of the log at %d ms belongs to %s', (ms, name) => {
  expect(rowAt(waterfallOf(CALL), ms)?.name).toBe(name);
});

test.each([
  ['2026-01-31T12:00:00.512Z INFO [t] hello', 12],
  ['time=2026-01-31T13:00:00.512+01:00 level=INFO msg=hello', 12],
  ['hello', null],
  ['2026-13-99T12:00:00.512Z broken', null],
])('the time of %j is %j ms after the start of the call', (line, ms) => {
  expect(logOffsetMs(line, CALL)).toBe(ms);
});

test('the range of the log begins with the run, for an agent up to 20 ms earlier, and ends 100 ms after the answer', () => {
  const until = '2026-01-31T12:00:00.700Z';
  expect(logRangeOf(CALL)).toEqual({ since: '2026-01-31T12:00:00.540Z', until });
  const agent: WaterfallCall = { ...CALL, kind: 'agent', queue_ms: 50, start_ms: 0, load_ms: 0 };
  expect(logRangeOf(agent)).toEqual({ since: '2026-01-31T12:00:00.530Z', until });
  expect(logRangeOf({ ...agent, queue_ms: 5 })).toEqual({ since: '2026-01-31T12:00:00.500Z', until });
});
