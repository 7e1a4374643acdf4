import { createHash, randomUUID } from 'node:crypto';
import { createReadStream } from 'node:fs';
import { mkdir, readdir, rename, rm, stat, utimes } from 'node:fs/promises';
import { basename, dirname, join } from 'node:path';
import { type Readable, Transform } from 'node:stream';
import { invalidRequest, notFound, resourceExhausted, ServiceError, unavailable } from '../core/error.ts';
import { isPackageName } from '../core/runtime-env.ts';
import { flushDirectory } from '../lib/flush.ts';
import type { Removals } from '../lib/removals.ts';
import { streamToFile } from '../lib/stream-to-file.ts';
import { isDiskFull } from '../lib/system-errors.ts';
import type { JobNode } from './cluster.ts';
import type { LocalPackage, PackagePlaces } from './package-places.ts';

export interface PackagesOptions {
  readonly dataDir: string;
  readonly removals: Removals;
  readonly maxBytes: number;
  /** How long a package that no job needs stays after it was last asked for. */
  readonly keepMs: number;
  readonly maxPackagesPerTenant: number;
  readonly node: JobNode;
  /** null: this node's disk is all that there is. */
  readonly places: PackagePlaces | null;
}

/**
 * Uploaded packages, a file each; where there are several nodes or an object store, `places` knows who else has one. Their names say what is in them (the client makes them of the content), but nothing here can check that,
 * so each tenant has its own.
 */
export class Packages {
  readonly #options: PackagesOptions;
  readonly #directory: string;
  readonly #uploads: string;
  /** Uploads take their places one after the other: of those at the same moment each has found room for itself. */
  #placing: Promise<unknown> = Promise.resolve();

  constructor(options: PackagesOptions) {
    this.#options = options;
    this.#directory = join(options.dataDir, 'packages');
    this.#uploads = join(this.#directory, '.uploads');
  }

  /** Removes files that a killed server left half written. */
  async start(): Promise<void> {
    await this.#options.removals.remove(this.#uploads);
    await mkdir(this.#uploads, { recursive: true, mode: 0o700 });
    await this.announce();
  }

  /** Tells the other nodes what this one has. */
  async announce(): Promise<void> {
    const { places } = this.#options;
    if (places !== null) await places.start(await this.#local());
  }

  /** Whether it is anywhere where a job can have it; it then stays for `keepMs`. */
  async has(tenant: string, name: string): Promise<boolean> {
    const { places } = this.#options;
    const isHere = (await this.#find(tenant, name)) !== null;
    return places === null ? isHere : (await this.#nodesOf(tenant, name, isHere)).length > 0;
  }

  /**
   * The node that a job with these packages is for: this one, unless another one has them all and this one cannot have them. This one too when
   * nobody has them: there the job says so.
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

  /** Its path and size on this node, fetched from the object store when it is not here yet; null when it cannot be had. */
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

  /** Living nodes that can have it; this one when the object store has it. */
  async #nodesOf(tenant: string, name: string, isHere: boolean): Promise<readonly string[]> {
    const { places, node } = this.#options;
    const nodes = (await places?.nodesOf(tenant, name)) ?? [];
    if (nodes === 'all' || (isHere && node.cluster === null)) return [node.id];
    if (nodes.length === 0 || node.cluster === null) return [];
    // What the other nodes were not told of is not here for them either.
    const living = node.cluster.livingNodes();
    return nodes.filter(id => (id === node.id ? isHere : living.has(id)));
  }

  /** Its path and size, or null; it then stays for `keepMs`. */
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

  /** Fails with `not_found`. */
  async read(tenant: string, name: string): Promise<Readable> {
    const found = await this.find(tenant, name);
    if (!found) throw notFound(`Package gcs://${name} does not exist`);
    return createReadStream(found.path);
  }

  /** Whole or not at all. Fails with `invalid_request` (too large: `number` 413), `resource_exhausted` or `unavailable`. */
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
      await this.#place(upload, path);
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

  /** Fails with `resource_exhausted` when there is no place. */
  #place(upload: string, path: string): Promise<void> {
    const placed = this.#placing.then(async () => {
      const names = await readdir(dirname(path));
      if (names.length >= this.#options.maxPackagesPerTenant && !names.includes(basename(path))) throw this.#tooMany();
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

  /** `number` is the status. */
  tooLarge(): ServiceError {
    return invalidRequest(`the package is larger than ${this.maxBytes} bytes`, { number: 413 });
  }

  /** What was last used before this moment may go. */
  unusedBeforeMs(): number {
    return Date.now() - this.#options.keepMs;
  }

  /** Removes what nobody needs and nobody has asked for lately. `isNeeded` gets `<tenant>/<name>`. */
  async collect(isNeeded: (key: string) => boolean): Promise<void> {
    const oldestMs = this.unusedBeforeMs();
    for (const { tenant, name, path, usedAtMs } of await this.#local()) {
      if (usedAtMs >= oldestMs || isNeeded(`${tenant}/${name}`)) continue;
      const { places } = this.#options;
      // Another node may have told somebody that it is here.
      if (places !== null && !(await places.mayGo({ tenant, name }, oldestMs))) continue;
      // It may have been uploaded again since it was looked at, and its row comes after it.
      const now = await stat(path).catch(() => null);
      if (now !== null && now.mtimeMs < oldestMs) await rm(path, { force: true });
    }
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

/** Bytes above the limit are read and dropped: who sends it would otherwise never read why it was refused. */
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
