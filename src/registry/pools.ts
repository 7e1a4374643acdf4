import { META_CODES } from '../core/codes.ts';
import { invalidRequest, type ServiceError } from '../core/error.ts';
import { isJsonObject } from '../core/json.ts';
import type { Pool, PoolSpec } from '../core/pool.ts';
import { type PoolUpdate, readPool } from '../core/pool-fields.ts';
import type { Checked } from '../core/problem.ts';
import type { Database } from '../storage/database.ts';
import type { DurableWrites } from '../storage/durable.ts';
import { listPools, type PoolFilter } from '../storage/pools.ts';
import { changePool, createPools, removeDeleted, removePools, reportSeen } from './pool-writes.ts';

/** The outcome for the pools of one create. */
export interface CreatedPools {
  /** Ids of those that were not created; `''` for one that has no id. */
  readonly failedIds: readonly string[];
  /** Why, one sentence each. */
  readonly problems: readonly string[];
}

/** What a cluster says to pools. */
export interface PoolRules {
  /** Why a pool may not be made there, or null. */
  refusal(spec: PoolSpec): string | null;
  /** JSON of what keeps its pods away from those of other pools, `''` when nothing does. */
  antiAffinities(spec: PoolSpec): string;
}

const PAGE_OF_ALL = 1000;

/** Pod pools of the cluster: their records and states. A controller acts on them where there is a Kubernetes backend. */
export class PoolRegistry {
  readonly #database: Database;
  readonly #writes: DurableWrites;
  readonly #listeners = new Set<() => void>();
  #rules: PoolRules | null = null;

  constructor(database: Database, writes: DurableWrites) {
    this.#database = database;
    this.#writes = writes;
  }

  /** From now on a cluster acts on the pools. */
  actedOnBy(rules: PoolRules): void {
    this.#rules = rules;
  }

  /** `''` without a cluster. */
  antiAffinities({ spec }: Pool): string {
    return this.#rules?.antiAffinities(spec) ?? '';
  }

  /** Calls back when pools were created, updated or deleted. The returned function ends it. */
  onChange(listener: () => void): () => void {
    this.#listeners.add(listener);
    return () => this.#listeners.delete(listener);
  }

  /** Calls them: this or another replica changed pools. */
  changed(): void {
    for (const listener of this.#listeners) listener();
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
      return { id, read: this.#allowed(read) };
    });
    const good = checked.flatMap(({ read }) => (read.ok ? [read.value] : []));
    const isCreated = good.length === 0 ? [] : await this.#writes.write(createPools, good);
    let at = 0;
    for (const { id, read } of checked) {
      if (!read.ok) fail(id, read.problems);
      else if (isCreated[at++] === false) fail(id, ['pool id already exists or is deleting']);
    }
    if (good.length > 0) this.changed();
    return { failedIds, problems };
  }

  /** One page (counted from 1), newest change first, and how many there are in all. */
  list(filter: PoolFilter, page: number, limit: number): Promise<{ count: number; pools: Pool[] }> {
    return listPools(this.#database, filter, limit, (page - 1) * limit);
  }

  /** Fails with `not_found` (4120), or with 4104 for what its state or its sizes do not allow. */
  async update(id: string, update: PoolUpdate): Promise<void> {
    await this.#writes.write(changePool, id, update);
    this.changed();
  }

  /** A pool that no controller has begun is gone at once; others are marked for theirs. Fails with `not_found` (4120). */
  async delete(filter: PoolFilter): Promise<void> {
    await this.#writes.write(removePools, filter);
    this.changed();
  }

  #allowed(read: Checked<PoolSpec>): Checked<PoolSpec> {
    const refusal = read.ok ? (this.#rules?.refusal(read.value) ?? null) : null;
    return refusal === null ? read : { ok: false, problems: [refusal] };
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
    return this.#writes.write(reportSeen, id, report);
  }

  /** For the controller: a deleting pool whose pods are gone. */
  remove(id: string): Promise<void> {
    return this.#writes.write(removeDeleted, id);
  }
}

/** The error of a create in which pools failed. */
export function failedPools({ failedIds, problems }: CreatedPools): ServiceError {
  return invalidRequest(problems.join(';'), {
    number: META_CODES.invalid.code,
    body: { result: { failed_pools: failedIds } },
  });
}
