import { type Kysely, type Selectable, sql } from 'kysely';
import type { Tables } from './database.ts';
import { prepare } from './prepared.ts';

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
  /** Where on this host its code should be; `''` when the query leaves it out. */
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

export interface FunctionKey {
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

/** The row of `function_totals` that counts all published versions. */
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

interface Page {
  readonly tenant: string;
  readonly version: string;
  readonly limit: number;
  readonly offset: number;
}

const page = (db: Kysely<Tables>, p: Page) =>
  db
    .selectFrom('functions')
    .select('record')
    .where('tenant', '=', p.tenant)
    .orderBy('change_seq', 'desc')
    .limit(p.limit)
    .offset(p.offset);
const pagePrepared = prepare(page);
const pageOfVersionPrepared = prepare((db, p: Page) => page(db, p).where('version', '=', p.version));

const totalsPrepared = prepare((db, p: { tenant: string; version: string }) =>
  db
    .selectFrom('function_totals')
    .select(['version', 'total', 'last_change'])
    .where('tenant', '=', p.tenant)
    .where('version', 'in', [LATEST, PUBLISHED, p.version]),
);

/**
 * The reads of functions; `function-changes.ts` has what changes them. Lists and reads never touch more than the rows that they
 * answer (but for a search by a part of a name, which reads an index).
 */
export class FunctionStore {
  readonly #db: Kysely<Tables>;

  constructor(db: Kysely<Tables>) {
    this.#db = db;
  }

  /** The record of one version and where its code should be, or null. */
  async find(key: FunctionKey): Promise<Pick<FunctionRow, 'record' | 'host_code_path'> | null> {
    return (await findPrepared(this.#db, key))[0] ?? null;
  }

  /** The whole row of one version, or null. */
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

  /** Records of one page, newest change first. */
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

  /** How many versions a filter without a part of a name finds, and the tenant's last change: three rows are read. */
  async totals({ tenant, version }: FunctionFilter): Promise<FunctionTotals> {
    const rows = await totalsPrepared(this.#db, { tenant, version });
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
    // Sorted here: with an ORDER BY, SQLite would walk through all of the tenant's functions in the order of their changes.
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
      // A search that minds the case in SQLite and PostgreSQL alike.
      .where(sql<boolean>`replace(name, ${namePart}, '') <> name`);
    return version === '' ? query : query.where('version', '=', version);
  }
}

/** Whether there is such a version; in a transaction as outside of one. */
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
