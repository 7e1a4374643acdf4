import { internal } from '../core/error.ts';
import { storable } from './storable.ts';

/** A value as PostgreSQL takes it: what SQLite's columns take, so that everything above sees no difference. */
export function toPostgres(value: unknown): unknown {
  if (typeof value === 'string') return storable(value);
  // The columns hold whole numbers; SQLite is less strict.
  if (typeof value === 'number' && !Number.isInteger(value)) return Math.trunc(value);
  return value;
}

function whole(value: string): number {
  const number = Number(value);
  if (Number.isSafeInteger(number)) return number;
  throw internal(`the database holds the number ${value}, which is too large to be read exactly`);
}

function bytes(value: string): Uint8Array {
  const buffer = Buffer.from(value.slice(2), 'hex');
  return new Uint8Array(buffer.buffer, buffer.byteOffset, buffer.length);
}

/** By the number of the type in PostgreSQL's own catalog. */
const READERS = new Map<number, (value: string) => unknown>([
  [16, value => value === 't'],
  [17, bytes],
  [20, whole],
  [21, Number],
  [23, Number],
  [700, Number],
  [701, Number],
  // A sum of whole numbers.
  [1700, whole],
]);

/** How `pg` reads what comes; every value comes as text. */
export const TYPES = {
  getTypeParser: (type: number) => READERS.get(type) ?? ((value: string) => value),
};
