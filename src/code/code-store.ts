import { randomUUID } from 'node:crypto';
import { renameSync } from 'node:fs';
import { mkdir, readdir, rename, stat, utimes } from 'node:fs/promises';
import { basename, join } from 'node:path';
import { CODE_TARGET, codeUrl } from '../core/code-package.ts';
import { failedPrecondition, messageOf, type ServiceError } from '../core/error.ts';
import { checkHostPath, checkSources, type HostPathPolicy } from '../core/host-path.ts';
import type { MountSpec } from '../core/instance.ts';
import { findPath, type OpenedPath, openPath } from '../lib/opened-path.ts';
import type { Removals } from '../lib/removals.ts';
import type { TenantDisk } from '../lib/tenant-disk.ts';
import { type CachedSource, type CodeSource, cacheKey, type PackageSource } from './code-source.ts';
import { copyTree } from './copy-tree.ts';
import { moveOver } from './layer-files.ts';
import { fetchObject, type S3Settings } from './s3-source.ts';
import { unpack } from './unpack.ts';

export interface PlacedCode {
  /** Path of the code inside the sandbox. */
  readonly codePath: string;
  /** Mount of the code; null: no mount is needed. */
  readonly mount: MountSpec | null;
  /**
   * True if the source is below the data directory, where the rule for clients' mount sources does not apply.
   */
  readonly ours: boolean;
}

/** Archives of code packages that must be read. */
export interface PackageArchives {
  /**
   * Returns the path of the archive: its own file, or `file` after a download. Fails with
   * `failed_precondition` if the package does not exist, and `unavailable` if it cannot be read now.
   */
  archive(tenant: string, sha256: string, file: string): Promise<string>;
  /**
   * Called after a package was unpacked. `measure` returns its unpacked bytes, and is called only if they are
   * not counted yet.
   */
  unpacked(tenant: string, sha256: string, measure: () => Promise<number>): Promise<void>;
}

export interface CodeStoreOptions {
  readonly dataDir: string;
  /** Id that changes with every start of the machine; null: unknown. */
  readonly bootId: string | null;
  /** Rule for the host paths of `local` and `copy`. */
  readonly policy: HostPathPolicy;
  readonly removals: Removals;
  readonly s3: S3Settings;
  /** Uploaded packages. Absent: uploads are not available. */
  readonly packages?: PackageArchives;
  /** Limit of all unused unpacked objects together, bytes. */
  readonly maxCacheBytes: number;
  readonly maxArchiveBytes: number;
  readonly maxUnpackedBytes: number;
  readonly maxEntries: number;
  readonly disk: TenantDisk;
}

/**
 * Places a function's code where an instance can mount it. `local` is used as it is. `copy` is copied into a
 * directory of the instance. `s3` is unpacked once per revision, into a cache that all instances share
 * read-only.
 *
 * New entries are not flushed to disk, so a power cut may leave half of the files. Therefore an entry is
 * valid only in the boot of the machine in its name. After another boot it stays for instances that mount it,
 * and other instances get a new entry.
 */
export class CodeStore {
  readonly #options: CodeStoreOptions;
  readonly #cacheDir: string;
  readonly #copyDir: string;
  readonly #workDir: string;
  /** Running downloads by entry; concurrent requests for an object share one. */
  readonly #fetching = new Map<string, Promise<string>>();
  /**
   * Instances that mount an entry, by its name. The key replaces the name if the boot of the entry is
   * unknown.
   */
  readonly #users = new Map<string, Set<string>>();
  /** Items on the tenant's disk budget, by instance. */
  readonly #counted = new Map<string, string[]>();
  /** Entries of packages whose unpacked bytes are counted for their tenants. */
  readonly #measured = new Set<string>();
  /** False until all mounted entries of an earlier boot are registered. */
  #isSwept = false;

  constructor(options: CodeStoreOptions) {
    this.#options = options;
    this.#cacheDir = join(options.dataDir, 'code', 'cache');
    this.#copyDir = join(options.dataDir, 'code', 'copies');
    this.#workDir = join(options.dataDir, 'code', 'work');
  }

  /**
   * Places the code for an instance; undone by `release`. Fails with
   * - `failed_precondition`: the code is missing or refused;
   * - `unavailable`: its server does not answer;
   * - `resource_exhausted`: the tenant's code would use too much of the disk.
   */
  async place(source: CodeSource, instanceId: string, tenant: string): Promise<PlacedCode> {
    if (source.storage === 'inside') return { codePath: source.path, mount: null, ours: false };
    if (source.storage === 's3' || source.storage === 'package') {
      const path = await this.directory(source, instanceId);
      // Uploaded packages are counted while they are stored.
      if (source.storage === 's3') await this.#count(tenant, `object ${tenant} ${basename(path)}`, instanceId, path);
      return placed(path, true, true);
    }
    if (source.storage === 'local' && source.orInImage === true) {
      // If the rule refuses the directory, the code must be in the image.
      const opened = await this.#open(source.path).catch(() => null);
      await opened?.close();
      return opened === null ? { codePath: source.path, mount: null, ours: false } : placed(source.path, true, false);
    }
    const opened = await this.#open(source.path);
    if (opened === null) {
      throw failedPrecondition(
        `the code directory does not exist: ${source.path}; codePath must be a directory of the host of the service, or the target of a mount of the function`,
      );
    }
    try {
      if (source.storage === 'copy') return await this.#copy(opened, source.path, instanceId, tenant);
    } finally {
      await opened.close();
    }
    // The sandbox checks the path again when it mounts it.
    return placed(source.path, true, false);
  }

  /**
   * Returns a directory with the files of these packages, where the files of later ones replace those of
   * earlier ones. It stays until `release`. Fails as `place` does.
   */
  async placeLayers(tenant: string, sha256s: readonly string[], instanceId: string): Promise<string> {
    const [only = '', ...others] = sha256s;
    if (others.length === 0) return await this.directory({ storage: 'package', tenant, sha256: only }, instanceId);
    const path = await this.directory({ storage: 'layers', tenant, sha256s }, instanceId);
    await this.#count(tenant, `layers ${tenant} ${basename(path)}`, instanceId, path);
    return path;
  }

  /**
   * Returns the unpacked directory of a shared source, which stays until `release`. Fails as `place` does.
   */
  async directory(source: CachedSource, instanceId: string): Promise<string> {
    const entry = this.#entryOf(source);
    // Before the first await, so that the entry is protected from removal.
    this.#use(entry, instanceId);
    try {
      const path = await this.#fetched(source, entry);
      if (source.storage === 'package') await this.#measure(source, entry, path);
      return path;
    } catch (error) {
      this.#unuse(entry, instanceId);
      throw error;
    }
  }

  /**
   * Fails with `failed_precondition` if the rule for host paths refuses a source. The sandbox reports a
   * missing source.
   */
  async checkMounts(mounts: readonly MountSpec[]): Promise<void> {
    try {
      await checkSources('', mounts, this.#options.policy, findPath);
    } catch (error) {
      const { code, message } = error as ServiceError;
      if (code === 'invalid_request') throw failedPrecondition(message, { cause: error });
      if (code !== 'failed_precondition') throw error;
    }
  }

  /** Registers the mount of an adopted instance. Must precede all calls of `release` and `sweep`. */
  adopt(mountSource: string, instanceId: string): void {
    if (mountSource.startsWith(`${this.#cacheDir}/`)) this.#use(basename(mountSource), instanceId);
  }

  /** Registers a package that an adopted agent may use. Must precede all calls of `release` and `sweep`. */
  registerUser(tenant: string, sha256: string, instanceId: string): void {
    this.#use(cacheKey({ storage: 'package', tenant, sha256 }), instanceId);
  }

  /**
   * Unpacks a package during its upload, which proves the archive and prepares its use. Returns the unpacked
   * bytes. Fails as `unpack` does.
   */
  async unpackUpload(tenant: string, sha256: string, archive: string): Promise<number> {
    const entry = this.#entryOf({ storage: 'package', tenant, sha256 });
    const bytes = await sizeOf(await this.#once(entry, 'kept', [async () => archive]));
    await this.#trim();
    return bytes;
  }

  /** Removes the unpacked package of a refused upload, unless an instance uses it. */
  async discard(tenant: string, sha256: string): Promise<void> {
    const entry = this.#entryOf({ storage: 'package', tenant, sha256 });
    if (!this.#isUsed(entry)) await this.#remove(entry);
  }

  /** Releases the code of a removed instance: deletes its copy, and unused cached objects above the limit. */
  async release(instanceId: string): Promise<void> {
    for (const entry of this.#users.keys()) this.#unuse(entry, instanceId);
    for (const item of this.#counted.get(instanceId) ?? []) this.#options.disk.release(item, instanceId);
    this.#counted.delete(instanceId);
    await this.#options.removals.remove(join(this.#copyDir, instanceId));
    await this.#trim();
  }

  /** Removes copies of unknown instances and entries of an earlier boot. Called once at the start. */
  async sweep(living: ReadonlySet<string>): Promise<void> {
    this.#isSwept = true;
    await this.#options.removals.remove(this.#workDir);
    for (const instanceId of await namesIn(this.#copyDir)) {
      if (!living.has(instanceId)) await this.#options.removals.remove(join(this.#copyDir, instanceId));
    }
    await this.#trim();
  }

  /**
   * Returns the opened directory; null if it does not exist. Fails with `failed_precondition` if the rule for
   * host paths refuses it.
   */
  async #open(path: string): Promise<OpenedPath | null> {
    // A relative path names nothing on the host; the query of the version reports it as `unavailable`.
    if (!path.startsWith('/')) return null;
    let opened: OpenedPath;
    try {
      opened = await checkHostPath('code path', path, this.#options.policy, openPath);
    } catch (error) {
      const { code, message } = error as ServiceError;
      if (code === 'failed_precondition') return null;
      throw failedPrecondition(message, { cause: error });
    }
    if (opened.kind === 'directory') return opened;
    await opened.close();
    return null;
  }

  async #copy(opened: OpenedPath, path: string, instanceId: string, tenant: string): Promise<PlacedCode> {
    const copy = join(this.#copyDir, instanceId);
    try {
      await mkdir(this.#copyDir, { recursive: true, mode: 0o711 });
      await copyTree(opened, copy, { maxBytes: this.#options.maxUnpackedBytes, maxEntries: this.#options.maxEntries });
    } catch (error) {
      await this.#options.removals.remove(copy);
      throw failedPrecondition(`the code in ${path} could not be copied: ${withoutPaths(error)}`, { cause: error });
    }
    await this.#count(tenant, `copy ${instanceId}`, instanceId, copy);
    return placed(copy, false, true);
  }

  /** Counts the bytes for the tenant. If this fails, the caller of `place` calls `release`. */
  async #count(tenant: string, item: string, instanceId: string, path: string): Promise<void> {
    await this.#options.disk.acquire(tenant, item, instanceId, () => sizeOf(path));
    this.#counted.set(instanceId, [...(this.#counted.get(instanceId) ?? []), item]);
  }

  #entryOf(source: CachedSource): string {
    const { bootId } = this.#options;
    return bootId === null ? cacheKey(source) : `${cacheKey(source)}${BOOT}${bootId}`;
  }

  /** Returns true if the entry is from this boot, so that its content is complete. */
  #isOfThisBoot(entry: string): boolean {
    const { bootId } = this.#options;
    return bootId === null || entry.endsWith(`${BOOT}${bootId}`);
  }

  #isUsed(entry: string): boolean {
    return this.#users.has(entry) || this.#users.has(entry.split(BOOT, 1)[0] as string);
  }

  #use(entry: string, instanceId: string): void {
    const users = this.#users.get(entry) ?? new Set();
    users.add(instanceId);
    this.#users.set(entry, users);
  }

  #unuse(entry: string, instanceId: string): void {
    const users = this.#users.get(entry);
    if (users?.delete(instanceId) && users.size === 0) this.#users.delete(entry);
  }

  #fetched(source: CachedSource, entry: string): Promise<string> {
    if (source.storage === 's3') {
      const { s3, maxArchiveBytes } = this.#options;
      const fetch = async (file: string) => {
        await fetchObject(source.object, s3, file, maxArchiveBytes);
        return file;
      };
      return this.#once(entry, 'refused', [fetch]);
    }
    const { tenant } = source;
    const sha256s = source.storage === 'layers' ? source.sha256s : [source.sha256];
    const fetches = sha256s.map(
      (sha256): Fetch =>
        file =>
          this.#archive(tenant, sha256, file),
    );
    return this.#once(entry, 'kept', fetches);
  }

  async #measure({ tenant, sha256 }: PackageSource, entry: string, path: string): Promise<void> {
    if (this.#measured.has(entry)) return;
    await this.#options.packages?.unpacked(tenant, sha256, () => sizeOf(path));
    this.#measured.add(entry);
  }

  /** Returns the directory of the unpacked archives. Concurrent calls for an entry share one download. */
  #once(entry: string, links: 'kept' | 'refused', fetches: readonly Fetch[]): Promise<string> {
    let fetching = this.#fetching.get(entry);
    if (!fetching) {
      fetching = this.#fetch(fetches, join(this.#cacheDir, entry), links).finally(() => this.#fetching.delete(entry));
      this.#fetching.set(entry, fetching);
    }
    return fetching;
  }

  async #archive(tenant: string, sha256: string, file: string): Promise<string> {
    const { packages } = this.#options;
    if (packages === undefined) throw failedPrecondition(`the code package does not exist: ${codeUrl(sha256)}`);
    return await packages.archive(tenant, sha256, file);
  }

  async #fetch(fetches: readonly Fetch[], target: string, links: 'kept' | 'refused'): Promise<string> {
    if (await isDirectory(target)) {
      const now = new Date();
      await utimes(target, now, now);
      return target;
    }
    const work = join(this.#workDir, randomUUID());
    try {
      const { maxUnpackedBytes: maxBytes, maxEntries } = this.#options;
      for (const [index, fetch] of fetches.entries()) {
        const files = join(work, index === 0 ? 'code' : `layer-${index}`);
        await mkdir(files, { recursive: true, mode: 0o711 });
        await unpack(await fetch(join(work, `archive-${index}`)), files, { maxBytes, maxEntries, links });
        if (index > 0) await moveOver(files, join(work, 'code'));
      }
      await mkdir(this.#cacheDir, { recursive: true, mode: 0o711 });
      // Atomic for crashes of the service: `sweep` removes the residue. After a crash of the machine, this
      // name is not used any more.
      await rename(join(work, 'code'), target);
    } finally {
      await this.#options.removals.remove(work);
    }
    return target;
  }

  /** Removes unused entries of an earlier boot, then the least recently used until the unused ones fit. */
  async #trim(): Promise<void> {
    const unused: { entry: string; bytes: number; usedAtMs: number }[] = [];
    for (const entry of await namesIn(this.#cacheDir)) {
      if (this.#isUsed(entry)) continue;
      if (this.#isSwept && !this.#isOfThisBoot(entry)) {
        await this.#remove(entry);
        continue;
      }
      const path = join(this.#cacheDir, entry);
      const facts = await stat(path).catch(() => null);
      if (facts) unused.push({ entry, bytes: await sizeOf(path), usedAtMs: facts.mtimeMs });
    }
    unused.sort((a, b) => b.usedAtMs - a.usedAtMs);
    let kept = 0;
    for (const { entry, bytes } of unused) {
      kept += bytes;
      if (kept > this.#options.maxCacheBytes) await this.#remove(entry);
    }
  }

  /** Removes an entry, unless it is used again. */
  async #remove(entry: string): Promise<void> {
    await mkdir(this.#workDir, { recursive: true, mode: 0o711 });
    const away = join(this.#workDir, randomUUID());
    // Nothing is awaited between this check and the rename, so a later `place` downloads a new entry.
    if (this.#isUsed(entry)) return;
    try {
      renameSync(join(this.#cacheDir, entry), away);
    } catch {
      // Another call has moved the entry, or it cannot be moved now; the next `#trim` retries.
      return;
    }
    await this.#options.removals.remove(away);
  }
}

const BLOCK_BYTES = 4096;

function placed(source: string, readonly: boolean, ours: boolean): PlacedCode {
  return { codePath: CODE_TARGET, mount: { source, target: CODE_TARGET, readonly }, ours };
}

/** Separates the key of an entry from the boot in which it was made. */
const BOOT = '.';

/** Returns the path of an archive; may write it to `file`. */
type Fetch = (file: string) => Promise<string>;

/** Removes the path from a system error: clients must not learn the service's directories. */
function withoutPaths(error: unknown): string {
  const message = messageOf(error);
  return (error as NodeJS.ErrnoException).syscall === undefined ? message : message.replace(/ '.*$/s, '');
}

async function isDirectory(path: string): Promise<boolean> {
  const facts = await stat(path).catch(() => null);
  return facts?.isDirectory() ?? false;
}

async function namesIn(directory: string): Promise<string[]> {
  return await readdir(directory).catch(() => []);
}

/** Returns the bytes of files and directories on disk, where each takes at least one block. */
async function sizeOf(directory: string): Promise<number> {
  let bytes = 0;
  for (const entry of await readdir(directory, { recursive: true, withFileTypes: true }).catch(() => [])) {
    const facts = entry.isFile() ? await stat(join(entry.parentPath, entry.name)).catch(() => null) : null;
    bytes += Math.max(1, Math.ceil((facts?.size ?? 0) / BLOCK_BYTES)) * BLOCK_BYTES;
  }
  return bytes;
}
