import { expect, test } from 'vitest';
import { HeldNames } from './held-names.ts';

const name = (text: string) => ({ tenant: 't', namespace: 'n', name: text });

/** Names without any recovered agent. */
function complete(): HeldNames {
  const names = new HeldNames();
  names.complete([]);
  return names;
}

test('a name counts as taken until the stored names are loaded, and while an agent has the name', () => {
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

test('a name is free in other tenants and namespaces when an agent holds the name', () => {
  const names = complete();
  names.hold('1', name('a'));
  expect(names.isFree({ ...name('a'), tenant: 'u' })).toBe(true);
  expect(names.isFree({ ...name('a'), namespace: 'm' })).toBe(true);
});

test('release frees the name of an agent unless another agent holds the same name', () => {
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

test('an agent whose write failed keeps its name until a lookup finds no record', async () => {
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

test('a refused create frees its name when the stored names are loaded, and keeps the name before', () => {
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

test('a refused create leaves the name to the agent that holds the name', () => {
  const names = complete();
  names.hold('1', name('a'));
  names.hold('2', name('a'));
  names.refuse('2');
  names.release('2');
  expect(names.isFree(name('a'))).toBe(false);
  names.release('1');
  expect(names.isFree(name('a'))).toBe(true);
});
