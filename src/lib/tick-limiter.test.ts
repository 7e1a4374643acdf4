import { expect, test } from 'vitest';
import { TickLimiter } from './tick-limiter.ts';

test('TickLimiter lets a fixed number begin per event-loop turn, in order of arrival', async () => {
  const turns = new TickLimiter(2);
  const seen: string[] = [];
  const all = Array.from({ length: 5 }, (_, index) => turns.next().then(() => seen.push(String(index))));
  for (let turn = 0; turn < 3; turn++) {
    await new Promise(resolve => setImmediate(resolve));
    seen.push('|');
  }
  await Promise.all(all);
  expect(seen.join('').replaceAll(/\|+/g, '|')).toBe('01|23|4|');
});

test('TickLimiter delays a late caller by one event-loop turn only', async () => {
  const turns = new TickLimiter(1);
  for (let count = 0; count < 3; count++) await turns.next();
  expect(
    await Promise.race([turns.next().then(() => 'begun'), new Promise(resolve => setTimeout(resolve, 10_000))]),
  ).toBe('begun');
});
