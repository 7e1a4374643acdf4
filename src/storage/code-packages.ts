import { sql } from 'kysely';
import { codeUrl } from '../core/code-package.ts';
import { alone } from './alone.ts';
import type { Database, WriteTransaction } from './database.ts';

/** Row of `code_packages`: a tenant has uploaded this content. */
export interface CodePackageTable {
  tenant: string;
  sha256: string;
  /** Where its bytes are: `disk` of the only node, `store` (the object store), `database`. */
  place: 'disk' | 'store' | 'database';
  /** Each upload has one of its own, so that a removal never meets a newer upload. */
  blob: string;
  bytes: number;
  created_at_ms: number;
  /** When it was last uploaded, or something began to use it. */
  used_at_ms: number;
}

/** Row of `code_package_parts`: bytes of a package that is in the database. */
export interface CodePackagePartTable {
  blob: string;
  part: number;
  at_ms: number;
  content: Uint8Array;
}

/** What `dropCodePackage` found. `user`: what refers to it, so that it stays. */
export type Dropped =
  | { readonly kind: 'missing' | 'recently used' }
  | { readonly kind: 'in use'; readonly user: string }
  | { readonly kind: 'dropped'; readonly row: CodePackageTable };

const lockOf = (tenant: string) => `code packages: ${tenant}`;

/**
 * It is uploaded now. Answers the row that there is: an older one of the same content stays, and only counts as used. One whose bytes were lost
 * names the place where its blob is from now on. Null: with it the tenant would have more than `maxBytes`.
 */
export async function putCodePackage(
  transaction: WriteTransaction,
  row: CodePackageTable,
  maxBytes: number,
): Promise<CodePackageTable | null> {
  await alone(transaction, lockOf(row.tenant));
  const before = await find(transaction, row.tenant, row.sha256);
  if (before !== undefined) {
    const place = before.blob === row.blob ? row.place : before.place;
    await transaction
      .updateTable('code_packages')
      .set({ used_at_ms: row.used_at_ms, place })
      .where('tenant', '=', row.tenant)
      .where('sha256', '=', row.sha256)
      .execute();
    return { ...before, place };
  }
  // Of uploads at the same time each found room for itself.
  if ((await codeBytesOf(transaction, row.tenant)) + row.bytes > maxBytes) return null;
  await transaction.insertInto('code_packages').values(row).execute();
  return row;
}

/** False when it is not there. Then, and only then, nothing may be written that refers to it. */
export async function useCodePackage(
  transaction: WriteTransaction,
  tenant: string,
  sha256: string,
  nowMs: number,
): Promise<boolean> {
  await alone(transaction, lockOf(tenant));
  return await touch(transaction, tenant, sha256, nowMs);
}

/**
 * Unless something refers to it: a version of a function, an agent. With `usedBeforeMs`, also unless it was used since; one that is referred to
 * counts as used then, so that nobody looks again soon.
 */
export async function dropCodePackage(
  transaction: WriteTransaction,
  tenant: string,
  sha256: string,
  usedBeforeMs: number | null,
  nowMs: number,
): Promise<Dropped> {
  await alone(transaction, lockOf(tenant));
  const row = await find(transaction, tenant, sha256);
  if (row === undefined) return { kind: 'missing' };
  if (usedBeforeMs !== null && row.used_at_ms >= usedBeforeMs) return { kind: 'recently used' };
  const user = await userOf(transaction, tenant, sha256);
  if (user !== null) {
    if (usedBeforeMs !== null) await touch(transaction, tenant, sha256, nowMs);
    return { kind: 'in use', user };
  }
  await transaction.deleteFrom('code_packages').where('tenant', '=', tenant).where('sha256', '=', sha256).execute();
  await transaction.deleteFrom('code_package_parts').where('blob', '=', row.blob).execute();
  return { kind: 'dropped', row: { ...row } };
}

export async function putCodePackagePart(transaction: WriteTransaction, row: CodePackagePartTable): Promise<void> {
  await transaction.insertInto('code_package_parts').values(row).execute();
}

/** Parts of uploads that were cut off: no row names them, and they are older. */
export async function dropLostCodeParts(transaction: WriteTransaction, beforeMs: number): Promise<void> {
  await transaction
    .deleteFrom('code_package_parts')
    .where('at_ms', '<', beforeMs)
    .where('blob', 'not in', transaction.selectFrom('code_packages').select('blob'))
    .execute();
}

export async function findCodePackage(
  database: Database,
  tenant: string,
  sha256: string,
): Promise<CodePackageTable | null> {
  return (await find(database, tenant, sha256)) ?? null;
}

/** One page of a tenant's, ordered by SHA-256. */
export async function listCodePackages(
  database: Database,
  { tenant, after, limit }: { readonly tenant: string; readonly after: string; readonly limit: number },
): Promise<readonly CodePackageTable[]> {
  return await database
    .selectFrom('code_packages')
    .selectAll()
    .where('tenant', '=', tenant)
    .where('sha256', '>', after)
    .orderBy('sha256')
    .limit(limit)
    .execute();
}

export async function codeBytesOf(queries: Pick<Database, 'selectFrom'>, tenant: string): Promise<number> {
  const { bytes } = await queries
    .selectFrom('code_packages')
    .select(({ fn }) => fn.sum<number | null>('bytes').as('bytes'))
    .where('tenant', '=', tenant)
    .executeTakeFirstOrThrow();
  return Number(bytes ?? 0);
}

export async function listUnusedCodePackages(
  database: Database,
  usedBeforeMs: number,
): Promise<readonly CodePackageTable[]> {
  return await database
    .selectFrom('code_packages')
    .selectAll()
    .where('used_at_ms', '<', usedBeforeMs)
    .orderBy('used_at_ms')
    .limit(SOME)
    .execute();
}

const SOME = 500;

/** The blobs that rows name. */
export async function listCodeBlobs(database: Database): Promise<ReadonlySet<string>> {
  const rows = await database.selectFrom('code_packages').select('blob').execute();
  return new Set(rows.map(({ blob }) => blob));
}

/** Null behind the last one. */
export async function readCodePackagePart(database: Database, blob: string, part: number): Promise<Uint8Array | null> {
  const row = await database
    .selectFrom('code_package_parts')
    .select('content')
    .where('blob', '=', blob)
    .where('part', '=', part)
    .executeTakeFirst();
  return row?.content ?? null;
}

async function find(
  queries: Pick<Database, 'selectFrom'>,
  tenant: string,
  sha256: string,
): Promise<CodePackageTable | undefined> {
  return await queries
    .selectFrom('code_packages')
    .selectAll()
    .where('tenant', '=', tenant)
    .where('sha256', '=', sha256)
    .executeTakeFirst();
}

async function touch(transaction: WriteTransaction, tenant: string, sha256: string, nowMs: number): Promise<boolean> {
  const { numUpdatedRows } = await transaction
    .updateTable('code_packages')
    .set({ used_at_ms: nowMs })
    .where('tenant', '=', tenant)
    .where('sha256', '=', sha256)
    .executeTakeFirstOrThrow();
  return numUpdatedRows === 1n;
}

/** Who refers to it, as a caller knows it. A look at all of the tenant's rows: it happens for a removal only. */
async function userOf(transaction: WriteTransaction, tenant: string, sha256: string): Promise<string | null> {
  const url = `"${codeUrl(sha256)}"`;
  const fn = await transaction
    .selectFrom('functions')
    .select(['name', 'version'])
    .where('tenant', '=', tenant)
    .where(sql<boolean>`record like ${`%"codePath":${url}%`}`)
    .orderBy('name')
    .orderBy('version')
    .limit(1)
    .executeTakeFirst();
  if (fn !== undefined) return `function ${fn.name}:${fn.version}`;
  const agent = await transaction
    .selectFrom('instances')
    .select(['namespace', 'name'])
    .where('tenant', '=', tenant)
    .where('owner_kind', '=', 'agent')
    .where(sql<boolean>`spec like ${`%"source":${url}%`}`)
    .orderBy('namespace')
    .orderBy('name')
    .limit(1)
    .executeTakeFirst();
  return agent === undefined ? null : `agent ${agent.namespace}/${agent.name}`;
}
