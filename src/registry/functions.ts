import { isAbsolute } from 'node:path';
import { ServiceError } from '../core/error.ts';
import type { FunctionSpec, FunctionVersion } from '../core/function.ts';
import type { FunctionUpdate } from '../core/function-fields.ts';
import type { PublishRequest } from '../core/publish.ts';
import { formatTimestamp, nextRevisionId } from '../core/revision.ts';
import { formatUrn, LATEST } from '../core/urn.ts';
import type { PathExists } from '../lib/path-exists.ts';
import type { DurableWrites } from '../storage/durable.ts';
import type { FunctionStore } from '../storage/functions.ts';
import type { ChangeFeed } from './change-feed.ts';
import { functionNotFound, versionNotFound, wrongForStored } from './errors.ts';
import { asUnavailable, fromStored, toStored } from './function-record.ts';
import {
  deleteFunction,
  publishFunction,
  registerFunction,
  updateFunction,
  type WrittenFunction,
} from './function-writes.ts';
import { RecordCache } from './record-cache.ts';

/** Fields that decide what a version needs. */
const PREPARED = ['dependencies', 'codePath', 'storageType', 'rootfs', 'runtime'] as const;

export interface FunctionRegistryOptions {
  readonly store: FunctionStore;
  readonly writes: DurableWrites;
  readonly changes: ChangeFeed;
  /** The business part of URNs. */
  readonly business: string;
  readonly now: () => number;
  /** Whether a path of this host is there. */
  readonly exists: PathExists;
  /** Makes ready what a version needs that asks for it. Fails with a `ServiceError`. Absent: nothing is. */
  readonly prepare?: (tenant: string, spec: FunctionSpec) => Promise<void>;
  /** True where other processes write to the database too: then nothing that was read is kept. */
  readonly isShared: boolean;
}

/**
 * The rules of stored functions. What a method that writes has answered survives a power cut; of parallel ones with the same name,
 * number or revision exactly one wins, decided inside the transaction. Names and versions come in normalized (`$latest`).
 */
export class FunctionRegistry {
  readonly #options: FunctionRegistryOptions;
  readonly #cache = new RecordCache();

  constructor(options: FunctionRegistryOptions) {
    this.#options = options;
  }

  /** Fails with `already_exists` (4101). */
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
    // It is in no cache: what is not there is not kept.
    await writes.write(registerFunction, row, now);
    // It is new, so it has no reservations.
    const mayKeepInstances = spec.kind === 'faas' && spec.minInstance > 0;
    changes.emit({ kind: 'registered', tenant, name: spec.name, version: LATEST, mayKeepInstances });
    return { urn: fn.urn, record: row.record };
  }

  /** The record of one version as JSON text, with its status of this moment. Fails with `not_found` (4115). */
  async read(tenant: string, name: string, version: string): Promise<string> {
    const { store, exists, isShared } = this.#options;
    const load = () => store.find({ tenant, name, version });
    const found = isShared ? await load() : await this.#cache.read(`${tenant}:${name}:${version}`, load);
    if (found === null) throw await this.#missing(tenant, name, version);
    const { record, host_code_path: path } = found;
    // A relative path is no place on the host, whatever stands below the directory that the service was started in.
    return path === '' || (isAbsolute(path) && (await exists(path))) ? record : asUnavailable(record);
  }

  /** One version, to run it. Fails with `not_found` (4115). */
  async get(tenant: string, name: string, version: string): Promise<FunctionVersion> {
    const row = await this.#options.store.findRow({ tenant, name, version });
    if (row === null) throw await this.#missing(tenant, name, version);
    return fromStored(row);
  }

  /** One page of a function's versions, newest change first; total 0 = no such function. */
  async versions(tenant: string, name: string, pageIndex: number, pageSize: number) {
    return this.#options.store.versions(tenant, name, pageSize, (pageIndex - 1) * pageSize);
  }

  /**
   * Makes the latest revision a version of its own, which never changes. Fails in this order with `not_found` (4115), another kind
   * (4104), a stale revision (4134), a number of the wrong form (4104), a duplicate number (4114), too many versions (4110).
   */
  async publish(tenant: string, name: string, request: PublishRequest): Promise<WrittenFunction> {
    const { writes, changes, now } = this.#options;
    const published = await writes.write(publishFunction, tenant, name, request, now());
    changes.emit({ kind: 'published', tenant, name, version: published.version, mayKeepInstances: true });
    return published;
  }

  /** Fails in this order with `not_found` (4115), a stale revision (4134), a change that cannot be (4104). */
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

  /** Deletes one published version, or with `$latest` the whole function, and their reservations. Fails with `not_found` (4115). */
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
