import { expect, test } from 'vitest';
import { ServerTiming } from './server-timing.ts';

const HEADER = /^[a-z]+;dur=\d+\.\d{3}(, [a-z]+;dur=\d+\.\d{3})*$/;

/** Returns the stages of a header with their milliseconds, in header order. */
function read(timing: ServerTiming): [string, number][] {
  return String(timing)
    .split(', ')
    .map(stage => stage.split(';dur='))
    .map(([name = '', ms]) => [name, Number(ms)]);
}

test('ServerTiming lists stages in the order of their ends, and their sum is at most the elapsed time', () => {
  const startMs = performance.now();
  const timing = new ServerTiming(startMs);
  timing.end('checks');
  timing.end('row');
  const tookMs = performance.now() - startMs;
  expect(String(timing)).toMatch(HEADER);
  const read_ = read(timing);
  expect(read_.map(([name]) => name)).toEqual(['checks', 'row']);
  expect(read_.reduce((sum, [, ms]) => sum + ms, 0)).toBeLessThanOrEqual(tookMs + 0.002);
});

test('the first stage includes the time since the given start', () => {
  const timing = new ServerTiming(performance.now() - 1000);
  timing.end('http');
  expect(read(timing)[0]?.[1]).toBeGreaterThanOrEqual(1000);
});

test.each<[string, Record<string, number>]>([
  ['more than the elapsed time', { mounts: 1e9, limits: 5 }],
  ['negative times', { mounts: -5 }],
  ['no times', {}],
])('ServerTiming.endWith limits each part to the elapsed time when the parts report %s', (_title, parts) => {
  const timing = new ServerTiming();
  timing.endWith('start', parts);
  const seen = read(timing);
  expect(seen.map(([name]) => name)).toEqual(['start', ...Object.keys(parts)]);
  for (const [, ms] of seen) {
    expect(ms).toBeGreaterThanOrEqual(0);
    expect(ms).toBeLessThan(60_000);
  }
});
