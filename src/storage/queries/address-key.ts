import { internal } from '../../core/error.ts';
import type { Database } from '../database.ts';

/** Returns the key that signs links to public URLs. Fails with `internal` when the database has none. */
export async function readAddressKey(database: Database): Promise<Buffer> {
  const row = await database.selectFrom('address_key').select('key').where('singleton', '=', 1).executeTakeFirst();
  if (row === undefined) throw internal('the key of addresses is missing in the database');
  return Buffer.from(row.key, 'base64url');
}
