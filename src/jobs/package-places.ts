import { createHash, randomUUID } from 'node:crypto';
import { rm } from 'node:fs/promises';
import { Transform } from 'node:stream';
import { unavailable } from '../core/error.ts';
import { streamToFile } from '../lib/stream-to-file.ts';
import type { Database } from '../storage/database.ts';
import type { DurableWrites } from '../storage/durable.ts';
import {
  countPackagesOf,
  dropJobPackage,
  hasJobPackage,
  type JobPackageTable,
  listPackageObjects,
  listUnusedPackages,
  putJobPackage,
  replacePackagesOfNode,
  useJobPackage,
} from '../storage/job-packages.ts';
import type { ObjectStore } from '../storage/object-store.ts';
import { type JobNode, ownerOf } from './cluster.ts';

export interface PackagePlacesOptions {
  readonly database: Database;
  readonly writes: DurableWrites;
  readonly node: JobNode;
  /** null: each package is where it was uploaded. */
  readonly store: ObjectStore | null;
  /** Of a tenant: in the object store, or else on each node. */
  readonly maxPackagesPerTenant: number;
}

/** A package on this node's disk. */
export interface LocalPackage {
  readonly tenant: string;
  readonly name: string;
  readonly path: string;
  readonly bytes: number;
}

const OBJECTS = 'packages/';
const IN_STORE = '';
/** An object without a row that is younger may be an upload that goes on. */
const ORPHAN_MS = 24 * 3_600_000;

/** Which node has which package, or that the object store has it: rows that every node reads. */
export class PackagePlaces {
  readonly #options: PackagePlacesOptions;

  constructor(options: PackagePlacesOptions) {
    this.#options = options;
  }

  /** What a start finds on its disk. */
  async start(found: readonly (LocalPackage & { readonly usedAtMs: number })[]): Promise<void> {
    const { writes, node, store } = this.#options;
    if (store !== null) return;
    const rows = found.map(({ usedAtMs, ...local }) => ({ ...this.#row(local), used_at_ms: usedAtMs }));
    await writes.write(replacePackagesOfNode, node.id, rows);
  }

  /** Of a tenant, in the object store. */
  async count(tenant: string): Promise<number> {
    return this.#options.store === null ? 0 : await countPackagesOf(this.#options.database, tenant, IN_STORE);
  }

  /**
   * It was uploaded whole. False: its tenant has as many as it may. Fails with `unavailable` or `failed_precondition` when the object store did
   * not take it.
   */
  async uploaded(local: LocalPackage, sha256: string): Promise<boolean> {
    const { writes, store, maxPackagesPerTenant } = this.#options;
    const row = { ...this.#row(local), sha256 };
    if (store === null) return (await writes.write(putJobPackage, row, maxPackagesPerTenant)) !== null;
    const object = `${OBJECTS}${encodeURIComponent(local.tenant)}/${local.name}/${randomUUID()}`;
    await store.put(object, local.path, sha256);
    const whole = { ...row, node_id: IN_STORE, node_epoch: 0, object };
    const before = await writes.write(putJobPackage, whole, maxPackagesPerTenant);
    // What stays is swept later.
    if (before !== '') await store.remove([before ?? object]).catch(() => undefined);
    return before !== null;
  }

  /** Which nodes have it, `all` when the object store does; it then stays for a while everywhere. */
  async nodesOf(tenant: string, name: string): Promise<'all' | readonly string[]> {
    const rows = await this.#options.writes.write(useJobPackage, tenant, name, Date.now());
    return rows.some(row => row.node_id === IN_STORE) ? 'all' : rows.map(row => row.node_id);
  }

  /** Fetches it out of the object store into `file`, whole and checked; false when it is not there. Fails with `unavailable`. */
  async fetch(tenant: string, name: string, file: string): Promise<boolean> {
    const { store, writes } = this.#options;
    if (store === null) return false;
    // Twice: a newer upload may have replaced the object since its key was read.
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

  /** Whether a package of this node's disk that nobody used since may go; nobody is told of it any more then. */
  async mayGo({ tenant, name }: Pick<LocalPackage, 'tenant' | 'name'>, usedBeforeMs: number): Promise<boolean> {
    const { database, writes, node, store } = this.#options;
    if (store !== null) return true;
    const place = { tenant, name, node_id: node.id, object: '' };
    if (await writes.write(dropJobPackage, place, usedBeforeMs)) return true;
    // Its row could not be written when it was uploaded.
    return !(await hasJobPackage(database, place));
  }

  /** Removes from the object store what nobody needs and nobody used since. `needed` gives `<tenant>/<name>` of all nodes. */
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

  /** Removes objects that no row names: of uploads and removals that were cut off. */
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

/** Fails when what comes is not what was uploaded. */
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
