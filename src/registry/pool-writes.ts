import {
  mergePoolUpdate,
  POOL_STATUS,
  type Pool,
  type PoolSpec,
  type PoolUpdate,
  statesBefore,
  statusAfterUpdate,
  WAITING_MSG,
} from '../core/pool.ts';
import { alone } from '../storage/alone.ts';
import type { WriteTransaction } from '../storage/database.ts';
import { publish } from '../storage/queries/feed.ts';
import {
  deletePools,
  holdPools,
  insertPool,
  type PoolFilter,
  reportPool,
  TOPIC_POOLS,
  updatePool,
} from '../storage/queries/pools.ts';
import { poolNotFound, wrongForStored } from './errors.ts';

/** Changes of pools: write operations of `DurableWrites`. `PoolRegistry` lists their errors. */

/** Lock of all pools, whose changes have one common sequence of numbers. */
const POOLS = 'pools';

/** Creates pools. Returns for each whether it was created; false if its id is taken. */
export async function createPools(transaction: WriteTransaction, specs: readonly PoolSpec[]): Promise<boolean[]> {
  await alone(transaction, POOLS);
  const isCreated: boolean[] = [];
  for (const spec of specs) {
    isCreated.push(await insertPool(transaction, { spec, status: POOL_STATUS.new, msg: WAITING_MSG, readyCount: 0 }));
  }
  await publish(transaction, TOPIC_POOLS, null);
  return isCreated;
}

export async function changePool(transaction: WriteTransaction, id: string, update: PoolUpdate): Promise<void> {
  const pool = await holdPool(transaction, id);
  if (pool === undefined) throw poolNotFound();
  const status = statusAfterUpdate(pool.status);
  if (status === null) {
    const doing = pool.status === POOL_STATUS.deleting ? 'is deleting' : 'has an update that has not begun';
    throw wrongForStored(`pool ${id} cannot be updated now: it ${doing}`);
  }
  const merged = mergePoolUpdate(pool.spec, update);
  if (!merged.ok) throw wrongForStored(`failed to update pod pool, id: ${id}, err: ${merged.problems.join(', ')}`);
  await updatePool(transaction, { ...pool, spec: merged.value, status });
  await publish(transaction, TOPIC_POOLS, id);
}

/** Deletes pools that no controller has started, and marks the others for their controller. */
export async function removePools(transaction: WriteTransaction, filter: PoolFilter): Promise<void> {
  await alone(transaction, POOLS);
  const found = await holdPools(transaction, filter);
  if (found.length === 0) throw poolNotFound();
  const untouched = found.filter(pool => pool.status === POOL_STATUS.new).map(pool => pool.spec.id);
  if (untouched.length > 0) await deletePools(transaction, untouched);
  for (const pool of found) {
    if (pool.status === POOL_STATUS.new || pool.status === POOL_STATUS.deleting) continue;
    await updatePool(transaction, { ...pool, status: POOL_STATUS.deleting, msg: 'deleting' });
  }
  await publish(transaction, TOPIC_POOLS, null);
}

/**
 * Writes a controller's report. Returns false if the pool is deleted or its state does not allow the report.
 */
export async function reportSeen(
  transaction: WriteTransaction,
  id: string,
  report: Omit<Pool, 'spec'>,
): Promise<boolean> {
  const pool = await holdPool(transaction, id);
  if (pool === undefined || !statesBefore(report.status).includes(pool.status)) return false;
  await reportPool(transaction, id, report);
  return true;
}

/** Removes a deleting pool whose pods are removed. */
export async function removeDeleted(transaction: WriteTransaction, id: string): Promise<void> {
  const pool = await holdPool(transaction, id);
  if (pool?.status === POOL_STATUS.deleting) await deletePools(transaction, [id]);
}

async function holdPool(transaction: WriteTransaction, id: string): Promise<Pool | undefined> {
  await alone(transaction, POOLS);
  // In a filter, an empty id would mean any pool.
  return id === '' ? undefined : (await holdPools(transaction, { id, group: '' }))[0];
}
