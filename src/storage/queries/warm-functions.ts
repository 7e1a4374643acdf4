import { sql } from 'kysely';
import type { Database } from '../database.ts';

export interface WarmVersion {
  readonly tenant: string;
  readonly name: string;
  readonly version: string;
}

/**
 * Returns the versions that keep instances without calls: by a minimum or by a reservation with one. `of`
 * limits the result to one function. Without `of`, every record is read once: suitable for a start, not for a
 * request.
 */
export async function listWarmVersions(
  database: Database,
  of: { readonly tenant: string; readonly name: string } | null,
): Promise<WarmVersion[]> {
  // The pattern finds numbers other than 0, but may match inside other texts, so each match is parsed below.
  // PostgreSQL's JSON functions reject texts with a NUL, so they are not used.
  const mayKeep = (text: 'record' | 'clusters') =>
    sql<boolean>`replace(${sql.ref(text)}, '"minInstance":0', '') like '%"minInstance":%'`;
  let minimum = database
    .selectFrom('functions')
    .select(['tenant', 'name', 'version', 'record as text'])
    .where(mayKeep('record'));
  let reserved = database
    .selectFrom('reservations')
    .select(['tenant', 'name', 'version', 'clusters as text'])
    .where(mayKeep('clusters'));
  if (of) {
    minimum = minimum.where('tenant', '=', of.tenant).where('name', '=', of.name);
    reserved = reserved.where('tenant', '=', of.tenant).where('name', '=', of.name);
  }
  const found = new Map<string, WarmVersion>();
  const add = ({ tenant, name, version }: WarmVersion) =>
    void found.set(JSON.stringify([tenant, name, version]), { tenant, name, version });
  for (const row of await minimum.execute()) {
    const { kind, minInstance } = JSON.parse(row.text) as { kind: string; minInstance: number };
    if (kind === 'faas' && minInstance > 0) add(row);
  }
  for (const row of await reserved.execute()) {
    const clusters = JSON.parse(row.text) as readonly { minInstance: number }[];
    if (clusters.some(({ minInstance }) => minInstance > 0)) add(row);
  }
  return [...found.values()];
}
