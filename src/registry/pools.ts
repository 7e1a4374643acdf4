import { META_CODES } from '../core/codes.ts';
import { invalidRequest, type ServiceError } from '../core/error.ts';
import { isJsonObject } from '../core/field-reader.ts';
import { POOL_STATUS, type Pool, type PoolSpec, statesBefore, statusAfterUpdate, WAITING_MSG } from '../core/pool.ts';
import { mergePoolUpdate, type PoolUpdate, readPool } from '../core/pool-fields.ts';
import type { Database } from '../storage/database.ts';
import type { DurableWrites } from '../storage/durable.ts';
import {
  deletePools,
  holdPools,
  insertPool,
  listPools,
  type PoolFilter,
  reportPool,
  updatePool,
} from '../storage/pools.ts';
import { poolNotFound, wrongForStored } from './errors.ts';

/** What became of the pools of one create. */
export interface CreatedPools {
  /** Ids of those that were not created; `''` for one that has no id. */
  readonly failedIds: readonly string[];
  /** Why, one sentence each. */
  readonly problems: readonly string[];
}

const PAGE_OF_ALL = 1000;

/** Pod pools of the cluster: their records and states. A controller acts on them where there is a Kubernetes backend. */
export class PoolRegistry {
  readonly #database: Database;
  readonly #writes: DurableWrites;

  constructor(database: Database, writes: DurableWrites) {
    this.#database = database;
    this.#writes = writes;
  }

  /** Creates each pool on its own: bad ones do not keep the good ones from being created. */
  async create(pools: readonly unknown[]): Promise<CreatedPools> {
    const failedIds: string[] = [];
    const problems: string[] = [];
    const fail = (id: string, reasons: readonly string[]) => {
      failedIds.push(id);
      problems.push(`failed to create pod pool, id: ${id}, err: ${reasons.join(', ')}`);
    };
    const checked = pools.map(pool => {
      const id = isJsonObject(pool) && typeof pool.id === 'string' ? pool.id : '';
      const read = isJsonObject(pool) ? readPool(pool) : { ok: false as const, problems: ['a pool must be an object'] };
      return { id, read };
    });
    const good = checked.flatMap(({ read }) => (read.ok ? [read.value] : []));
    const taken = good.length === 0 ? new Set<PoolSpec>() : await this.#writes.write(tx => insertAll(tx, good));
    for (const { id, read } of checked) {
      if (!read.ok) fail(id, read.problems);
      else if (taken.has(read.value)) fail(id, ['pool id already exists or is deleting']);
    }
    return { failedIds, problems };
  }

  /** One page (counted from 1), newest change first, and how many there are in all. */
  list(filter: PoolFilter, page: number, limit: number): Promise<{ count: number; pools: Pool[] }> {
    return listPools(this.#database, filter, limit, (page - 1) * limit);
  }

  /** Fails with `not_found` (4120), or with 4104 for what its state or its sizes do not allow. */
  async update(id: string, update: PoolUpdate): Promise<void> {
    await this.#writes.write(async transaction => {
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
    });
  }

  /** A pool that no controller has begun is gone at once; others are marked for theirs. Fails with `not_found` (4120). */
  async delete(filter: PoolFilter): Promise<void> {
    await this.#writes.write(async transaction => {
      const found = await holdPools(transaction, filter);
      if (found.length === 0) throw poolNotFound();
      const untouched = found.filter(pool => pool.status === POOL_STATUS.new).map(pool => pool.spec.id);
      if (untouched.length > 0) await deletePools(transaction, untouched);
      for (const pool of found) {
        if (pool.status === POOL_STATUS.new || pool.status === POOL_STATUS.deleting) continue;
        await updatePool(transaction, { ...pool, status: POOL_STATUS.deleting, msg: 'deleting' });
      }
    });
  }

  /** For the controller: every pool that there is. */
  async all(): Promise<Pool[]> {
    const pools: Pool[] = [];
    for (let page = 1; ; page += 1) {
      const found = await this.list({ id: '', group: '' }, page, PAGE_OF_ALL);
      pools.push(...found.pools);
      if (found.pools.length < PAGE_OF_ALL) return pools;
    }
  }

  /** For the controller: writes what it saw, if the pool's state allows it. False: it does not, or the pool is gone. */
  report(id: string, report: Omit<Pool, 'spec'>): Promise<boolean> {
    return this.#writes.write(async transaction => {
      const pool = await holdPool(transaction, id);
      if (pool === undefined || !statesBefore(report.status).includes(pool.status)) return false;
      await reportPool(transaction, id, report);
      return true;
    });
  }

  /** For the controller: a deleting pool whose pods are gone. */
  remove(id: string): Promise<void> {
    return this.#writes.write(async transaction => {
      const pool = await holdPool(transaction, id);
      if (pool?.status === POOL_STATUS.deleting) await deletePools(transaction, [id]);
    });
  }
}

async function holdPool(transaction: Database, id: string): Promise<Pool | undefined> {
  // In a filter, an empty id would mean any pool.
  return id === '' ? undefined : (await holdPools(transaction, { id, group: '' }))[0];
}

/** Answers the pools whose id was taken. */
async function insertAll(transaction: Database, specs: readonly PoolSpec[]): Promise<Set<PoolSpec>> {
  const taken = new Set<PoolSpec>();
  for (const spec of specs) {
    const pool = { spec, status: POOL_STATUS.new, msg: WAITING_MSG, readyCount: 0 };
    if (!(await insertPool(transaction, pool))) taken.add(spec);
  }
  return taken;
}

/** The error of a create in which pools failed. */
export function failedPools({ failedIds, problems }: CreatedPools): ServiceError {
  return invalidRequest(problems.join(';'), {
    number: META_CODES.invalid.code,
    body: { result: { failed_pools: failedIds } },
  });
}
