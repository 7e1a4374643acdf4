import { alone } from '../alone.ts';
import type { Database, WriteTransaction } from '../database.ts';
import type { JobPackageTable } from '../schema.ts';

/** Lock and feed topic of the packages: one transaction at a time changes and publishes their locations. */
export const PACKAGES = 'jobs: packages';

/**
 * Records that a node or the object store has a package. Returns the key of the replaced object, `''` without
 * one. Returns null and writes nothing when the node or store has `most` packages of the tenant already.
 */
export async function putJobPackage(
  transaction: WriteTransaction,
  row: JobPackageTable,
  most: number,
): Promise<string | null> {
  await alone(transaction, PACKAGES);
  const { tenant, name, node_id, ...facts } = row;
  const before = await transaction
    .selectFrom('job_packages')
    .select('object')
    .where('tenant', '=', tenant)
    .where('name', '=', name)
    .where('node_id', '=', node_id)
    .executeTakeFirst();
  // Concurrent uploads passed an earlier check one by one, so check again here.
  if (before === undefined && (await countPackagesOf(transaction, tenant, node_id)) >= most) return null;
  await transaction
    .insertInto('job_packages')
    .values(row)
    .onConflict(conflict => conflict.columns(['tenant', 'name', 'node_id']).doUpdateSet(facts))
    .execute();
  return before === undefined || before.object === row.object ? '' : before.object;
}

/** Returns the locations of a package, the object store (`''`) first, and marks them as used now. */
export async function useJobPackage(
  transaction: WriteTransaction,
  tenant: string,
  name: string,
  nowMs: number,
): Promise<readonly JobPackageTable[]> {
  await alone(transaction, PACKAGES);
  const rows = await transaction
    .updateTable('job_packages')
    .set({ used_at_ms: nowMs })
    .where('tenant', '=', tenant)
    .where('name', '=', name)
    .returningAll()
    .execute();
  return rows.map(row => ({ ...row })).sort((one, other) => (one.node_id < other.node_id ? -1 : 1));
}

/**
 * Returns the packages of a node, or of the object store (`''`), that were last used before `usedBeforeMs`.
 */
export async function listUnusedPackages(
  database: Database,
  nodeId: string,
  usedBeforeMs: number,
): Promise<readonly JobPackageTable[]> {
  return await database
    .selectFrom('job_packages')
    .selectAll()
    .where('node_id', '=', nodeId)
    .where('used_at_ms', '<', usedBeforeMs)
    .orderBy('tenant')
    .orderBy('name')
    .execute();
}

export async function countPackagesOf(
  queries: Pick<Database, 'selectFrom'>,
  tenant: string,
  nodeId: string,
): Promise<number> {
  const { count } = await queries
    .selectFrom('job_packages')
    .select(({ fn }) => fn.countAll<number>().as('count'))
    .where('tenant', '=', tenant)
    .where('node_id', '=', nodeId)
    .executeTakeFirstOrThrow();
  return Number(count);
}

/**
 * Deletes the record of a package. Returns false and keeps it when it was used since, uploaded again, or
 * already deleted.
 */
export async function dropJobPackage(
  transaction: WriteTransaction,
  { tenant, name, node_id, object }: Pick<JobPackageTable, 'tenant' | 'name' | 'node_id' | 'object'>,
  usedBeforeMs: number,
): Promise<boolean> {
  await alone(transaction, PACKAGES);
  const { numDeletedRows } = await transaction
    .deleteFrom('job_packages')
    .where('tenant', '=', tenant)
    .where('name', '=', name)
    .where('node_id', '=', node_id)
    .where('object', '=', object)
    .where('used_at_ms', '<', usedBeforeMs)
    .executeTakeFirstOrThrow();
  return numDeletedRows === 1n;
}

/** Returns true when a record says that this node has the package. */
export async function hasJobPackage(
  database: Database,
  { tenant, name, node_id }: Pick<JobPackageTable, 'tenant' | 'name' | 'node_id'>,
): Promise<boolean> {
  const found = await database
    .selectFrom('job_packages')
    .select('name')
    .where('tenant', '=', tenant)
    .where('name', '=', name)
    .where('node_id', '=', node_id)
    .executeTakeFirst();
  return found !== undefined;
}

/** Replaces the records of a node by the packages that its new process found on its disk. */
export async function replacePackagesOfNode(
  transaction: WriteTransaction,
  nodeId: string,
  rows: readonly JobPackageTable[],
): Promise<void> {
  await alone(transaction, PACKAGES);
  await transaction.deleteFrom('job_packages').where('node_id', '=', nodeId).execute();
  for (let at = 0; at < rows.length; at += SOME) {
    await transaction
      .insertInto('job_packages')
      .values(rows.slice(at, at + SOME))
      .execute();
  }
}

const SOME = 500;

/** Returns the keys of all objects that records refer to. */
export async function listPackageObjects(database: Database): Promise<ReadonlySet<string>> {
  const rows = await database.selectFrom('job_packages').select('object').where('node_id', '=', '').execute();
  return new Set(rows.map(({ object }) => object));
}
