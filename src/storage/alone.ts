import { PostgresAdapter, sql } from 'kysely';
import type { WriteTransaction } from './database.ts';

/**
 * Blocks other write operations that call it with the same `key` until the transaction ends. An operation
 * that reads and then writes must call it before it reads. Does nothing with SQLite, which runs one operation
 * at a time.
 */
export async function alone(transaction: WriteTransaction, key: string): Promise<void> {
  if (!(transaction.getExecutor().adapter instanceof PostgresAdapter)) return;
  await sql`select pg_advisory_xact_lock(hashtextextended(${key}, 0))`.execute(transaction);
}
