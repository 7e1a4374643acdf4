import { expect, test } from 'vitest';
import { RookeryError, usageError } from './error.ts';
import { retryAfterMs, secondsUntil } from './retry.ts';

const answer = (status: number, more = {}) => new RookeryError('no', { status, ...more });
const broken = (code: string) => new RookeryError('no', { cause: Object.assign(new Error(code), { code }) });

test('a repeatable request is retried after a broken connection and after 429, 502, 503 and 504', () => {
  for (const error of [broken('ECONNRESET'), answer(429), answer(502), answer(503), answer(504)]) {
    expect(retryAfterMs(error, 1, true)).toBeGreaterThan(0);
  }
  for (const error of [answer(400), answer(404), answer(500), usageError('wrong'), new Error('aborted')]) {
    expect(retryAfterMs(error, 1, true)).toBeNull();
  }
});

test('a call is retried only when the service has certainly not started it', () => {
  const starting = new RookeryError('the server is starting: it does not yet know', { status: 503 });
  for (const error of [broken('ECONNREFUSED'), answer(429), answer(503, { code: 150431 }), starting]) {
    expect(retryAfterMs(error, 1, false)).toBeGreaterThan(0);
  }
  for (const error of [broken('ECONNRESET'), answer(502), answer(503, { code: 150503 }), answer(503), answer(504)]) {
    expect(retryAfterMs(error, 1, false)).toBeNull();
  }
});

test('the pause doubles up to 5 s, is at least Retry-After, and is null when Retry-After exceeds 60 s', () => {
  expect([1, 2, 3, 10].map(tried => retryAfterMs(answer(503), tried, true, 1))).toEqual([200, 400, 800, 5000]);
  expect(retryAfterMs(answer(503, { retryAfterSeconds: 3 }), 1, true, 0)).toBe(3000);
  expect(retryAfterMs(answer(503, { retryAfterSeconds: 3600 }), 1, true)).toBeNull();
});

test('secondsUntil reads Retry-After as seconds or as a date, and ignores other values', () => {
  const now = Date.parse('2026-11-26T22:00:00Z');
  const said = ['7', 'Thu, 26 Nov 2026 22:00:05 GMT', '0', 'Thu, 26 Nov 2026 21:00:00 GMT', 'soon', undefined];
  expect(said.map(header => secondsUntil(header, now))).toEqual([7, 5, undefined, undefined, undefined, undefined]);
});
