import { isAbsolute } from 'node:path';
import { LRUCache } from 'lru-cache';
import { ServiceError } from '../core/error.ts';
import type { FunctionSpec, FunctionUpdate, FunctionVersion } from '../core/function.ts';
import { formatTimestamp, nextRevisionId, type PublishRequest } from '../core/revision.ts';
import { formatUrn, LATEST } from '../core/urn.ts';
import type { PathExists } from '../lib/path-lookup.ts';
import type { FunctionFilter, FunctionStore } from '../storage/queries/functions.ts';
import type { DurableWrites } from '../storage/writes/durable.ts';
import { type ChangeFeed, RecordCache } from './change-feed.ts';
import { functionNotFound, versionNotFound, wrongForStored } from './errors.ts';
import { asUnavailable, fromStored, toStored } from './function-record.ts';
import {
  deleteFunction,
  publishFunction,
  registerFunction,
  updateFunction,
  type WrittenFunction,
} from './function-writes.ts';

/** Fields that determine the dependencies of a version. */
const PREPARED = ['dependencies', 'codePath', 'storageType', 'rootfs', 'runtime'] as const;

export interface FunctionRegistryOptions {
  readonly store: FunctionStore;
  readonly writes: DurableWrites;
  readonly changes: ChangeFeed;
  /** Business part of URNs. */
  readonly business: string;
  readonly now: () => number;
  /** Returns true if a path of this host exists. */
  readonly exists: PathExists;
  /** Prepares the dependencies of a version. Fails with a `ServiceError`. Absent: no preparation. */
  readonly prepare?: (tenant: string, spec: FunctionSpec) => Promise<void>;
  /** True if other processes write to the database too; then records are not cached. */
  readonly isShared: boolean;
}

/**
 * Stored functions and their rules. A write that a method has acknowledged survives a power cut. The
 * transaction decides which of several concurrent writes with the same name, number or revision wins. Names
 * and versions must be normalized (`$latest`).
 */
export class FunctionRegistry {
  readonly #options: FunctionRegistryOptions;
  readonly #cache = new RecordCache();

  constructor(options: FunctionRegistryOptions) {
    this.#options = options;
  }

  /** Registers a function. Fails with `already_exists` (4101). */
  async register(tenant: string, spec: FunctionSpec): Promise<WrittenFunction> {
    const { writes, changes, business } = this.#options;
    if (spec.dependencies !== '') await this.#prepare(tenant, spec);
    const now = this.#options.now();
    const fn: FunctionVersion = {
      tenant,
      business,
      version: LATEST,
      urn: formatUrn({ business, tenant, name: spec.name, version: LATEST }),
      revisionId: nextRevisionId(now, null),
      versionDesc: '',
      createTime: formatTimestamp(now),
      publishTime: '',
      updateTime: '',
      spec,
    };
    const row = { ...toStored(fn), default_published_at_ms: 0 };
    // The cache has no entry for the new function, because missing records are not cached.
    await writes.write(registerFunction, row, now);
    // A new function has no reservations.
    const mayKeepInstances = spec.kind === 'faas' && spec.minInstance > 0;
    changes.emit({ kind: 'registered', tenant, name: spec.name, version: LATEST, mayKeepInstances });
    return { urn: fn.urn, record: row.record };
  }

  /**
   * Returns the record of a version as JSON text, with its current status. Fails with `not_found` (4115).
   */
  async read(tenant: string, name: string, version: string): Promise<string> {
    const { store, exists, isShared } = this.#options;
    const load = () => store.find({ tenant, name, version });
    const found = isShared ? await load() : await this.#cache.read(`${tenant}:${name}:${version}`, load);
    if (found === null) throw await this.#missing(tenant, name, version);
    const { record, host_code_path: path } = found;
    // A relative path names nothing on the host, whatever the working directory of the service contains.
    return path === '' || (isAbsolute(path) && (await exists(path))) ? record : asUnavailable(record);
  }

  /** Returns one version, to run it. Fails with `not_found` (4115). */
  async get(tenant: string, name: string, version: string): Promise<FunctionVersion> {
    const row = await this.#options.store.findRow({ tenant, name, version });
    if (row === null) throw await this.#missing(tenant, name, version);
    return fromStored(row);
  }

  /**
   * Returns the latest revisions of a tenant's functions, ordered by name and beginning behind the name
   * `after`, as records in JSON.
   */
  latestByName(tenant: string, after: string, limit: number): Promise<readonly string[]> {
    return this.#options.store.latestByName(tenant, after, limit);
  }

  /** Returns a number that grows with every change of the tenant's functions. */
  async lastChange(tenant: string): Promise<number> {
    return (await this.#options.store.totals({ tenant, version: LATEST, namePart: '' })).lastChange;
  }

  /** Returns one page of a function's versions, latest change first. Total 0: the function does not exist. */
  async versions(tenant: string, name: string, pageIndex: number, pageSize: number) {
    return this.#options.store.versions(tenant, name, pageSize, (pageIndex - 1) * pageSize);
  }

  /**
   * Publishes the latest revision as a version, which never changes. Checks in this order: `not_found`
   * (4115), another kind (4104), a stale revision (4134), a malformed number (4104), a duplicate number
   * (4114), too many versions (4110).
   */
  async publish(tenant: string, name: string, request: PublishRequest): Promise<WrittenFunction> {
    const { writes, changes, now } = this.#options;
    const published = await writes.write(publishFunction, tenant, name, request, now());
    changes.emit({ kind: 'published', tenant, name, version: published.version, mayKeepInstances: true });
    return published;
  }

  /**
   * Updates the latest revision. Fails in this order with `not_found` (4115), a stale revision (4134), an
   * impossible change (4104).
   */
  async update(tenant: string, name: string, update: FunctionUpdate): Promise<WrittenFunction> {
    const { writes, changes, now } = this.#options;
    if (PREPARED.some(field => update.changes[field] !== undefined)) {
      const { spec } = await this.get(tenant, name, LATEST);
      const next = { ...spec, ...update.changes };
      if (next.dependencies !== '' && update.changes.dependencies !== '') await this.#prepare(tenant, next);
    }
    const updated = await this.#cache.changing(() => writes.write(updateFunction, tenant, name, update, now()));
    changes.emit({ kind: 'updated', tenant, name, version: LATEST, mayKeepInstances: true });
    return updated;
  }

  /**
   * Deletes one published version, or with `$latest` the whole function, and their reservations. Fails with
   * `not_found` (4115).
   */
  async delete(tenant: string, name: string, version: string): Promise<void> {
    const { writes, changes } = this.#options;
    const only = version === LATEST ? null : version;
    await this.#cache.changing(() => writes.write(deleteFunction, tenant, name, only));
    changes.emit({ kind: 'deleted', tenant, name, version: only, mayKeepInstances: true });
  }

  async #prepare(tenant: string, spec: FunctionSpec): Promise<void> {
    try {
      await this.#options.prepare?.(tenant, spec);
    } catch (error) {
      const isOfCode = error instanceof ServiceError && ['failed_precondition', 'invalid_request'].includes(error.code);
      throw isOfCode ? wrongForStored(error.message) : error;
    }
  }

  async #missing(tenant: string, name: string, version: string) {
    const { store } = this.#options;
    const known = version !== LATEST && (await store.exists({ tenant, name, version: LATEST }));
    return known ? versionNotFound(name, version, await store.publishedVersions(tenant, name)) : functionNotFound(name);
  }
}

/** Renders a page as response bytes, from the total and the records' JSON texts. */
export type RenderPage = (total: number, records: readonly string[]) => Buffer;

interface KeptPage {
  readonly bytes: Buffer;
  readonly lastChange: number;
}

const MAX_KEPT_BYTES = 16 * 1024 * 1024;

/**
 * Cached pages of the function list. A page is cached as response bytes, until the tenant's next change. Each
 * read checks the store for a newer change, because other processes may write to it.
 */
export class FunctionListing {
  readonly #store: FunctionStore;
  readonly #render: RenderPage;
  readonly #pages = new LRUCache<string, KeptPage>({
    maxSize: MAX_KEPT_BYTES,
    sizeCalculation: (page, key) => page.bytes.length + key.length + 1,
  });

  constructor(store: FunctionStore, render: RenderPage) {
    this.#store = store;
    this.#render = render;
  }

  /** Returns a page as response bytes; `pageIndex` counts from 1. */
  async page(filter: FunctionFilter, pageIndex: number, pageSize: number): Promise<Buffer> {
    // Read before the page: a change in between makes the page newer than its mark, never older.
    const { total, lastChange } = await this.#store.totals(filter);
    const key = JSON.stringify([filter.tenant, filter.version, filter.namePart, pageIndex, pageSize]);
    const kept = this.#pages.get(key);
    if (kept?.lastChange === lastChange) return kept.bytes;
    const records = await this.#store.page(filter, pageSize, (pageIndex - 1) * pageSize);
    const found = filter.namePart === '' ? total : await this.#store.countFound(filter);
    const bytes = this.#render(found, records);
    this.#pages.set(key, { bytes, lastChange });
    return bytes;
  }
}
