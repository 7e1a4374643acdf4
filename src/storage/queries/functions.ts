import { type Kysely, type Selectable, sql } from 'kysely';
import type { Tables } from '../database.ts';
import { prepare } from '../prepared.ts';
import type { FunctionTable } from '../schema/functions.ts';

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
