import { internal } from '../core/error.ts';
import type { Database } from './database.ts';

/** The one row of `address_key`; the migration that made the table wrote it. */
export interface AddressKeyTable {
  singleton: number;
  /** Base64url. */
  key: string;
}

/** What signs links to addresses. */
export async function readAddressKey(database: Database): Promise<Buffer> {
  const row = await database.selectFrom('address_key').select('key').where('singleton', '=', 1).executeTakeFirst();
  if (row === undefined) throw internal('the key of addresses is missing in the database');
  return Buffer.from(row.key, 'base64url');
}
