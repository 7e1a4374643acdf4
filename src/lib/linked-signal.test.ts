import { expect, test } from 'vitest';
import { linkedTo, onAbort, sharedController } from './linked-signal.ts';

test('a linked controller aborts with its parent and its reason, at once when that is aborted already', () => {
  const parent = new AbortController();
  const { controller } = linkedTo(parent.signal);
  expect(controller.signal.aborted).toBe(false);
  parent.abort('why');
  expect(controller.signal.reason).toBe('why');
  expect(linkedTo(parent.signal).controller.signal.reason).toBe('why');
});

test('a linked controller aborts by itself, and no more with its parent once it is unlinked', () => {
  const parent = new AbortController();
  const own = linkedTo(parent.signal);
  own.controller.abort('own');
  expect(parent.signal.aborted).toBe(false);
  const { controller, unlink } = linkedTo(parent.signal);
  unlink();
  parent.abort();
  expect(controller.signal.aborted).toBe(false);
});

test('an action is done once when its signal aborts, at once when it has, and not when it was let go of', () => {
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

test('any number of things listen to a shared controller without a warning of Node', async () => {
  const warnings: string[] = [];
  const note = (warning: Error) => void warnings.push(warning.message);
  process.on('warning', note);
  const { signal } = sharedController();
  for (let count = 0; count < 50; count += 1) onAbort(signal, () => undefined);
  await new Promise(resolve => setImmediate(resolve));
  process.off('warning', note);
  expect(warnings).toEqual([]);
});
