import { alone } from '../alone.ts';
import type { Database, WriteTransaction } from '../database.ts';
import { prepare } from '../prepared.ts';
import type { ApiKeyTable } from '../schema.ts';

/** Stores a key. Returns false if the tenant has `most` keys already, or this one. */
export async function insertApiKey(transaction: WriteTransaction, row: ApiKeyTable, most: number): Promise<boolean> {
  await alone(transaction, `api keys: ${row.tenant}`);
  const { count } = await transaction
    .selectFrom('api_keys')
    .select(({ fn }) => fn.countAll<number>().as('count'))
    .where('tenant', '=', row.tenant)
    .executeTakeFirstOrThrow();
  if (Number(count) >= most) return false;
  const inserted = await transaction
    .insertInto('api_keys')
    .values(row)
    .onConflict(conflict => conflict.doNothing())
    .returning('id')
    .execute();
  return inserted.length === 1;
}

/** Deletes a key. Returns false if the tenant has none with this id. */
export async function deleteApiKey(transaction: WriteTransaction, tenant: string, id: string): Promise<boolean> {
  await alone(transaction, `api keys: ${tenant}`);
  const { numDeletedRows } = await transaction
    .deleteFrom('api_keys')
    .where('tenant', '=', tenant)
    .where('id', '=', id)
    .executeTakeFirstOrThrow();
  return numDeletedRows === 1n;
}

const ofHash = prepare((db, p: { hash: string }) =>
  db.selectFrom('api_keys').select(['tenant', 'role']).where('hash', '=', p.hash),
);

/** Returns the tenant and role of the key with this hash. */
export async function findApiKey(
  database: Database,
  hash: string,
): Promise<Pick<ApiKeyTable, 'tenant' | 'role'> | undefined> {
  return (await ofHash(database, { hash }))[0];
}

/** Returns a tenant's keys without their hashes, oldest first. */
export async function listApiKeys(
  database: Database,
  tenant: string,
): Promise<readonly Pick<ApiKeyTable, 'id' | 'role' | 'created_at_ms'>[]> {
  return await database
    .selectFrom('api_keys')
    .select(['id', 'role', 'created_at_ms'])
    .where('tenant', '=', tenant)
    .orderBy('created_at_ms')
    .orderBy('id')
    .execute();
}
