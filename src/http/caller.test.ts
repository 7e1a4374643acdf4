import { expect, test } from 'vitest';
import { CallerSignal } from './caller.ts';

test('an abort tells each listener once, also one that was added twice, and none that was removed', () => {
  const signal = new CallerSignal();
  const told: string[] = [];
  const [a, b, c] = ['a', 'b', 'c'].map(name => () => void told.push(name));
  for (const listener of [a, b, b, c]) signal.addEventListener('abort', listener as () => void);
  signal.removeEventListener('abort', b as () => void);
  signal.removeEventListener('abort', b as () => void);
  signal.abort();
  signal.abort();
  expect(told).toEqual(['a', 'c']);
  expect(signal.aborted).toBe(true);
});

test('a listener that removes others while all are told takes it from nobody', () => {
  const signal = new CallerSignal();
  const told: string[] = [];
  const last = () => void told.push('last');
  signal.addEventListener('abort', () => {
    told.push('first');
    signal.removeEventListener('abort', last);
  });
  signal.addEventListener('abort', last);
  signal.abort();
  expect(told).toEqual(['first', 'last']);
});
