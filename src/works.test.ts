import { expect, test } from 'vitest';
import type { Database, WriteTransaction } from './storage/database.ts';
import { WORKS } from './works.ts';

/** Names of the works that could be called with a database: straight, past the thread that writes. */
type CalledStraight = {
  [Name in keyof typeof WORKS]: Database extends Parameters<(typeof WORKS)[Name]>[0] ? Name : never;
}[keyof typeof WORKS];
type TakesTransaction = {
  [Name in keyof typeof WORKS]: WriteTransaction extends Parameters<(typeof WORKS)[Name]>[0] ? true : Name;
}[keyof typeof WORKS];

test('a durable write has one way to the disk: a work takes a transaction, which only the thread that writes has', () => {
  // The compiler is what checks it: each line fails as soon as one work takes a database too.
  const calledStraight: CalledStraight[] = [] satisfies never[];
  const noneLeft: CalledStraight extends never ? true : CalledStraight = true;
  const all: TakesTransaction = true;
  expect({ calledStraight, noneLeft, all }).toEqual({ calledStraight: [], noneLeft: true, all: true });
  expect(Object.keys(WORKS).length).toBeGreaterThan(0);
});
