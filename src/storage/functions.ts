import { type Kysely, type Selectable, sql } from 'kysely';
import type { Tables } from './database.ts';
import { prepare, type Queries } from './prepared.ts';

/** Row of `functions`: one version of a function. */
export interface FunctionTable {
  tenant: string;
  name: string;
  /** `$latest`, or what it was published as. */
  version: string;
  revision_id: string;
  /** Newest change first is `change_seq` descending; unique in a tenant. */
  change_seq: number;
  /** Of `$latest`: when it was last published without a number, 0 = never. */
  default_published_at_ms: number;
  /** Where on this host its code should be; `''` when that is nobody's question. */
  host_code_path: string;
  /** The secret of its object store. */
  code_token: string;
  /** The record as it is answered: JSON text that ends with the member `status`, empty. */
  record: string;
}

/**
 * Row of `function_totals`: how many versions of one number a tenant has, so that a page's total needs no count. The row `$latest`
 * is the tenant's own: there is one `$latest` for each function, and `last_change` is the newest `change_seq`. The row `''` counts
 * all published versions.
 */
export interface FunctionTotalTable {
  tenant: string;
  version: string;
  total: number;
  /** 0 but in the row `$latest`. */
  last_change: number;
}

export type FunctionRow = Selectable<FunctionTable>;
export type NewFunctionRow = Omit<FunctionRow, 'change_seq'>;

interface Key {
  readonly tenant: string;
  readonly name: string;
  readonly version: string;
}

/** Which versions a list shows. */
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

const PUBLISHED = '';
const LATEST = '$latest';

/**
 * The queries of functions. Lists and reads never touch more than the rows that they answer (but for a search by a part of a
 * name, which reads an index). Methods that write take the transaction.
 */
export class FunctionStore {
  readonly #db: Kysely<Tables>;
  readonly #find;
  readonly #page;
  readonly #pageOfVersion;
  readonly #totals;
  readonly #count;
  readonly #insert;

  constructor(db: Kysely<Tables>) {
    this.#db = db;
    this.#find = prepare((p: Key) =>
      db
        .selectFrom('functions')
        .select(['record', 'host_code_path'])
        .where('tenant', '=', p.tenant)
        .where('name', '=', p.name)
        .where('version', '=', p.version),
    );
    type Page = { tenant: string; version: string; limit: number; offset: number };
    const page = (p: Page) =>
      db
        .selectFrom('functions')
        .select('record')
        .where('tenant', '=', p.tenant)
        .orderBy('change_seq', 'desc')
        .limit(p.limit)
        .offset(p.offset);
    this.#page = prepare(page);
    this.#pageOfVersion = prepare((p: Page) => page(p).where('version', '=', p.version));
    this.#totals = prepare((p: { tenant: string; version: string }) =>
      db
        .selectFrom('function_totals')
        .select(['version', 'total', 'last_change'])
        .where('tenant', '=', p.tenant)
        .where('version', 'in', [LATEST, PUBLISHED, p.version]),
    );
    // One row at a time: SQLite takes ten times as long for an upsert of two.
    this.#count = prepare((p: { tenant: string; version: string; more: number; change: number }) =>
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
    this.#insert = prepare((p: FunctionRow) =>
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
  }

  /** The record of one version and where its code should be, or null. */
  async find(key: Key): Promise<Pick<FunctionRow, 'record' | 'host_code_path'> | null> {
    return (await this.#find(this.#db, key))[0] ?? null;
  }

  /** The whole row of one version, or null. */
  async findRow({ tenant, name, version }: Key): Promise<FunctionRow | null> {
    const row = await this.#db
      .selectFrom('functions')
      .selectAll()
      .where('tenant', '=', tenant)
      .where('name', '=', name)
      .where('version', '=', version)
      .executeTakeFirst();
    return row ?? null;
  }

  async exists({ tenant, name, version }: Key, queries: Kysely<Tables> = this.#db): Promise<boolean> {
    const row = await queries
      .selectFrom('functions')
      .select('version')
      .where('tenant', '=', tenant)
      .where('name', '=', name)
      .where('version', '=', version)
      .executeTakeFirst();
    return row !== undefined;
  }

  /** Records of one page, newest change first. */
  async page(filter: FunctionFilter, limit: number, offset: number): Promise<string[]> {
    const { tenant, version, namePart } = filter;
    if (namePart === '') {
      const parameters = { tenant, version, limit, offset };
      const query = version === '' ? this.#page : this.#pageOfVersion;
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

  /** How many versions a filter without a part of a name finds, and the tenant's last change: three rows are read. */
  async totals({ tenant, version }: FunctionFilter): Promise<FunctionTotals> {
    const rows = await this.#totals(this.#db, { tenant, version });
    const totalOf = (wanted: string) => Number(rows.find(row => row.version === wanted)?.total ?? 0);
    return {
      total: version === '' ? totalOf(LATEST) + totalOf(PUBLISHED) : totalOf(version),
      lastChange: Number(rows.find(row => row.version === LATEST)?.last_change ?? 0),
    };
  }

  /** How many versions a search by a part of the name finds. */
  async countFound(filter: FunctionFilter): Promise<number> {
    const row = await this.#search(filter)
      .select(eb => eb.fn.countAll<number>().as('total'))
      .executeTakeFirstOrThrow();
    return Number(row.total);
  }

  /** All versions of one function, newest change first: few, since only so many can be published. */
  async versions(
    tenant: string,
    name: string,
    limit: number,
    offset: number,
  ): Promise<{ total: number; records: string[] }> {
    // Sorted here: told to sort, SQLite would walk through all of the tenant's functions in the order of their changes.
    const rows = await this.#db
      .selectFrom('functions')
      .select(['record', 'change_seq'])
      .where('tenant', '=', tenant)
      .where('name', '=', name)
      .execute();
    rows.sort((a, b) => Number(b.change_seq) - Number(a.change_seq));
    return { total: rows.length, records: rows.slice(offset, offset + limit).map(row => row.record) };
  }

  /** Adds a version as the tenant's newest change. False: there is one already, and the transaction has to be rolled back. */
  async insert(transaction: Queries, row: NewFunctionRow): Promise<boolean> {
    const { tenant, version } = row;
    const change_seq = await this.#change(transaction, tenant, version === LATEST ? 1 : 0);
    if (version !== LATEST) {
      await this.#add(transaction, tenant, PUBLISHED, 1);
      await this.#add(transaction, tenant, version, 1);
    }
    return (await this.#insert(transaction, { ...row, change_seq })).length === 1;
  }

  /** The row `$latest` of a function, held against others until the transaction ends; null: no such function. */
  async holdLatest(transaction: Kysely<Tables>, tenant: string, name: string): Promise<FunctionRow | null> {
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

  async publishedVersions(transaction: Kysely<Tables>, tenant: string, name: string): Promise<string[]> {
    const rows = await transaction
      .selectFrom('functions')
      .select('version')
      .where('tenant', '=', tenant)
      .where('name', '=', name)
      .where('version', '!=', LATEST)
      .execute();
    return rows.map(row => row.version);
  }

  /** Writes `$latest` anew, as the tenant's newest change. */
  async updateLatest(transaction: Kysely<Tables>, row: Omit<FunctionRow, 'change_seq' | 'version'>): Promise<void> {
    const { tenant, name, ...values } = row;
    const change_seq = await this.#change(transaction, tenant, 0);
    await transaction
      .updateTable('functions')
      .set({ ...values, change_seq })
      .where('tenant', '=', tenant)
      .where('name', '=', name)
      .where('version', '=', LATEST)
      .execute();
  }

  /** Notes on `$latest` when it was published without a number. */
  async noteDefaultPublish(transaction: Kysely<Tables>, tenant: string, name: string, atMs: number): Promise<void> {
    await transaction
      .updateTable('functions')
      .set({ default_published_at_ms: atMs })
      .where('tenant', '=', tenant)
      .where('name', '=', name)
      .where('version', '=', LATEST)
      .execute();
  }

  /** Deletes one version (not `$latest`), or with null the whole function. Answers the versions that are gone. */
  async delete(transaction: Kysely<Tables>, tenant: string, name: string, version: string | null): Promise<string[]> {
    let query = transaction.deleteFrom('functions').where('tenant', '=', tenant).where('name', '=', name);
    if (version !== null) query = query.where('version', '=', version);
    const gone = (await query.returning('version').execute()).map(row => row.version);
    if (gone.length === 0) return gone;
    const published = gone.filter(number => number !== LATEST);
    await this.#change(transaction, tenant, published.length - gone.length);
    if (published.length === 0) return gone;
    await this.#add(transaction, tenant, PUBLISHED, -published.length);
    for (const number of published) await this.#add(transaction, tenant, number, -1);
    await transaction
      .deleteFrom('function_totals')
      .where('tenant', '=', tenant)
      .where('version', 'in', published)
      .where('total', '=', 0)
      .execute();
    return gone;
  }

  /** A new change of the tenant, which has `more` functions with it. Answers its number. */
  async #change(transaction: Queries, tenant: string, more: number): Promise<number> {
    const [row] = await this.#count(transaction, { tenant, version: LATEST, more, change: 1 });
    return Number(row?.last_change);
  }

  async #add(transaction: Queries, tenant: string, version: string, more: number): Promise<void> {
    await this.#count(transaction, { tenant, version, more, change: 0 });
  }

  #search({ tenant, version, namePart }: FunctionFilter) {
    const query = this.#db
      .selectFrom('functions')
      .where('tenant', '=', tenant)
      // A search that minds the case in SQLite and PostgreSQL alike.
      .where(sql<boolean>`replace(name, ${namePart}, '') <> name`);
    return version === '' ? query : query.where('version', '=', version);
  }
}
