import { sql } from 'kysely';
import type { Database } from './database.ts';

export interface WarmVersion {
  readonly tenant: string;
  readonly name: string;
  readonly version: string;
}

/**
 * Versions that keep instances without a call: those with a minimum, and those with a reservation that has one. With `of`, only those of one
 * function; without, all of them, which reads every record once: for a start, not for a request.
 */
export async function listWarmVersions(
  database: Database,
  of: { readonly tenant: string; readonly name: string } | null,
): Promise<WarmVersion[]> {
  let minimum = database
    .selectFrom('functions')
    .select(['tenant', 'name', 'version'])
    .where(sql<boolean>`json_extract(record, '$.kind') = 'faas' and json_extract(record, '$.minInstance') > 0`);
  let reserved = database
    .selectFrom('reservations')
    .select(['tenant', 'name', 'version'])
    .distinct()
    .where(sql<boolean>`exists (select 1 from json_each(clusters) where json_extract(value, '$.minInstance') > 0)`);
  if (of) {
    minimum = minimum.where('tenant', '=', of.tenant).where('name', '=', of.name);
    reserved = reserved.where('tenant', '=', of.tenant).where('name', '=', of.name);
  }
  const found = new Map<string, WarmVersion>();
  for (const row of [...(await minimum.execute()), ...(await reserved.execute())]) {
    found.set(JSON.stringify([row.tenant, row.name, row.version]), row);
  }
  return [...found.values()];
}
