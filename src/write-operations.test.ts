import { expect, test } from 'vitest';
import type { Database, WriteTransaction } from './storage/database.ts';
import { WRITE_OPERATIONS } from './write-operations.ts';

/** Names of the write operations that could be called with a database: straight, past the thread that writes. */
type CalledStraight = {
  [Name in keyof typeof WRITE_OPERATIONS]: Database extends Parameters<(typeof WRITE_OPERATIONS)[Name]>[0]
    ? Name
    : never;
}[keyof typeof WRITE_OPERATIONS];
type TakesTransaction = {
  [Name in keyof typeof WRITE_OPERATIONS]: WriteTransaction extends Parameters<(typeof WRITE_OPERATIONS)[Name]>[0]
    ? true
    : Name;
}[keyof typeof WRITE_OPERATIONS];

test('a durable write has one way to the disk: a write operation takes a transaction, which only the thread that writes has', () => {
  // The compiler is what checks it: each line fails as soon as one write operation takes a database too.
  const calledStraight: CalledStraight[] = [] satisfies never[];
  const noneLeft: CalledStraight extends never ? true : CalledStraight = true;
  const all: TakesTransaction = true;
  expect({ calledStraight, noneLeft, all }).toEqual({ calledStraight: [], noneLeft: true, all: true });
  expect(Object.keys(WRITE_OPERATIONS).length).toBeGreaterThan(0);
});
