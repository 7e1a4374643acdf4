import { internal } from '../../core/error.ts';
import type { Database } from '../database.ts';

/** Returns the id that all replicas over this database share and that no other installation has. */
export async function readInstallationId(database: Database): Promise<string> {
  const row = await database.selectFrom('installation').select('id').where('singleton', '=', 1).executeTakeFirst();
  if (row === undefined) throw internal('the id of the installation is missing in the database');
  return row.id;
}
