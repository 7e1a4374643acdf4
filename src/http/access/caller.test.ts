import { expect, test } from 'vitest';
import { CallerSignal } from './caller.ts';

test('abort notifies each added listener once, even when added twice, and no removed listener', () => {
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

test('abort still notifies a listener that another listener removes during the notification', () => {
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
