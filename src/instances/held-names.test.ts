import { expect, test } from 'vitest';
import { HeldNames } from './held-names.ts';

const name = (text: string) => ({ tenant: 't', namespace: 'n', name: text });

/** One that knows of no agent of an earlier server. */
function complete(): HeldNames {
  const names = new HeldNames();
  names.complete([]);
  return names;
}

test('no name is free before those of an earlier server are known, and none that one of them has', () => {
  const names = new HeldNames();
  names.hold('1', name('a'));
  expect(names.isFree(name('b'))).toBe(false);
  names.complete([
    { id: '2', ...name('c') },
    { id: '1', ...name('a') },
  ]);
  expect(names.isFree(name('b'))).toBe(true);
  expect(names.isFree(name('a'))).toBe(false);
  expect(names.isFree(name('c'))).toBe(false);
  names.release('2');
  expect(names.isFree(name('c'))).toBe(true);
});

test('a name is of one tenant and one namespace', () => {
  const names = complete();
  names.hold('1', name('a'));
  expect(names.isFree({ ...name('a'), tenant: 'u' })).toBe(true);
  expect(names.isFree({ ...name('a'), namespace: 'm' })).toBe(true);
});

test('the end of an agent lets go of its name, and of no name that another one has by now', () => {
  const names = complete();
  names.hold('1', name('a'));
  names.hold('2', name('a'));
  names.release('1');
  expect(names.isFree(name('a'))).toBe(false);
  names.release('2');
  expect(names.isFree(name('a'))).toBe(true);
  names.release('2');
  names.release('unknown');
});

test('one whose write has failed keeps its name until it is known that it has no row', async () => {
  const names = complete();
  names.hold('1', name('a'));
  names.hold('2', name('b'));
  names.doubt('1');
  names.doubt('2');
  names.doubt('unknown');
  const asked: string[] = [];
  const hasRow = async (id: string) => {
    asked.push(id);
    return id === '2';
  };
  await names.settle(hasRow);
  expect(names.isFree(name('a'))).toBe(true);
  expect(names.isFree(name('b'))).toBe(false);
  await names.settle(hasRow);
  expect(asked).toEqual(['1', '2']);
});

test('who was refused for its idempotency key leaves nothing behind, and keeps a name that nobody can know to be free', () => {
  const names = complete();
  names.hold('1', name('a'));
  names.refuse('1');
  expect(names.isFree(name('a'))).toBe(true);
  const early = new HeldNames();
  early.hold('1', name('a'));
  early.refuse('1');
  early.complete([]);
  expect(early.isFree(name('a'))).toBe(false);
});

test('who did not get a name leaves it to the one that has it', () => {
  const names = complete();
  names.hold('1', name('a'));
  names.hold('2', name('a'));
  names.refuse('2');
  names.release('2');
  expect(names.isFree(name('a'))).toBe(false);
  names.release('1');
  expect(names.isFree(name('a'))).toBe(true);
});
