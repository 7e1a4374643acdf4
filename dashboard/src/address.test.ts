import { expect, test } from 'vitest';
import { addressOf, withQuery } from './address.ts';

test.each([
  ['', [''], ''],
  ['#/', [''], ''],
  ['#/jobs/', ['jobs'], ''],
  ['#/jobs/a%2Fb%3Fc', ['jobs', 'a/b?c'], ''],
  ['#/agents/%zz', ['agents', '%zz'], ''],
  ['#/events?kind=failed&text=a%3Fb?c', ['events'], 'kind=failed&text=a%3Fb%3Fc'],
])('the address %j has the parts %j and the query “%s”', (hash, parts, query) => {
  const address = addressOf(hash);
  expect([address.parts, String(address.query)]).toEqual([parts, query]);
});

test('an address gets another query, or none', () => {
  expect(withQuery('#/events?kind=failed', new URLSearchParams({ text: 'a b' }))).toBe('#/events?text=a+b');
  expect(withQuery('#/events?kind=failed', new URLSearchParams())).toBe('#/events');
});
