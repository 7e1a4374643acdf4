import { expect, test } from 'vitest';
import { linkedTo, onAbort, sharedController } from './linked-signal.ts';

test('linkedTo aborts its controller with the reason of the parent, also of an aborted parent', () => {
  const parent = new AbortController();
  const { controller } = linkedTo(parent.signal);
  expect(controller.signal.aborted).toBe(false);
  parent.abort('why');
  expect(controller.signal.reason).toBe('why');
  expect(linkedTo(parent.signal).controller.signal.reason).toBe('why');
});

test('a linked controller does not abort its parent, and ignores the parent once unlinked', () => {
  const parent = new AbortController();
  const own = linkedTo(parent.signal);
  own.controller.abort('own');
  expect(parent.signal.aborted).toBe(false);
  const { controller, unlink } = linkedTo(parent.signal);
  unlink();
  parent.abort();
  expect(controller.signal.aborted).toBe(false);
});

test('onAbort runs its action once, at once on an aborted signal, and never after cancellation', () => {
  const controller = new AbortController();
  const done: string[] = [];
  onAbort(controller.signal, () => done.push('first'));
  const letGo = onAbort(controller.signal, () => done.push('second'));
  letGo();
  letGo();
  expect(done).toEqual([]);
  controller.abort();
  expect(done).toEqual(['first']);
  onAbort(controller.signal, () => done.push('late'))();
  expect(done).toEqual(['first', 'late']);
});

test('a shared controller accepts 50 listeners without a warning from Node', async () => {
  const warnings: string[] = [];
  const note = (warning: Error) => void warnings.push(warning.message);
  process.on('warning', note);
  const { signal } = sharedController();
  for (let count = 0; count < 50; count += 1) onAbort(signal, () => undefined);
  await new Promise(resolve => setImmediate(resolve));
  process.off('warning', note);
  expect(warnings).toEqual([]);
});
