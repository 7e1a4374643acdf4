import { createHash, randomUUID } from 'node:crypto';
import { rm } from 'node:fs/promises';
import { Transform } from 'node:stream';
import { unavailable } from '../core/error.ts';
import { streamToFile } from '../lib/file-writes.ts';
import type { ObjectStore } from '../object-store/object-store.ts';
import type { Database } from '../storage/database.ts';
import {
  countPackagesOf,
  dropJobPackage,
  hasJobPackage,
  listPackageObjects,
  listUnusedPackages,
  putJobPackage,
  replacePackagesOfNode,
  useJobPackage,
} from '../storage/queries/job-packages.ts';
import type { JobPackageTable } from '../storage/schema.ts';
import type { DurableWrites } from '../storage/writes/durable.ts';
import { type JobNode, ownerOf } from './cluster.ts';

export interface PackagePlacesOptions {
  readonly database: Database;
  readonly writes: DurableWrites;
  readonly node: JobNode;
  /** null: each package stays on the node that took the upload. */
  readonly store: ObjectStore | null;
  /** Packages per tenant: in the object store, or on each node without one. */
  readonly maxPackagesPerTenant: number;
}

/** Package on this node's disk. */
export interface LocalPackage {
  readonly tenant: string;
  readonly name: string;
  readonly path: string;
  readonly bytes: number;
}

const OBJECTS = 'packages/';
const IN_STORE = '';
/** Age below which an object without a record may belong to a running upload. */
const ORPHAN_MS = 24 * 3_600_000;

/** Records which node has which package, or that the object store has it. Every node reads these records. */
export class PackagePlaces {
  readonly #options: PackagePlacesOptions;

  constructor(options: PackagePlacesOptions) {
    this.#options = options;
  }

  /** Records the packages that a start finds on its disk. */
  async start(found: readonly (LocalPackage & { readonly usedAtMs: number })[]): Promise<void> {
    const { writes, node, store } = this.#options;
    if (store !== null) return;
    const rows = found.map(({ usedAtMs, ...local }) => ({ ...this.#row(local), used_at_ms: usedAtMs }));
    await writes.write(replacePackagesOfNode, node.id, rows);
  }

  /** Returns the number of a tenant's packages in the object store. */
  async count(tenant: string): Promise<number> {
    return this.#options.store === null ? 0 : await countPackagesOf(this.#options.database, tenant, IN_STORE);
  }

  /**
   * Records a complete upload, and copies it to the object store if there is one. Returns false when the
   * tenant has its maximum of packages. Fails with `unavailable` or `failed_precondition` when the object
   * store did not take it.
   */
  async uploaded(local: LocalPackage, sha256: string): Promise<boolean> {
    const { writes, store, maxPackagesPerTenant } = this.#options;
    const row = { ...this.#row(local), sha256 };
    if (store === null) return (await writes.write(putJobPackage, row, maxPackagesPerTenant)) !== null;
    const object = `${OBJECTS}${encodeURIComponent(local.tenant)}/${local.name}/${randomUUID()}`;
    await store.put(object, local.path, sha256);
    const whole = { ...row, node_id: IN_STORE, node_epoch: 0, object };
    const before = await writes.write(putJobPackage, whole, maxPackagesPerTenant);
    // `sweep` removes an object that could not be removed here.
    if (before !== '') await store.remove([before ?? object]).catch(() => undefined);
    return before !== null;
  }

  /**
   * Returns the nodes that have a package, or `all` when the object store has it. Marks it as used, so that
   * it is kept for a while everywhere.
   */
  async nodesOf(tenant: string, name: string): Promise<'all' | readonly string[]> {
    const rows = await this.#options.writes.write(useJobPackage, tenant, name, Date.now());
    return rows.some(row => row.node_id === IN_STORE) ? 'all' : rows.map(row => row.node_id);
  }

  /**
   * Fetches a package from the object store into `file`, complete and checked. Returns false when it is not
   * there. Fails with `unavailable`.
   */
  async fetch(tenant: string, name: string, file: string): Promise<boolean> {
    const { store, writes } = this.#options;
    if (store === null) return false;
    // Tried twice: a newer upload may have replaced the object since its key was read.
    for (let tried = 1; tried <= 2; tried++) {
      const rows = await writes.write(useJobPackage, tenant, name, Date.now());
      const row = rows.find(({ node_id }) => node_id === IN_STORE);
      if (row === undefined) return false;
      const content = await store.get(row.object);
      if (content === null) continue;
      try {
        await streamToFile([content, checked(row)], file, { flags: 'wx', mode: 0o600, flush: true });
        return true;
      } catch (error) {
        await rm(file, { force: true });
        throw unavailable(`package gcs://${name} could not be fetched from the object store`, { cause: error });
      }
    }
    return false;
  }

  /**
   * Returns true if an unused package may be removed from this node's disk. Its record has then been removed,
   * so no other node finds it here.
   */
  async mayGo({ tenant, name }: Pick<LocalPackage, 'tenant' | 'name'>, usedBeforeMs: number): Promise<boolean> {
    const { database, writes, node, store } = this.#options;
    if (store !== null) return true;
    const place = { tenant, name, node_id: node.id, object: '' };
    if (await writes.write(dropJobPackage, place, usedBeforeMs)) return true;
    // A package without a record may be removed: its record could not be stored at the upload.
    return !(await hasJobPackage(database, place));
  }

  /**
   * Removes unused packages from the object store, except those that `needed` returns. `needed` returns
   * `<tenant>/<name>` for all nodes.
   */
  async collect(usedBeforeMs: number, needed: () => Promise<ReadonlySet<string>>): Promise<void> {
    const { database, writes, store } = this.#options;
    if (store === null) return;
    const unused = await listUnusedPackages(database, IN_STORE, usedBeforeMs);
    if (unused.length === 0) return;
    const kept = await needed();
    for (const row of unused) {
      if (kept.has(`${row.tenant}/${row.name}`)) continue;
      const { tenant, name, node_id, object } = row;
      const place = { tenant, name, node_id, object };
      if (await writes.write(dropJobPackage, place, usedBeforeMs)) await store.remove([object]);
    }
  }

  /** Removes objects without a record: residue of interrupted uploads and removals. */
  async sweep(): Promise<void> {
    const { database, store } = this.#options;
    if (store === null) return;
    const oldestMs = Date.now() - ORPHAN_MS;
    const old = (await store.list(OBJECTS)).filter(({ changedAtMs }) => changedAtMs < oldestMs);
    if (old.length === 0) return;
    const known = await listPackageObjects(database);
    await store.remove(old.map(({ key }) => key).filter(key => !known.has(key)));
  }

  #row({ tenant, name, bytes }: LocalPackage): JobPackageTable {
    const { nodeId, epoch } = ownerOf(this.#options.node);
    return {
      ...{ tenant, name, bytes, node_id: nodeId, node_epoch: epoch },
      ...{ object: '', sha256: '', used_at_ms: Date.now() },
    };
  }
}

/** Fails when the content is not that of the upload. */
function checked({ bytes, sha256 }: JobPackageTable): Transform {
  const hash = createHash('sha256');
  let got = 0;
  return new Transform({
    transform(chunk: Buffer, _encoding, done) {
      got += chunk.length;
      hash.update(chunk);
      done(null, chunk);
    },
    flush(done) {
      const isWhole = got === bytes && hash.digest('hex') === sha256;
      done(isWhole ? null : new Error(`it has ${got} bytes that are not the ${bytes} that were uploaded`));
    },
  });
}
