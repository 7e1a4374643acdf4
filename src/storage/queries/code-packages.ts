import { sql } from 'kysely';
import { codeUrl } from '../../core/code-package.ts';
import { alone } from '../alone.ts';
import type { Database, WriteTransaction } from '../database.ts';
import type { CodePackagePartTable, CodePackageTable } from '../schema.ts';

/**
 * Result of `dropCodePackage`. `user`: the function, agent or template that refers to the package.
 */
export type Dropped =
  | { readonly kind: 'missing' | 'recently used' }
  | { readonly kind: 'in use'; readonly user: string }
  | { readonly kind: 'dropped'; readonly row: CodePackageTable };

const lockOf = (tenant: string) => `code packages: ${tenant}`;

/**
 * Stores an uploaded package. Returns the stored record: an older record of the same content stays, and only
 * its use and sizes are updated. An upload that restores the lost bytes of the older record updates its
 * `place`. Returns null when the tenant would have more than `maxBytes`.
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
      .set({ used_at_ms: row.used_at_ms, unpacked_bytes: row.unpacked_bytes, place })
      .where('tenant', '=', row.tenant)
      .where('sha256', '=', row.sha256)
      .execute();
    return { ...before, place };
  }
  // Concurrent uploads passed an earlier check one by one, so check again here.
  const bytes = row.bytes + row.unpacked_bytes;
  if ((await codeBytesOf(transaction, row.tenant)) + bytes > maxBytes) return null;
  await transaction.insertInto('code_packages').values(row).execute();
  return row;
}

/** Records the unpacked size of a package that an earlier version of the service stored without it. */
export async function countUnpackedCode(
  transaction: WriteTransaction,
  tenant: string,
  sha256: string,
  unpackedBytes: number,
): Promise<void> {
  await transaction
    .updateTable('code_packages')
    .set({ unpacked_bytes: unpackedBytes })
    .where('tenant', '=', tenant)
    .where('sha256', '=', sha256)
    .where('unpacked_bytes', '=', 0)
    .execute();
}

/**
 * Marks a package as used before a reference to it is written. Returns false when the package does not exist;
 * then the caller must not write the reference.
 */
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
 * Deletes a package, unless a function version, an agent or a template refers to it. With `usedBeforeMs`,
 * also keeps a package that was used since. A referenced package then counts as used, so that it is not
 * checked again soon.
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

/** Deletes parts of interrupted uploads: parts without a record that are older than `beforeMs`. */
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

/** Returns one page of a tenant's packages, ordered by SHA-256. */
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

/** Returns the bytes of a tenant's packages on a disk: archives and unpacked files. */
export async function codeBytesOf(queries: Pick<Database, 'selectFrom'>, tenant: string): Promise<number> {
  const { bytes, unpacked } = await queries
    .selectFrom('code_packages')
    .select(({ fn }) => [
      fn.sum<number | null>('bytes').as('bytes'),
      fn.sum<number | null>('unpacked_bytes').as('unpacked'),
    ])
    .where('tenant', '=', tenant)
    .executeTakeFirstOrThrow();
  return Number(bytes ?? 0) + Number(unpacked ?? 0);
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

/** Returns the blobs that records refer to. */
export async function listCodeBlobs(database: Database): Promise<ReadonlySet<string>> {
  const rows = await database.selectFrom('code_packages').select('blob').execute();
  return new Set(rows.map(({ blob }) => blob));
}

/** Returns one part of a blob; null after the last one. */
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

/**
 * Returns a name for the function, agent or template that refers to the package, or null. Reads all of the
 * tenant's records, so only a removal calls it.
 */
async function userOf(transaction: WriteTransaction, tenant: string, sha256: string): Promise<string | null> {
  const url = `"${codeUrl(sha256)}"`;
  const fn = await transaction
    .selectFrom('functions')
    .select(['name', 'version'])
    .where('tenant', '=', tenant)
    .where(sql<boolean>`(record like ${`%"codePath":${url}%`} or record like ${`%"layers":[%${url}%`})`)
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
  if (agent !== undefined) return `agent ${agent.namespace}/${agent.name}`;
  const template = await transaction
    .selectFrom('template_builds')
    .select('name')
    .where('tenant', '=', tenant)
    .where('sha256', '=', sha256)
    .orderBy('name')
    .limit(1)
    .executeTakeFirst();
  return template === undefined ? null : `template ${template.name}`;
}
