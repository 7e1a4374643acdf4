import { createHash, randomUUID } from 'node:crypto';
import { renameSync } from 'node:fs';
import { mkdir, readdir, rename, stat, utimes } from 'node:fs/promises';
import { basename, join } from 'node:path';
import { CODE_TARGET, codeUrl } from '../../core/code-package.ts';
import { failedPrecondition, messageOf, type ServiceError } from '../../core/error.ts';
import { checkHostPath, checkSources, type HostPathPolicy } from '../../core/host-path.ts';
import type { MountSpec } from '../../core/mount.ts';
import { findPath, type OpenedPath, openPath } from '../../lib/opened-path.ts';
import type { Removals } from '../../lib/removals.ts';
import { unpack } from '../../storage/unpack.ts';
import { copyTree } from './copy-tree.ts';
import { fetchObject, type S3Object, type S3Settings } from './s3-source.ts';

/** The place of a function version's code. */
export type CodeSource =
  /** `orInImage`: when this host has no such directory, the image has it. */
  | { readonly storage: 'local'; readonly path: string; readonly orInImage?: boolean }
  | { readonly storage: 'copy'; readonly path: string }
  /** It was uploaded; agents mount it too. */
  | { readonly storage: 'package'; readonly tenant: string; readonly sha256: string }
  /** A mount of the function brings it. */
  | { readonly storage: 'inside'; readonly path: string }
  | {
      readonly storage: 's3';
      readonly object: S3Object /** Makes the cache entry: one download per revision. */;
      readonly revision: string;
    };

export interface PlacedCode {
  /** Where the code stands in the sandbox. */
  readonly codePath: string;
  /** null: nothing has to be mounted. */
  readonly mount: MountSpec | null;
  /** The source is ours (below the data directory), so the rule for callers' mount sources does not apply to it. */
  readonly ours: boolean;
}

/** Archives of code packages, as far as they have to be read. */
export interface PackageArchives {
  /** The archive: a file of its own, or fetched into `file`. Fails with `failed_precondition` when there is no such package, `unavailable` when it cannot be had now. */
  archive(tenant: string, sha256: string, file: string): Promise<string>;
}

export interface CodeStoreOptions {
  readonly dataDir: string;
  /** Changes with every start of the machine; null: nothing is known of it. */
  readonly bootId: string | null;
  /** What `local` and `copy` may name. */
  readonly policy: HostPathPolicy;
  readonly removals: Removals;
  readonly s3: S3Settings;
  /** What was uploaded. Absent: nothing can be. */
  readonly packages?: PackageArchives;
  /** Unpacked objects that are kept when nothing uses them, bytes together. */
  readonly maxCacheBytes: number;
  readonly maxArchiveBytes: number;
  readonly maxUnpackedBytes: number;
  readonly maxEntries: number;
}

/**
 * Puts a function's code where an instance can mount it: `local` as it is, `copy` into a directory of the instance's own, `s3` fetched and
 * unpacked once per revision into a cache that all its instances share read-only.
 *
 * Nothing waits for a disk when an entry is made, so a power cut may leave half of its files. Therefore an entry counts in the boot of the
 * machine alone in which it was made, which its name says: after that it only stays for who has it mounted, and is made anew for all others.
 */
export class CodeStore {
  readonly #options: CodeStoreOptions;
  readonly #cacheDir: string;
  readonly #copyDir: string;
  readonly #workDir: string;
  /** Fetches under way: everybody who needs the same object waits for the same one. */
  readonly #fetching = new Map<string, Promise<string>>();
  /** The instances that mount an entry, by its name; by its key where the boot is not known in which it was made. */
  readonly #users = new Map<string, Set<string>>();
  /** Until then nobody has said which entries of an earlier boot are mounted. */
  #isSwept = false;

  constructor(options: CodeStoreOptions) {
    this.#options = options;
    this.#cacheDir = join(options.dataDir, 'code', 'cache');
    this.#copyDir = join(options.dataDir, 'code', 'copies');
    this.#workDir = join(options.dataDir, 'code', 'work');
  }

  /**
   * Fails with `failed_precondition` when the code is not there or refused, `unavailable` when its server does not answer.
   * Every `place` is undone by `release` with the same instance id.
   */
  async place(source: CodeSource, instanceId: string): Promise<PlacedCode> {
    if (source.storage === 'inside') return { codePath: source.path, mount: null, ours: false };
    if (source.storage === 's3' || source.storage === 'package') {
      return placed(await this.directory(source, instanceId), true, true);
    }
    if (source.storage === 'local' && source.orInImage === true) {
      // A directory that the caller may not have is not looked at: then the image brings the code.
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
      if (source.storage === 'copy') return await this.#copy(opened, source.path, instanceId);
    } finally {
      await opened.close();
    }
    // Not ours: the sandbox checks it again when it mounts it.
    return placed(source.path, true, false);
  }

  /** What is fetched for all, unpacked, until `release`. Fails as `place` does. */
  async directory(source: CachedSource, instanceId: string): Promise<string> {
    const entry = this.#entryOf(source);
    // Before anything is awaited: what is used is not removed.
    this.#use(entry, instanceId);
    try {
      return await this.#fetched(source, entry);
    } catch (error) {
      this.#unuse(entry, instanceId);
      throw error;
    }
  }

  /** Fails with `failed_precondition` when the rule for host paths refuses a source; one that is missing is the sandbox's to tell. */
  async checkMounts(mounts: readonly MountSpec[]): Promise<void> {
    try {
      await checkSources('', mounts, this.#options.policy, findPath);
    } catch (error) {
      const { code, message } = error as ServiceError;
      if (code === 'invalid_request') throw failedPrecondition(message, { cause: error });
      if (code !== 'failed_precondition') throw error;
    }
  }

  /** An instance of before a restart may live on with what it had mounted: to be said before anything is released or swept. */
  adopt(mountSource: string, instanceId: string): void {
    if (mountSource.startsWith(`${this.#cacheDir}/`)) this.#use(basename(mountSource), instanceId);
  }

  /** As `adopt`, for a package that an agent of before a restart may have. */
  hold(tenant: string, sha256: string, instanceId: string): void {
    this.#use(cacheKey({ storage: 'package', tenant, sha256 }), instanceId);
  }

  /** Unpacks a package that is being uploaded, so that it is known to be good, and there when it is used. Fails as `unpack` does. */
  async take(tenant: string, sha256: string, archive: string): Promise<void> {
    const entry = this.#entryOf({ storage: 'package', tenant, sha256 });
    await this.#once(entry, 'kept', async () => archive);
    await this.#trim();
  }

  /** The instance is gone: its copy goes too, and cached objects that nobody uses any more when there are too many. */
  async release(instanceId: string): Promise<void> {
    for (const entry of this.#users.keys()) this.#unuse(entry, instanceId);
    await this.#options.removals.remove(join(this.#copyDir, instanceId));
    await this.#trim();
  }

  /** At start: whatever belongs to no living instance goes, and so do entries of an earlier boot. */
  async sweep(living: ReadonlySet<string>): Promise<void> {
    this.#isSwept = true;
    await this.#options.removals.remove(this.#workDir);
    for (const instanceId of await namesIn(this.#copyDir)) {
      if (!living.has(instanceId)) await this.#options.removals.remove(join(this.#copyDir, instanceId));
    }
    await this.#trim();
  }

  /** The directory, or null when there is none. Fails with `failed_precondition` when the rule for host paths refuses it. */
  async #open(path: string): Promise<OpenedPath | null> {
    // As the query of the version says it (`unavailable`): it names no place on the host.
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

  async #copy(opened: OpenedPath, path: string, instanceId: string): Promise<PlacedCode> {
    const copy = join(this.#copyDir, instanceId);
    try {
      await mkdir(this.#copyDir, { recursive: true, mode: 0o711 });
      await copyTree(opened, copy, { maxBytes: this.#options.maxUnpackedBytes, maxEntries: this.#options.maxEntries });
    } catch (error) {
      await this.#options.removals.remove(copy);
      throw failedPrecondition(`the code in ${path} could not be copied: ${withoutPaths(error)}`, { cause: error });
    }
    return placed(copy, false, true);
  }

  #entryOf(source: CachedSource): string {
    const { bootId } = this.#options;
    return bootId === null ? cacheKey(source) : `${cacheKey(source)}${BOOT}${bootId}`;
  }

  /** Whoever finds it may rely on what is in it. */
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
    const links = source.storage === 'package' ? 'kept' : 'refused';
    return this.#once(entry, links, async file => {
      if (source.storage === 'package') return await this.#archive(source, file);
      await fetchObject(source.object, this.#options.s3, file, this.#options.maxArchiveBytes);
      return file;
    });
  }

  /** The unpacked directory. */
  #once(entry: string, links: 'kept' | 'refused', fetch: Fetch): Promise<string> {
    let fetching = this.#fetching.get(entry);
    if (!fetching) {
      fetching = this.#fetch(fetch, join(this.#cacheDir, entry), links).finally(() => this.#fetching.delete(entry));
      this.#fetching.set(entry, fetching);
    }
    return fetching;
  }

  async #archive(
    { tenant, sha256 }: Extract<CodeSource, { readonly storage: 'package' }>,
    file: string,
  ): Promise<string> {
    const { packages } = this.#options;
    if (packages === undefined) throw failedPrecondition(`the code package does not exist: ${codeUrl(sha256)}`);
    return await packages.archive(tenant, sha256, file);
  }

  async #fetch(fetch: Fetch, target: string, links: 'kept' | 'refused'): Promise<string> {
    if (await isDirectory(target)) {
      const now = new Date();
      await utimes(target, now, now);
      return target;
    }
    const work = join(this.#workDir, randomUUID());
    try {
      await mkdir(join(work, 'code'), { recursive: true, mode: 0o711 });
      const archive = await fetch(join(work, 'archive'));
      await unpack(archive, join(work, 'code'), {
        maxBytes: this.#options.maxUnpackedBytes,
        maxEntries: this.#options.maxEntries,
        links,
      });
      await mkdir(this.#cacheDir, { recursive: true, mode: 0o711 });
      // Whole or not at all: a crash in between leaves only what `sweep` removes. After one of the machine nobody looks for this name.
      await rename(join(work, 'code'), target);
    } finally {
      await this.#options.removals.remove(work);
    }
    return target;
  }

  /** Removes the entries of an earlier boot that nobody uses, and those that were not used for longest until the unused ones fit. */
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

  /** Unless it is used again. */
  async #remove(entry: string): Promise<void> {
    await mkdir(this.#workDir, { recursive: true, mode: 0o711 });
    const away = join(this.#workDir, randomUUID());
    // Nothing is awaited between the look and the move: whoever places it from here on fetches it anew.
    if (this.#isUsed(entry)) return;
    try {
      renameSync(join(this.#cacheDir, entry), away);
    } catch {
      // Another one has moved it, or it cannot be moved now: the next look finds it.
      return;
    }
    await this.#options.removals.remove(away);
  }
}

function placed(source: string, readonly: boolean, ours: boolean): PlacedCode {
  return { codePath: CODE_TARGET, mount: { source, target: CODE_TARGET, readonly }, ours };
}

/** Between the key of an entry and the boot in which it was made. */
const BOOT = '.';

/** Gets a file that it may write an archive to, and answers where the archive is. */
type Fetch = (file: string) => Promise<string>;
type CachedSource = Extract<CodeSource, { readonly storage: 's3' | 'package' }>;

/** A new revision is a new entry: an object that was replaced under the same name is fetched again. A package is what its name says. */
function cacheKey(source: CachedSource): string {
  const parts = source.storage === 'package' ? ['package', source.tenant, source.sha256] : partsOf(source);
  return createHash('sha256').update(JSON.stringify(parts)).digest('hex');
}

function partsOf({ object, revision }: Extract<CodeSource, { readonly storage: 's3' }>): readonly string[] {
  return [object.bucketUrl, object.bucketId, object.objectId, object.sha512, object.token, revision];
}

/** Where copies are kept on the host is nobody's business. */
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

async function sizeOf(directory: string): Promise<number> {
  let bytes = 0;
  for (const entry of await readdir(directory, { recursive: true, withFileTypes: true }).catch(() => [])) {
    if (entry.isFile()) bytes += (await stat(join(entry.parentPath, entry.name)).catch(() => null))?.size ?? 0;
  }
  return bytes;
}
