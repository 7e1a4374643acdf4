import { existsSync } from 'node:fs';
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';
import { DatabaseSync, type DatabaseSyncInstance } from '@photostructure/sqlite';
import { failedPrecondition, messageOf } from '../core/error.ts';
import { DATABASE } from '../data-dir/data-dir-facts.ts';
import { MIGRATIONS } from './migrations/migrations.ts';

/** The newest migration of this version of the service. */
export const OWN_SCHEMA = Object.keys(MIGRATIONS).sort().at(-1) as string;

/**
 * Returns the newest migration of the database in a data directory; null without a database. Changes and
 * creates no file. Fails with `failed_precondition`.
 */
export function appliedSchema(dataDir: string): string | null {
  const file = join(dataDir, DATABASE);
  if (!existsSync(file)) return null;
  const place = pathToFileURL(file);
  // A cleanly closed database has no write-ahead log. A plain read-only open would create one.
  if (!existsSync(`${file}-wal`)) place.searchParams.set('immutable', '1');
  let database: DatabaseSyncInstance | undefined;
  try {
    database = new DatabaseSync(place, { readOnly: true, timeout: 5_000 });
    const row = database.prepare('SELECT max(name) AS name FROM kysely_migration').get() as { name: string | null };
    return row.name;
  } catch (error) {
    throw failedPrecondition(`the database ${file} cannot be read: ${messageOf(error)}`, { cause: error });
  } finally {
    database?.close();
  }
}
