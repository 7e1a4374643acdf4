import { expect, test } from 'vitest';
import { CallController } from './call-signal.ts';

test('abort notifies each added listener once, even when added twice, and no removed listener', () => {
  const signal = new CallController();
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
  const signal = new CallController();
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

test('interrupt notifies the listeners each time until abort, and abort has the last word', () => {
  const signal = new CallController();
  const seen: unknown[] = [];
  const first = () => {
    seen.push(signal.aborted ? 'aborted' : signal.reason);
    signal.removeEventListener('abort', first);
  };
  signal.addEventListener('abort', first);
  signal.addEventListener('abort', () => seen.push(signal.aborted ? 'aborted' : signal.reason));
  signal.interrupt();
  signal.interrupt();
  signal.abort('the client disconnected');
  signal.interrupt();
  expect(seen).toEqual(['interrupt', 'interrupt', 'interrupt', 'aborted']);
  expect(signal.reason).toBe('the client disconnected');
});
