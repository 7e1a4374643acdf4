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
  // JSON text matches where the number is not 0, and perhaps inside of another text: so each match is parsed below.
  // Not with the JSON functions of the database: PostgreSQL's refuse texts that have a NUL in them.
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
