import { internal } from '../../core/error.ts';
import { storable } from '../storable.ts';

/**
 * Converts a value for PostgreSQL so that it stores what SQLite's columns would. Callers see no difference.
 */
export function toPostgres(value: unknown): unknown {
  if (typeof value === 'string') return storable(value);
  // The columns hold integers; SQLite is less strict.
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

/** Parsers by type number in PostgreSQL's catalog. */
const READERS = new Map<number, (value: string) => unknown>([
  [16, value => value === 't'],
  [17, bytes],
  [20, whole],
  [21, Number],
  [23, Number],
  [700, Number],
  [701, Number],
  // The type of a sum of integers.
  [1700, whole],
]);

/** The parsers for `pg`: every value arrives as text. */
export const TYPES = {
  getTypeParser: (type: number) => READERS.get(type) ?? ((value: string) => value),
};
