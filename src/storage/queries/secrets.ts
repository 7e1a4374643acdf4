import { sql } from 'kysely';
import { type SecretRef, secretsOf, type Variables } from '../../core/secret.ts';
import { alone } from '../alone.ts';
import type { Database, WriteTransaction } from '../database.ts';
import type { SecretTable } from '../schema.ts';

/** Result of `dropSecret`. `user`: the thing that refers to the secret, so that it stays. */
export type DroppedSecret =
  | { readonly kind: 'missing' | 'dropped' }
  | { readonly kind: 'in use'; readonly user: string };

const lockOf = (tenant: string) => `secrets: ${tenant}`;

/**
 * Creates or replaces a secret. A replaced one keeps its creation time. Returns null when the tenant has
 * `most` secrets already.
 */
export async function putSecret(
  transaction: WriteTransaction,
  row: SecretTable,
  most: number,
): Promise<{ readonly isNew: boolean; readonly createdAtMs: number; readonly updatedAtMs: number } | null> {
  await alone(transaction, lockOf(row.tenant));
  const before = await find(transaction, row.tenant, row.name);
  if (before !== undefined) {
    const { key_id, sealed } = row;
    // Unique per value: `resealSecret` distinguishes values by this time.
    const updated_at_ms = Math.max(row.updated_at_ms, Number(before.updated_at_ms) + 1);
    await transaction
      .updateTable('secrets')
      .set({ key_id, sealed, updated_at_ms })
      .where('tenant', '=', row.tenant)
      .where('name', '=', row.name)
      .execute();
    return { isNew: false, createdAtMs: Number(before.created_at_ms), updatedAtMs: updated_at_ms };
  }
  const { count } = await transaction
    .selectFrom('secrets')
    .select(({ fn }) => fn.countAll<number>().as('count'))
    .where('tenant', '=', row.tenant)
    .executeTakeFirstOrThrow();
  if (Number(count) >= most) return null;
  await transaction.insertInto('secrets').values(row).execute();
  return { isNew: true, createdAtMs: row.created_at_ms, updatedAtMs: row.updated_at_ms };
}

/** Deletes a secret, unless a function, an agent, an open job or a schedule refers to it. */
export async function dropSecret(transaction: WriteTransaction, tenant: string, name: string): Promise<DroppedSecret> {
  await alone(transaction, lockOf(tenant));
  if ((await find(transaction, tenant, name)) === undefined) return { kind: 'missing' };
  const user = await userOf(transaction, tenant, name);
  if (user !== null) return { kind: 'in use', user };
  await transaction.deleteFrom('secrets').where('tenant', '=', tenant).where('name', '=', name).execute();
  return { kind: 'dropped' };
}

/**
 * Stores a secret that was encrypted with another key. Returns false when it was written since it was read.
 */
export async function resealSecret(
  transaction: WriteTransaction,
  before: Pick<SecretTable, 'tenant' | 'name' | 'key_id' | 'updated_at_ms'>,
  after: Pick<SecretTable, 'key_id' | 'sealed'>,
): Promise<boolean> {
  await alone(transaction, lockOf(before.tenant));
  const { numUpdatedRows } = await transaction
    .updateTable('secrets')
    .set(after)
    .where('tenant', '=', before.tenant)
    .where('name', '=', before.name)
    .where('key_id', '=', before.key_id)
    .where('updated_at_ms', '=', before.updated_at_ms)
    .executeTakeFirstOrThrow();
  return numUpdatedRows === 1n;
}

/**
 * Returns the first missing secret that these variables refer to. null: all exist, and none can be removed
 * before the reference is written.
 */
export async function missingSecret(
  transaction: WriteTransaction,
  tenant: string,
  variables: Variables,
): Promise<{ readonly variable: string; readonly secret: string } | null> {
  const secret = await lackingSecret(transaction, tenant, secretsOf(variables));
  if (secret === null) return null;
  const isIt = (given: string | SecretRef) => typeof given === 'object' && given.secret === secret;
  const variable = Object.keys(variables).find(name => isIt(variables[name] as string | SecretRef)) as string;
  return { variable, secret };
}

/** Result when nothing was written, since a referenced secret does not exist. */
export interface LackingSecret {
  readonly lacking: string;
}

/**
 * Returns the first of these secrets that does not exist, after all removals that have begun. null: all
 * exist, and a later removal sees references that this transaction writes.
 */
export async function lackingSecret(
  transaction: WriteTransaction,
  tenant: string,
  names: readonly string[],
): Promise<string | null> {
  if (names.length === 0) return null;
  await alone(transaction, lockOf(tenant));
  const there = new Set((await findSecrets(transaction, tenant, names)).map(({ name }) => name));
  return names.find(name => !there.has(name)) ?? null;
}

type SecretQueries = Pick<Database, 'selectFrom'>;

export async function findSecrets(
  queries: SecretQueries,
  tenant: string,
  names: readonly string[],
): Promise<readonly SecretTable[]> {
  return await queries
    .selectFrom('secrets')
    .selectAll()
    .where('tenant', '=', tenant)
    .where('name', 'in', names)
    .execute();
}

/** Returns a tenant's secrets without their values, ordered by name. */
export async function listSecrets(database: Database, tenant: string): Promise<readonly Omit<SecretTable, 'sealed'>[]> {
  return await database
    .selectFrom('secrets')
    .select(['tenant', 'name', 'key_id', 'created_at_ms', 'updated_at_ms'])
    .where('tenant', '=', tenant)
    .orderBy('name')
    .execute();
}

/** Returns the keys that encrypted secrets, with the number of secrets of each. */
export async function secretKeyIds(
  database: Database,
): Promise<readonly { readonly keyId: string; readonly count: number }[]> {
  const rows = await database
    .selectFrom('secrets')
    .select(({ fn }) => ['key_id', fn.countAll<number>().as('count')])
    .groupBy('key_id')
    .orderBy('key_id')
    .execute();
  return rows.map(({ key_id, count }) => ({ keyId: key_id, count: Number(count) }));
}

/** Returns at most `limit` secrets that were encrypted with one of these keys. */
export async function listSealedWith(
  database: Database,
  keyIds: readonly string[],
  limit: number,
): Promise<readonly SecretTable[]> {
  return await database.selectFrom('secrets').selectAll().where('key_id', 'in', keyIds).limit(limit).execute();
}

async function find(queries: SecretQueries, tenant: string, name: string): Promise<SecretTable | undefined> {
  return (await findSecrets(queries, tenant, [name]))[0];
}

/**
 * Returns a name for the first thing that refers to the secret, or null. Reads all of the tenant's records,
 * so only a removal calls it.
 */
async function userOf(transaction: WriteTransaction, tenant: string, name: string): Promise<string | null> {
  const wanted = JSON.stringify({ secret: name } satisfies SecretRef);
  // `like` may match too much, by wildcards in a name or by letter case, so the texts are compared below.
  const like = `%${wanted}%`;
  const functions = await transaction
    .selectFrom('functions')
    .select(['name', 'version', 'record'])
    .where('tenant', '=', tenant)
    .where(sql<boolean>`record like ${like}`)
    .orderBy('name')
    .orderBy('version')
    .execute();
  const fn = functions.find(({ record }) => record.includes(wanted));
  if (fn !== undefined) return `function ${fn.name}:${fn.version}`;
  const agents = await transaction
    .selectFrom('instances')
    .select(['namespace', 'name', 'spec'])
    .where('tenant', '=', tenant)
    .where('owner_kind', '=', 'agent')
    .where(sql<boolean>`spec like ${like}`)
    .orderBy('namespace')
    .orderBy('name')
    .execute();
  const agent = agents.find(({ spec }) => spec.includes(wanted));
  if (agent !== undefined) return `agent ${agent.namespace}/${agent.name}`;
  const jobs = await transaction
    .selectFrom('jobs')
    .select(['id', 'spec'])
    .where('tenant', '=', tenant)
    .where('status', 'in', ['PENDING', 'RUNNING'])
    .where(sql<boolean>`spec like ${like}`)
    .orderBy('id')
    .execute();
  const job = jobs.find(({ spec }) => spec.includes(wanted));
  if (job !== undefined) return `job ${job.id}`;
  const schedules = await transaction
    .selectFrom('job_schedules')
    .select(['id', 'submission'])
    .where('tenant', '=', tenant)
    .where(sql<boolean>`submission like ${like}`)
    .orderBy('id')
    .execute();
  const schedule = schedules.find(({ submission }) => submission.includes(wanted));
  return schedule === undefined ? null : `the job schedule ${schedule.id}`;
}
