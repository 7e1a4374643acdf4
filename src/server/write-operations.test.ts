import { expect, test } from 'vitest';
import type { Database, WriteTransaction } from '../storage/database.ts';
import { WRITE_OPERATIONS } from './write-operations.ts';

/** Names of write operations that accept a plain database, and so could bypass the writer thread. */
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

test('every write operation takes a transaction, which only the writer thread has', () => {
  // The compiler checks this: each line fails to compile when one write operation accepts a database.
  const calledStraight: CalledStraight[] = [] satisfies never[];
  const noneLeft: CalledStraight extends never ? true : CalledStraight = true;
  const all: TakesTransaction = true;
  expect({ calledStraight, noneLeft, all }).toEqual({ calledStraight: [], noneLeft: true, all: true });
  expect(Object.keys(WRITE_OPERATIONS).length).toBeGreaterThan(0);
});
