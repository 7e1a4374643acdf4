import { alone } from './alone.ts';
import type { Database, WriteTransaction } from './database.ts';

/** Row of `job_packages`: somebody has this package. Written only where there are several nodes, or an object store. */
export interface JobPackageTable {
  tenant: string;
  name: string;
  /** `''`: the object store, under `object`. */
  node_id: string;
  /** Which process of that node said so last. */
  node_epoch: number;
  /** The key of the object; `''` for a node. Each upload has one of its own, so that a removal never meets a newer upload. */
  object: string;
  bytes: number;
  sha256: string;
  /** When it was last uploaded or asked for, on any node. */
  used_at_ms: number;
}

/** Lock and topic of the packages: one transaction at a time changes and publishes who has which package. */
export const PACKAGES = 'jobs: packages';

/**
 * Somebody has it now. Answers the key of the object that this one replaces, `''` when there was none; null, and nothing is written: that
 * node, or the object store, has `most` of the tenant already.
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
  // Of uploads at the same time each found room for itself.
  if (before === undefined && (await countPackagesOf(transaction, tenant, node_id)) >= most) return null;
  await transaction
    .insertInto('job_packages')
    .values(row)
    .onConflict(conflict => conflict.columns(['tenant', 'name', 'node_id']).doUpdateSet(facts))
    .execute();
  return before === undefined || before.object === row.object ? '' : before.object;
}

/** Who has it, used as of now: the object store (`''`) first. */
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

/** Of one node, or of the object store (`''`): those that nobody has used since. */
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

/** False when it was used since, uploaded again, or is gone: then it stays. */
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

/** Whether anybody was told that this node has it. */
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

/** A new process of a node has exactly the packages that it finds on its disk. */
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

/** The keys of all objects that a row names. */
export async function listPackageObjects(database: Database): Promise<ReadonlySet<string>> {
  const rows = await database.selectFrom('job_packages').select('object').where('node_id', '=', '').execute();
  return new Set(rows.map(({ object }) => object));
}
