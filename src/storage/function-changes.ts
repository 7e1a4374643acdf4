import { type Kysely, sql } from 'kysely';
import { alone } from './alone.ts';
import type { Tables, WriteTransaction } from './database.ts';
import { type FunctionRow, LATEST, type NewFunctionRow, PUBLISHED } from './functions.ts';
import { prepare } from './prepared.ts';

/** Every change of a function runs in a transaction, which keeps the totals true. */
type Transaction = Kysely<Tables>;

/** No other write operation about the function, its versions or its reservations runs until the transaction ends. */
export async function aloneWithFunction(transaction: WriteTransaction, tenant: string, name: string): Promise<void> {
  await alone(transaction, `function ${tenant} ${name}`);
}

// One row at a time: SQLite takes ten times as long for an upsert of two.
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

/** Adds a version as the tenant's newest change. False: there is one already, and the transaction has to be rolled back. */
export async function insertVersion(transaction: Transaction, row: NewFunctionRow): Promise<boolean> {
  const { tenant, version } = row;
  const change_seq = await nextChange(transaction, tenant, version === LATEST ? 1 : 0);
  if (version !== LATEST) {
    await add(transaction, tenant, PUBLISHED, 1);
    await add(transaction, tenant, version, 1);
  }
  return (await insertPrepared(transaction, { ...row, change_seq })).length === 1;
}

/** The row `$latest` of a function, held against others until the transaction ends; null: no such function. */
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

/** Writes `$latest` anew, as the tenant's newest change. */
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

/** Notes on `$latest` when it was published without a number. */
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

/** Deletes one version (not `$latest`), or with null the whole function. Answers the versions that are gone. */
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

/** A new change of the tenant, which has `more` functions with it. Answers its number. */
async function nextChange(transaction: Transaction, tenant: string, more: number): Promise<number> {
  const [row] = await count(transaction, { tenant, version: LATEST, more, change: 1 });
  return Number(row?.last_change);
}

async function add(transaction: Transaction, tenant: string, version: string, more: number): Promise<void> {
  await count(transaction, { tenant, version, more, change: 0 });
}
