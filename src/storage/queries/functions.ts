import { type Kysely, type Selectable, sql } from 'kysely';
import { alone } from '../alone.ts';
import type { Database, Tables, WriteTransaction } from '../database.ts';
import { prepare } from '../prepared.ts';
import type { FunctionTable } from '../schema.ts';

export type FunctionRow = Selectable<FunctionTable>;
export type NewFunctionRow = Omit<FunctionRow, 'change_seq'>;

export interface FunctionKey {
  readonly tenant: string;
  readonly name: string;
  readonly version: string;
}

/** The versions that a list shows. */
export interface FunctionFilter {
  readonly tenant: string;
  /** Exact; `''` = any. */
  readonly version: string;
  /** Part of the name, case-sensitive; `''` = any. */
  readonly namePart: string;
}

export interface FunctionTotals {
  readonly total: number;
  /** Grows with every change of the tenant's functions. */
  readonly lastChange: number;
}

/** The version in `function_totals` that counts all published versions. */
export const PUBLISHED = '';
export const LATEST = '$latest';

const findPrepared = prepare((db, p: FunctionKey) =>
  db
    .selectFrom('functions')
    .select(['record', 'host_code_path'])
    .where('tenant', '=', p.tenant)
    .where('name', '=', p.name)
    .where('version', '=', p.version),
);

interface VersionPage {
  readonly tenant: string;
  readonly version: string;
  readonly limit: number;
  readonly offset: number;
}

const page = (db: Kysely<Tables>, p: VersionPage) =>
  db
    .selectFrom('functions')
    .select('record')
    .where('tenant', '=', p.tenant)
    .orderBy('change_seq', 'desc')
    .limit(p.limit)
    .offset(p.offset);
const pagePrepared = prepare(page);
const pageOfVersionPrepared = prepare((db, p: VersionPage) => page(db, p).where('version', '=', p.version));

const totalsPrepared = prepare((db, p: { tenant: string; version: string }) =>
  db
    .selectFrom('function_totals')
    .select(['version', 'total', 'last_change'])
    .where('tenant', '=', p.tenant)
    .where('version', 'in', [LATEST, PUBLISHED, p.version]),
);

/**
 * Queries that read functions; `function-changes.ts` has the changes. Lists and reads touch only the records
 * that they return. A search by a part of a name reads an index.
 */
export class FunctionStore {
  readonly #db: Kysely<Tables>;

  constructor(db: Kysely<Tables>) {
    this.#db = db;
  }

  /** Returns the record of a version and the expected path of its code, or null. */
  async find(key: FunctionKey): Promise<Pick<FunctionRow, 'record' | 'host_code_path'> | null> {
    return (await findPrepared(this.#db, key))[0] ?? null;
  }

  /** Returns the whole table record of a version, or null. */
  async findRow({ tenant, name, version }: FunctionKey): Promise<FunctionRow | null> {
    const row = await this.#db
      .selectFrom('functions')
      .selectAll()
      .where('tenant', '=', tenant)
      .where('name', '=', name)
      .where('version', '=', version)
      .executeTakeFirst();
    return row ?? null;
  }

  publishedVersions(tenant: string, name: string): Promise<string[]> {
    return publishedVersions(this.#db, tenant, name);
  }

  exists(key: FunctionKey): Promise<boolean> {
    return hasVersion(this.#db, key);
  }

  /** Returns the records of a page, newest change first. */
  async page(filter: FunctionFilter, limit: number, offset: number): Promise<string[]> {
    const { tenant, version, namePart } = filter;
    if (namePart === '') {
      const parameters = { tenant, version, limit, offset };
      const query = version === '' ? pagePrepared : pageOfVersionPrepared;
      return (await query(this.#db, parameters)).map(row => row.record);
    }
    const rows = await this.#search(filter)
      .select('record')
      .orderBy('change_seq', 'desc')
      .limit(limit)
      .offset(offset)
      .execute();
    return rows.map(row => row.record);
  }

  /** Returns the latest revisions of a tenant's functions by name, after the name `after`. */
  async latestByName(tenant: string, after: string, limit: number): Promise<string[]> {
    const rows = await this.#db
      .selectFrom('functions')
      .select('record')
      .where('tenant', '=', tenant)
      .where('version', '=', LATEST)
      .where('name', '>', after)
      .orderBy('name')
      .limit(limit)
      .execute();
    return rows.map(row => row.record);
  }

  /**
   * Returns the number of versions that match a filter without `namePart`, and the tenant's last change.
   * Reads three records.
   */
  async totals({ tenant, version }: FunctionFilter): Promise<FunctionTotals> {
    const rows = await totalsPrepared(this.#db, { tenant, version });
    const totalOf = (wanted: string) => Number(rows.find(row => row.version === wanted)?.total ?? 0);
    return {
      total: version === '' ? totalOf(LATEST) + totalOf(PUBLISHED) : totalOf(version),
      lastChange: Number(rows.find(row => row.version === LATEST)?.last_change ?? 0),
    };
  }

  /** Returns the number of versions that match a search by a part of the name. */
  async countFound(filter: FunctionFilter): Promise<number> {
    const row = await this.#search(filter)
      .select(eb => eb.fn.countAll<number>().as('total'))
      .executeTakeFirstOrThrow();
    return Number(row.total);
  }

  /** Returns all versions of a function, newest change first. The number of published versions is limited. */
  async versions(
    tenant: string,
    name: string,
    limit: number,
    offset: number,
  ): Promise<{ total: number; records: string[] }> {
    // Sorted here: with an ORDER BY, SQLite would read all of the tenant's functions in change order.
    const rows = await this.#db
      .selectFrom('functions')
      .select(['record', 'change_seq'])
      .where('tenant', '=', tenant)
      .where('name', '=', name)
      .execute();
    rows.sort((a, b) => Number(b.change_seq) - Number(a.change_seq));
    return { total: rows.length, records: rows.slice(offset, offset + limit).map(row => row.record) };
  }

  #search({ tenant, version, namePart }: FunctionFilter) {
    const query = this.#db
      .selectFrom('functions')
      .where('tenant', '=', tenant)
      // A case-sensitive search, the same in SQLite and PostgreSQL.
      .where(sql<boolean>`replace(name, ${namePart}, '') <> name`);
    return version === '' ? query : query.where('version', '=', version);
  }
}

/** Returns true when the version exists. Works inside and outside of a transaction. */
export async function hasVersion(queries: Kysely<Tables>, { tenant, name, version }: FunctionKey): Promise<boolean> {
  const row = await queries
    .selectFrom('functions')
    .select('version')
    .where('tenant', '=', tenant)
    .where('name', '=', name)
    .where('version', '=', version)
    .executeTakeFirst();
  return row !== undefined;
}

export async function publishedVersions(queries: Kysely<Tables>, tenant: string, name: string): Promise<string[]> {
  const rows = await queries
    .selectFrom('functions')
    .select('version')
    .where('tenant', '=', tenant)
    .where('name', '=', name)
    .where('version', '!=', LATEST)
    .execute();
  return rows.map(row => row.version);
}

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
