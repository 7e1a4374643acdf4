import { PostgresAdapter, sql } from 'kysely';
import type { WriteTransaction } from './database.ts';

/**
 * Until its transaction ends, no other write operation that calls this with the same `key` runs. To be called first in an operation that
 * reads and then writes. The embedded database runs one operation at a time by itself, and nothing happens there.
 */
export async function alone(transaction: WriteTransaction, key: string): Promise<void> {
  if (!(transaction.getExecutor().adapter instanceof PostgresAdapter)) return;
  await sql`select pg_advisory_xact_lock(hashtextextended(${key}, 0))`.execute(transaction);
}
