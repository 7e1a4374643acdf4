import { sql } from 'kysely';
import { type SecretRef, secretsOf, type Variables } from '../core/secret.ts';
import { alone } from './alone.ts';
import type { Database, WriteTransaction } from './database.ts';

/** Row of `secrets`. */
export interface SecretTable {
  tenant: string;
  name: string;
  /** Which key it is encrypted with. */
  key_id: string;
  /** The value, encrypted. */
  sealed: Uint8Array;
  created_at_ms: number;
  updated_at_ms: number;
}

/** What `dropSecret` found. `user`: what refers to it, so that it stays. */
export type DroppedSecret =
  | { readonly kind: 'missing' | 'dropped' }
  | { readonly kind: 'in use'; readonly user: string };

const lockOf = (tenant: string) => `secrets: ${tenant}`;

/** Written anew, or over the one of this name, which keeps when it was created; null: the tenant has `most` already. */
export async function putSecret(
  transaction: WriteTransaction,
  row: SecretTable,
  most: number,
): Promise<{ readonly isNew: boolean; readonly createdAtMs: number; readonly updatedAtMs: number } | null> {
  await alone(transaction, lockOf(row.tenant));
  const before = await find(transaction, row.tenant, row.name);
  if (before !== undefined) {
    const { key_id, sealed } = row;
    // Each value has a moment of its own: `resealSecret` tells them apart by it.
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

/** Unless something refers to it: a function, an agent, a job that is not over, a schedule. */
export async function dropSecret(transaction: WriteTransaction, tenant: string, name: string): Promise<DroppedSecret> {
  await alone(transaction, lockOf(tenant));
  if ((await find(transaction, tenant, name)) === undefined) return { kind: 'missing' };
  const user = await userOf(transaction, tenant, name);
  if (user !== null) return { kind: 'in use', user };
  await transaction.deleteFrom('secrets').where('tenant', '=', tenant).where('name', '=', name).execute();
  return { kind: 'dropped' };
}

/** Encrypted with another key; nothing when it was written since it was read. */
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
 * The first secret that these variables refer to and that does not exist; null: all are there, and none is removed before what refers to
 * them is written.
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

/** Nothing was written: it would refer to this secret, which does not exist. */
export interface LackingSecret {
  readonly lacking: string;
}

/**
 * The first of these that does not exist once every removal that has begun is over; null: all are there, and a removal that begins later finds
 * what was written before this and refers to them.
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

type Queries = Pick<Database, 'selectFrom'>;

export async function findSecrets(
  queries: Queries,
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

/** All of a tenant, without their values, ordered by name. */
export async function listSecrets(database: Database, tenant: string): Promise<readonly Omit<SecretTable, 'sealed'>[]> {
  return await database
    .selectFrom('secrets')
    .select(['tenant', 'name', 'key_id', 'created_at_ms', 'updated_at_ms'])
    .where('tenant', '=', tenant)
    .orderBy('name')
    .execute();
}

/** The keys that secrets are encrypted with, and how many each. */
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

/** Some of those that are encrypted with one of these keys. */
export async function listSealedWith(
  database: Database,
  keyIds: readonly string[],
  limit: number,
): Promise<readonly SecretTable[]> {
  return await database.selectFrom('secrets').selectAll().where('key_id', 'in', keyIds).limit(limit).execute();
}

async function find(queries: Queries, tenant: string, name: string): Promise<SecretTable | undefined> {
  return (await findSecrets(queries, tenant, [name]))[0];
}

/** Who refers to it, as a caller knows it. A look at all of the tenant's rows: it happens for a removal only. */
async function userOf(transaction: WriteTransaction, tenant: string, name: string): Promise<string | null> {
  const wanted = JSON.stringify({ secret: name } satisfies SecretRef);
  // Signs of `like` in a name, and letters of either case, find more than is meant: the text itself decides.
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
