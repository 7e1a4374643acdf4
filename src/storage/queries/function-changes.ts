import { type Kysely, sql } from 'kysely';
import { alone } from '../alone.ts';
import type { Tables, WriteTransaction } from '../database.ts';
import { prepare } from '../prepared.ts';
import { type FunctionRow, LATEST, type NewFunctionRow, PUBLISHED } from './functions.ts';

/** A transaction: every change of a function needs one, so that the totals stay correct. */
type Transaction = Kysely<Tables>;

/**
 * Blocks other write operations about the function, its versions or its reservations until the transaction
 * ends.
 */
export async function aloneWithFunction(transaction: WriteTransaction, tenant: string, name: string): Promise<void> {
  await alone(transaction, `function ${tenant} ${name}`);
}

// A single record per statement: an upsert of two takes SQLite ten times as long.
const count = prepare((db, p: { tenant: string; version: string; more: number; change: number }) =>
  db
    .insertInto('function_totals')
    .values({ tenant: p.tenant, version: p.version, total: p.more, last_change: p.change })
    .onConflict(conflict =>
      conflict.columns(['tenant', 'version']).doUpdateSet({
        total: sql`function_totals.total + excluded.total`,
        last_change: sql`function_totals.last_change + excluded.last_change`,
      }),
    )
    .returning('last_change'),
);

const insertPrepared = prepare((db, p: FunctionRow) =>
  db
    .insertInto('functions')
    .values({
      tenant: p.tenant,
      name: p.name,
      version: p.version,
      revision_id: p.revision_id,
      change_seq: p.change_seq,
      default_published_at_ms: p.default_published_at_ms,
      host_code_path: p.host_code_path,
      code_token: p.code_token,
      record: p.record,
    })
    .onConflict(conflict => conflict.doNothing())
    .returning('version'),
);

/**
 * Inserts a version as the tenant's newest change. Returns false when the version exists; the caller must
 * then roll back the transaction.
 */
export async function insertVersion(transaction: Transaction, row: NewFunctionRow): Promise<boolean> {
  const { tenant, version } = row;
  const change_seq = await nextChange(transaction, tenant, version === LATEST ? 1 : 0);
  if (version !== LATEST) {
    await add(transaction, tenant, PUBLISHED, 1);
    await add(transaction, tenant, version, 1);
  }
  return (await insertPrepared(transaction, { ...row, change_seq })).length === 1;
}

/**
 * Locks and returns the record `$latest` of a function until the transaction ends; null: no such function.
 */
export async function holdLatest(transaction: Transaction, tenant: string, name: string): Promise<FunctionRow | null> {
  const row = await transaction
    .updateTable('functions')
    .set({ default_published_at_ms: sql`default_published_at_ms` })
    .where('tenant', '=', tenant)
    .where('name', '=', name)
    .where('version', '=', LATEST)
    .returningAll()
    .executeTakeFirst();
  return row ?? null;
}

/** Replaces `$latest`, as the tenant's newest change. */
export async function updateLatest(
  transaction: Transaction,
  row: Omit<FunctionRow, 'change_seq' | 'version'>,
): Promise<void> {
  const { tenant, name, ...values } = row;
  const change_seq = await nextChange(transaction, tenant, 0);
  await transaction
    .updateTable('functions')
    .set({ ...values, change_seq })
    .where('tenant', '=', tenant)
    .where('name', '=', name)
    .where('version', '=', LATEST)
    .execute();
}

/** Records on `$latest` the time of a publish without a number. */
export async function noteDefaultPublish(
  transaction: Transaction,
  tenant: string,
  name: string,
  atMs: number,
): Promise<void> {
  await transaction
    .updateTable('functions')
    .set({ default_published_at_ms: atMs })
    .where('tenant', '=', tenant)
    .where('name', '=', name)
    .where('version', '=', LATEST)
    .execute();
}

/** Deletes one version (not `$latest`), or the whole function with null. Returns the deleted versions. */
export async function deleteVersions(
  transaction: Transaction,
  tenant: string,
  name: string,
  version: string | null,
): Promise<string[]> {
  let query = transaction.deleteFrom('functions').where('tenant', '=', tenant).where('name', '=', name);
  if (version !== null) query = query.where('version', '=', version);
  const gone = (await query.returning('version').execute()).map(row => row.version);
  if (gone.length === 0) return gone;
  const published = gone.filter(number => number !== LATEST);
  await nextChange(transaction, tenant, published.length - gone.length);
  if (published.length === 0) return gone;
  await add(transaction, tenant, PUBLISHED, -published.length);
  for (const number of published) await add(transaction, tenant, number, -1);
  await transaction
    .deleteFrom('function_totals')
    .where('tenant', '=', tenant)
    .where('version', 'in', published)
    .where('total', '=', 0)
    .execute();
  return gone;
}

/**
 * Counts a new change of the tenant and adds `more` to its number of functions. Returns the number of the
 * change.
 */
async function nextChange(transaction: Transaction, tenant: string, more: number): Promise<number> {
  const [row] = await count(transaction, { tenant, version: LATEST, more, change: 1 });
  return Number(row?.last_change);
}

async function add(transaction: Transaction, tenant: string, version: string, more: number): Promise<void> {
  await count(transaction, { tenant, version, more, change: 0 });
}
