import { createHash, randomUUID } from 'node:crypto';
import { createReadStream } from 'node:fs';
import { mkdir, readdir, rename, rm, stat, utimes } from 'node:fs/promises';
import { basename, dirname, join } from 'node:path';
import { type Readable, Transform } from 'node:stream';
import { invalidRequest, notFound, resourceExhausted, ServiceError, unavailable } from '../core/error.ts';
import { isPackageName } from '../core/runtime-env.ts';
import { flushDirectory, streamToFile } from '../lib/file-writes.ts';
import type { Removals } from '../lib/removals.ts';
import { isDiskFull } from '../lib/system-errors.ts';
import type { TenantDisk } from '../lib/tenant-disk.ts';
import type { JobNode } from './cluster.ts';
import type { LocalPackage, PackagePlaces } from './package-places.ts';

export interface PackagesOptions {
  readonly dataDir: string;
  readonly removals: Removals;
  readonly maxBytes: number;
  /** Time that an unneeded package is kept after its last use, milliseconds. */
  readonly keepMs: number;
  readonly maxPackagesPerTenant: number;
  readonly disk: TenantDisk;
  readonly node: JobNode;
  /** null: packages exist only on this node's disk. */
  readonly places: PackagePlaces | null;
}

/**
 * Keeps uploaded packages, one file each. With several nodes or an object store, `places` records where else
 * a package exists. Clients make the names from the content. The service cannot check that, so each tenant
 * has its own packages.
 */
export class JobPackages {
  readonly #options: PackagesOptions;
  readonly #directory: string;
  readonly #uploads: string;
  /**
   * Serializes the moves of uploads into place, so that concurrent uploads together stay within the limits.
   */
  #placing: Promise<unknown> = Promise.resolve();

  constructor(options: PackagesOptions) {
    this.#options = options;
    options.disk.countStored(tenant => this.#bytesOf(tenant));
    this.#directory = join(options.dataDir, 'packages');
    this.#uploads = join(this.#directory, '.uploads');
  }

  /** Removes partial files of a killed server, and announces the packages of this node. */
  async start(): Promise<void> {
    await this.#options.removals.remove(this.#uploads);
    await mkdir(this.#uploads, { recursive: true, mode: 0o700 });
    await this.announce();
  }

  /** Records the packages of this node for the other nodes. */
  async announce(): Promise<void> {
    const { places } = this.#options;
    if (places !== null) await places.start(await this.#local());
  }

  /**
   * Returns true if a job could get the package on some node. Marks it as used, so that it is kept for
   * `keepMs`.
   */
  async has(tenant: string, name: string): Promise<boolean> {
    const { places } = this.#options;
    const isHere = (await this.#find(tenant, name)) !== null;
    return places === null ? isHere : (await this.#nodesOf(tenant, name, isHere)).length > 0;
  }

  /**
   * Returns the node for a job with these packages. This is the current node, unless only another node can
   * have them all. It is also the current node when no node has them: the job then fails there with the
   * reason.
   */
  async nodeFor(tenant: string, names: readonly string[]): Promise<string> {
    const { places, node } = this.#options;
    if (places === null) return node.id;
    let nodes: readonly string[] | null = null;
    for (const name of names) {
      const having = await this.#nodesOf(tenant, name, (await this.#find(tenant, name)) !== null);
      nodes = nodes === null ? having : nodes.filter(id => having.includes(id));
    }
    return nodes === null || nodes.includes(node.id) ? node.id : (nodes[0] ?? node.id);
  }

  /**
   * Returns the path and size of a package on this node; null when it does not exist. Fetches it from the
   * object store if necessary.
   */
  async find(tenant: string, name: string): Promise<{ readonly path: string; readonly bytes: number } | null> {
    const here = await this.#find(tenant, name);
    const { places } = this.#options;
    if (here !== null || places === null) return here;
    const upload = join(this.#uploads, randomUUID());
    if (!(await places.fetch(tenant, name, upload))) return null;
    await mkdir(join(this.#directory, tenant), { recursive: true, mode: 0o700 });
    await rename(upload, this.#pathOf(tenant, name));
    return await this.#find(tenant, name);
  }

  /** Returns the living nodes that can have a package; this node when the object store has it. */
  async #nodesOf(tenant: string, name: string, isHere: boolean): Promise<readonly string[]> {
    const { places, node } = this.#options;
    const nodes = (await places?.nodesOf(tenant, name)) ?? [];
    if (nodes === 'all' || (isHere && node.cluster === null)) return [node.id];
    if (nodes.length === 0 || node.cluster === null) return [];
    // A file on this node without a record does not count, since other nodes cannot find it either.
    const living = node.cluster.livingNodes();
    return nodes.filter(id => (id === node.id ? isHere : living.has(id)));
  }

  /**
   * Returns the path and size of a file on this disk, or null. Marks it as used, so that it is kept for
   * `keepMs`.
   */
  async #find(tenant: string, name: string): Promise<{ readonly path: string; readonly bytes: number } | null> {
    const path = this.#pathOf(tenant, name);
    try {
      const now = new Date();
      await utimes(path, now, now);
      return { path, bytes: (await stat(path)).size };
    } catch {
      return null;
    }
  }

  /** Reads a package. Fails with `not_found`. */
  async read(tenant: string, name: string): Promise<Readable> {
    const found = await this.find(tenant, name);
    if (!found) throw notFound(`Package gcs://${name} does not exist`);
    return createReadStream(found.path);
  }

  /**
   * Stores an upload, whole or not at all. Fails with `invalid_request` (too large: `number` 413),
   * `resource_exhausted` or `unavailable`.
   */
  async write(tenant: string, name: string, content: Readable): Promise<void> {
    const path = this.#pathOf(tenant, name);
    const directory = dirname(path);
    await mkdir(directory, { recursive: true, mode: 0o700 });
    const { places, maxPackagesPerTenant } = this.#options;
    const count = Math.max((await readdir(directory)).length, (await places?.count(tenant)) ?? 0);
    if (count >= maxPackagesPerTenant) throw this.#tooMany();
    const upload = join(this.#uploads, randomUUID());
    try {
      const { bound, isTooLarge, sha256 } = bounded(this.#options.maxBytes, places !== null);
      await streamToFile([content, bound], upload, { flags: 'wx', mode: 0o600, flush: true });
      if (isTooLarge()) throw this.tooLarge();
      const { size: bytes } = await stat(upload);
      await this.#place(upload, path, { tenant, bytes });
      await flushDirectory(directory);
      if ((await places?.uploaded({ tenant, name, path, bytes }, sha256())) === false) {
        await rm(path, { force: true });
        throw this.#tooMany();
      }
    } catch (error) {
      await rm(upload, { force: true });
      if (error instanceof ServiceError) throw error;
      throw unavailable(isDiskFull(error) ? 'there is no room for the package' : 'the package could not be stored', {
        cause: error,
      });
    }
  }

  /**
   * Moves an upload to its path. Fails with `resource_exhausted` when the tenant has its maximum of packages
   * or bytes.
   */
  #place(
    upload: string,
    path: string,
    { tenant, bytes }: { readonly tenant: string; readonly bytes: number },
  ): Promise<void> {
    const placed = this.#placing.then(async () => {
      const names = await readdir(dirname(path));
      if (names.length >= this.#options.maxPackagesPerTenant && !names.includes(basename(path))) throw this.#tooMany();
      const replaced = (await stat(path).catch(() => null))?.size ?? 0;
      await this.#options.disk.assertFits(tenant, bytes - replaced);
      await rename(upload, path);
    });
    this.#placing = placed.catch(() => undefined);
    return placed;
  }

  #tooMany(): ServiceError {
    return resourceExhausted(`there are ${this.#options.maxPackagesPerTenant} packages already`, {
      retryAfterSeconds: 60,
    });
  }

  get maxBytes(): number {
    return this.#options.maxBytes;
  }

  /** Returns the error for a package that is too large. `number` is the HTTP status. */
  tooLarge(): ServiceError {
    return invalidRequest(`the package is larger than ${this.maxBytes} bytes`, { number: 413 });
  }

  /** Returns the time before which the last use of a removable package must lie, epoch milliseconds. */
  unusedBeforeMs(): number {
    return Date.now() - this.#options.keepMs;
  }

  /** Removes packages that are not needed and were not used lately. `isNeeded` gets `<tenant>/<name>`. */
  async collect(isNeeded: (key: string) => boolean): Promise<void> {
    const oldestMs = this.unusedBeforeMs();
    for (const { tenant, name, path, usedAtMs } of await this.#local()) {
      if (usedAtMs >= oldestMs || isNeeded(`${tenant}/${name}`)) continue;
      const { places } = this.#options;
      // Another node may have assigned a job to this node because of the package.
      if (places !== null && !(await places.mayGo({ tenant, name }, oldestMs))) continue;
      // A new upload may have replaced the file since it was listed, and its record is written later.
      const now = await stat(path).catch(() => null);
      if (now !== null && now.mtimeMs < oldestMs) await rm(path, { force: true });
    }
  }

  async #bytesOf(tenant: string): Promise<number> {
    const directory = join(this.#directory, tenant);
    const facts = await Promise.all(
      (await namesIn(directory)).map(name => stat(join(directory, name)).catch(() => null)),
    );
    return facts.reduce((sum, each) => sum + (each?.size ?? 0), 0);
  }

  async #local(): Promise<readonly (LocalPackage & { readonly usedAtMs: number })[]> {
    const all: (LocalPackage & { readonly usedAtMs: number })[] = [];
    for (const tenant of await namesIn(this.#directory)) {
      if (tenant.startsWith('.')) continue;
      for (const name of await namesIn(join(this.#directory, tenant))) {
        const path = join(this.#directory, tenant, name);
        const found = await stat(path).catch(() => null);
        if (found) all.push({ tenant, name, path, bytes: found.size, usedAtMs: found.mtimeMs });
      }
    }
    return all;
  }

  #pathOf(tenant: string, name: string): string {
    if (!isPackageName(name)) {
      throw invalidRequest(
        `the name of a package must be 1 to 255 letters, digits or "._+-", got ${JSON.stringify(name.slice(0, 80))}`,
      );
    }
    return join(this.#directory, tenant, name);
  }
}

/**
 * Returns a stream that reads and drops the bytes above the limit. A client that sends too much could
 * otherwise not read the refusal.
 */
function bounded(maxBytes: number, isHashed: boolean) {
  const hash = isHashed ? createHash('sha256') : null;
  let bytes = 0;
  const bound = new Transform({
    transform(chunk: Buffer, _encoding, done) {
      bytes += chunk.length;
      hash?.update(chunk);
      done(null, bytes > maxBytes ? undefined : chunk);
    },
  });
  return { bound, isTooLarge: () => bytes > maxBytes, sha256: () => hash?.digest('hex') ?? '' };
}

async function namesIn(directory: string): Promise<readonly string[]> {
  return await readdir(directory).catch(() => []);
}
