import { META_CODES } from '../core/codes.ts';
import { invalidRequest, type ServiceError } from '../core/error.ts';
import { isJsonObject } from '../core/json.ts';
import type { Pool, PoolSpec } from '../core/pool.ts';
import { type PoolUpdate, readPool } from '../core/pool.ts';
import type { Checked } from '../core/problem.ts';
import type { Database } from '../storage/database.ts';
import { listPools, type PoolFilter } from '../storage/queries/pools.ts';
import type { DurableWrites } from '../storage/writes/durable.ts';
import { changePool, createPools, removeDeleted, removePools, reportSeen } from './pool-writes.ts';

/** Result of creating several pools. */
export interface CreatedPools {
  /** Ids of the pools that were not created; `''` for a pool without an id. */
  readonly failedIds: readonly string[];
  /** Reasons, one sentence each. */
  readonly problems: readonly string[];
}

/** Rules of a cluster for its pools. */
export interface PoolRules {
  /** Returns the reason why the cluster refuses a pool, or null. */
  refusal(spec: PoolSpec): string | null;
  /** Returns, as JSON, the anti-affinities to pods of other pools; `''` if there are none. */
  antiAffinities(spec: PoolSpec): string;
}

export interface PoolRegistryOptions {
  readonly database: Database;
  readonly writes: DurableWrites;
  /** Images that pools may name; null: authentication is off, and every image is allowed. */
  readonly images: readonly string[] | null;
}

const PAGE_OF_ALL = 1000;

/**
 * Records and states of the cluster's pod pools. If there is a Kubernetes backend, a controller applies them.
 */
export class PoolRegistry {
  readonly #database: Database;
  readonly #writes: DurableWrites;
  readonly #images: readonly string[] | null;
  readonly #listeners = new Set<() => void>();
  #rules: PoolRules | null = null;

  constructor({ database, writes, images }: PoolRegistryOptions) {
    this.#database = database;
    this.#writes = writes;
    this.#images = images;
  }

  /** Sets the cluster that applies the pools. */
  actedOnBy(rules: PoolRules): void {
    this.#rules = rules;
  }

  /** Returns the anti-affinities; `''` without a cluster. */
  antiAffinities({ spec }: Pool): string {
    return this.#rules?.antiAffinities(spec) ?? '';
  }

  /** Subscribes to creates, updates and deletes of pools. Returns the function that unsubscribes. */
  onChange(listener: () => void): () => void {
    this.#listeners.add(listener);
    return () => this.#listeners.delete(listener);
  }

  /** Notifies subscribers that this or another replica changed pools. */
  changed(): void {
    for (const listener of this.#listeners) listener();
  }

  /** Creates each pool on its own: a refused pool does not affect the others. */
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

  /** Returns one page (counted from 1), latest change first, and the total count. */
  list(filter: PoolFilter, page: number, limit: number): Promise<{ count: number; pools: Pool[] }> {
    return listPools(this.#database, filter, limit, (page - 1) * limit);
  }

  /**
   * Updates a pool. Fails with `not_found` (4120), or with 4104 if its state or its sizes do not allow the
   * change.
   */
  async update(id: string, update: PoolUpdate): Promise<void> {
    await this.#writes.write(changePool, id, update);
    this.changed();
  }

  /**
   * Deletes a pool at once if no controller has started it; otherwise marks it for its controller. Fails with
   * `not_found` (4120).
   */
  async delete(filter: PoolFilter): Promise<void> {
    await this.#writes.write(removePools, filter);
    this.changed();
  }

  #allowed(read: Checked<PoolSpec>): Checked<PoolSpec> {
    const refusal = read.ok ? this.refusal(read.value) : null;
    return refusal === null ? read : { ok: false, problems: [refusal] };
  }

  /**
   * Returns the reason why a pool may have no pods, or null. A pool stored before a setting changed may be
   * refused now.
   */
  refusal(spec: PoolSpec): string | null {
    const image = [spec.image, spec.init_image].find(name => name !== '' && this.#images?.includes(name) === false);
    return image === undefined ? (this.#rules?.refusal(spec) ?? null) : `image is not allowed: ${image}`;
  }

  /** Returns all pools, for the controller. */
  async all(): Promise<Pool[]> {
    const pools: Pool[] = [];
    for (let page = 1; ; page += 1) {
      const found = await this.list({ id: '', group: '' }, page, PAGE_OF_ALL);
      pools.push(...found.pools);
      if (found.pools.length < PAGE_OF_ALL) return pools;
    }
  }

  /**
   * Writes the controller's report. Returns false if the pool is deleted or its state does not allow the
   * report.
   */
  report(id: string, report: Omit<Pool, 'spec'>): Promise<boolean> {
    return this.#writes.write(reportSeen, id, report);
  }

  /** Removes a deleting pool whose pods are removed; called by the controller. */
  remove(id: string): Promise<void> {
    return this.#writes.write(removeDeleted, id);
  }
}

/** Returns the error of a create in which pools failed. */
export function failedPools({ failedIds, problems }: CreatedPools): ServiceError {
  return invalidRequest(problems.join(';'), {
    number: META_CODES.invalid.code,
    body: { result: { failed_pools: failedIds } },
  });
}
