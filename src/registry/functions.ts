import type { FunctionSpec, FunctionVersion } from '../core/function.ts';
import { type FunctionUpdate, mergeUpdate } from '../core/function-fields.ts';
import { LIMITS } from '../core/limits.ts';
import type { PublishRequest } from '../core/publish.ts';
import { DEFAULT_VERSION_GAP_MS, defaultVersionNumber, formatTimestamp, nextRevisionId } from '../core/revision.ts';
import { formatUrn, isVersionNumber, LATEST, VERSION_FORMAT } from '../core/urn.ts';
import type { PathExists } from '../lib/path-exists.ts';
import type { DurableWrites } from '../storage/durable.ts';
import type { FunctionStore } from '../storage/functions.ts';
import { deleteReservations } from '../storage/reservations.ts';
import type { ChangeFeed } from './change-feed.ts';
import {
  duplicateVersion,
  functionExists,
  functionNotFound,
  staleRevision,
  tooManyVersions,
  wrongForStored,
} from './errors.ts';
import { asUnavailable, fromStored, toStored } from './function-record.ts';
import { RecordCache } from './record-cache.ts';

export interface FunctionRegistryOptions {
  readonly store: FunctionStore;
  readonly writes: DurableWrites;
  readonly changes: ChangeFeed;
  /** The business part of URNs. */
  readonly business: string;
  readonly now: () => number;
  /** Whether a path of this host is there. */
  readonly exists: PathExists;
  /** True where other processes write to the database too: then nothing that was read is kept. */
  readonly isShared: boolean;
}

/** A version that was written, and its record as JSON text. */
export interface WrittenFunction {
  readonly urn: string;
  readonly record: string;
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
    const { store, writes, changes, business } = this.#options;
    const now = this.#options.now();
    const fn: FunctionVersion = {
      tenant,
      business,
      version: LATEST,
      urn: formatUrn({ business, tenant, name: spec.name, version: LATEST }),
      revisionId: nextRevisionId(now, null),
      versionDesc: '',
      createTime: formatTimestamp(now),
      updateTime: '',
      spec,
    };
    const row = { ...toStored(fn), default_published_at_ms: 0 };
    await writes.write(async transaction => {
      this.#cache.changing();
      if (!(await store.insert(transaction, row))) throw functionExists();
    });
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
    return path === '' || (await exists(path)) ? record : asUnavailable(record);
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
    const { store, writes, changes, now } = this.#options;
    const published = await writes.write(async transaction => {
      this.#cache.changing();
      const latest = await store.holdLatest(transaction, tenant, name);
      if (latest === null) throw functionNotFound(name);
      const fn = fromStored(latest);
      if (request.kind !== '' && request.kind !== fn.spec.kind) {
        throw wrongForStored(`kind of ${name} is "${fn.spec.kind}", got "${request.kind}"`);
      }
      if (request.revisionId !== fn.revisionId) throw staleRevision();
      const nowMs = now();
      const isDefault = request.versionNumber === '';
      const version = isDefault ? defaultVersionNumber(nowMs) : request.versionNumber;
      if (!isVersionNumber(version)) {
        throw wrongForStored(`versionNumber must be ${VERSION_FORMAT}; got "${version}"`);
      }
      const previousMs = Number(latest.default_published_at_ms);
      if (isDefault && previousMs !== 0 && Math.abs(nowMs - previousMs) <= DEFAULT_VERSION_GAP_MS) {
        throw duplicateVersion();
      }
      const versions = await store.publishedVersions(transaction, tenant, name);
      if (versions.includes(version)) throw duplicateVersion();
      if (versions.length >= LIMITS.publishedVersions) throw tooManyVersions(LIMITS.publishedVersions);
      const urn = formatUrn({ business: fn.business, tenant, name, version });
      const { versionDesc } = request;
      const row = toStored({ ...fn, version, urn, versionDesc, createTime: formatTimestamp(nowMs), updateTime: '' });
      if (!(await store.insert(transaction, { ...row, default_published_at_ms: 0 }))) throw duplicateVersion();
      if (isDefault) await store.noteDefaultPublish(transaction, tenant, name, nowMs);
      return { version, urn, record: row.record };
    });
    changes.emit({ kind: 'published', tenant, name, version: published.version, mayKeepInstances: true });
    return published;
  }

  /** Fails in this order with `not_found` (4115), a stale revision (4134), a change that cannot be (4104). */
  async update(tenant: string, name: string, { revisionId, changes: sent }: FunctionUpdate): Promise<WrittenFunction> {
    const { store, writes, changes, now } = this.#options;
    const updated = await writes.write(async transaction => {
      this.#cache.changing();
      const latest = await store.holdLatest(transaction, tenant, name);
      if (latest === null) throw functionNotFound(name);
      const fn = fromStored(latest);
      if (revisionId !== fn.revisionId) throw staleRevision();
      const merged = mergeUpdate(fn.spec, sent);
      if (!merged.ok) throw wrongForStored(merged.problems.join('; '));
      const nowMs = now();
      const row = toStored({
        ...fn,
        spec: merged.value,
        revisionId: nextRevisionId(nowMs, fn.revisionId),
        updateTime: formatTimestamp(nowMs),
      });
      await store.updateLatest(transaction, { ...row, default_published_at_ms: latest.default_published_at_ms });
      return { urn: fn.urn, record: row.record };
    });
    changes.emit({ kind: 'updated', tenant, name, version: LATEST, mayKeepInstances: true });
    return updated;
  }

  /** Deletes one published version, or with `$latest` the whole function, and their reservations. Fails with `not_found` (4115). */
  async delete(tenant: string, name: string, version: string): Promise<void> {
    const { store, writes, changes } = this.#options;
    const only = version === LATEST ? null : version;
    await writes.write(async transaction => {
      this.#cache.changing();
      const gone = await store.delete(transaction, tenant, name, only);
      if (gone.length === 0) {
        const known = only !== null && (await store.exists({ tenant, name, version: LATEST }, transaction));
        throw functionNotFound(known ? `${name}:${version}` : name);
      }
      await deleteReservations(transaction, tenant, name, only, null);
    });
    changes.emit({ kind: 'deleted', tenant, name, version: only, mayKeepInstances: true });
  }

  async #missing(tenant: string, name: string, version: string) {
    const known = version !== LATEST && (await this.#options.store.exists({ tenant, name, version: LATEST }));
    return functionNotFound(known ? `${name}:${version}` : name);
  }
}
