import { createHash, randomUUID } from 'node:crypto';
import { cp, mkdir, readdir, rename, rm, stat, utimes } from 'node:fs/promises';
import { basename, join } from 'node:path';
import { failedPrecondition, messageOf } from '../../core/error.ts';
import type { MountSpec } from '../../core/mount.ts';
import { unpack } from '../../storage/unpack.ts';
import { fetchObject, type S3Object, type S3Settings } from './s3-source.ts';

/** Where the code of a service instance stands inside its sandbox (decisions §6). */
export const CODE_TARGET = '/opt/function/code';

/** The place of a function version's code. */
export type CodeSource =
  /** `orInImage`: when this host has no such directory, the image has it. */
  | { readonly storage: 'local'; readonly path: string; readonly orInImage?: boolean }
  | { readonly storage: 'copy'; readonly path: string }
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

export interface CodeStoreOptions {
  readonly dataDir: string;
  readonly s3: S3Settings;
  /** Unpacked objects that are kept when nothing uses them, bytes together. */
  readonly maxCacheBytes: number;
  readonly maxArchiveBytes: number;
  readonly maxUnpackedBytes: number;
  readonly maxEntries: number;
}

/**
 * Puts a function's code where an instance can mount it: `local` as it is, `copy` into a directory of the instance's own, `s3` fetched and
 * unpacked once per revision into a cache that all its instances share read-only.
 */
export class CodeStore {
  readonly #options: CodeStoreOptions;
  readonly #cacheDir: string;
  readonly #copyDir: string;
  readonly #workDir: string;
  /** Fetches under way: everybody who needs the same object waits for the same one. */
  readonly #fetching = new Map<string, Promise<string>>();
  /** Cache entries by the instances that mount them. */
  readonly #users = new Map<string, Set<string>>();

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
    if (source.storage === 's3') {
      const directory = await this.#fetched(source.object, source.revision);
      this.#use(basename(directory), instanceId);
      return placed(directory, true, true);
    }
    if (source.storage === 'local' && source.orInImage === true && !(await isDirectory(source.path))) {
      return { codePath: source.path, mount: null, ours: false };
    }
    await mustBeDirectory(source.path);
    if (source.storage === 'local') {
      return placed(source.path, true, false);
    }
    const copy = join(this.#copyDir, instanceId);
    try {
      await mkdir(this.#copyDir, { recursive: true, mode: 0o711 });
      // Links are copied as links: what they lead to is not the function's unless it can reach it by itself.
      await cp(source.path, copy, { recursive: true, verbatimSymlinks: true, errorOnExist: true, force: false });
    } catch (error) {
      await rm(copy, { recursive: true, force: true });
      throw failedPrecondition(`the code in ${source.path} could not be copied: ${messageOf(error)}`, { cause: error });
    }
    return placed(copy, false, true);
  }

  /** An instance of before a restart lives on with what it had mounted. */
  adopt(mountSource: string, instanceId: string): void {
    if (mountSource.startsWith(`${this.#cacheDir}/`)) this.#use(basename(mountSource), instanceId);
  }

  /** The instance is gone: its copy goes too, and cached objects that nobody uses any more when there are too many. */
  async release(instanceId: string): Promise<void> {
    for (const [entry, users] of this.#users) {
      if (users.delete(instanceId) && users.size === 0) this.#users.delete(entry);
    }
    await rm(join(this.#copyDir, instanceId), { recursive: true, force: true });
    await this.#trim();
  }

  /** At start: whatever belongs to no living instance goes. */
  async sweep(living: ReadonlySet<string>): Promise<void> {
    await rm(this.#workDir, { recursive: true, force: true });
    for (const instanceId of await namesIn(this.#copyDir)) {
      if (!living.has(instanceId)) await rm(join(this.#copyDir, instanceId), { recursive: true, force: true });
    }
    await this.#trim();
  }

  #use(entry: string, instanceId: string): void {
    const users = this.#users.get(entry) ?? new Set();
    users.add(instanceId);
    this.#users.set(entry, users);
  }

  #fetched(object: S3Object, revision: string): Promise<string> {
    const key = cacheKey(object, revision);
    let fetching = this.#fetching.get(key);
    if (!fetching) {
      fetching = this.#fetch(object, join(this.#cacheDir, key)).finally(() => this.#fetching.delete(key));
      this.#fetching.set(key, fetching);
    }
    return fetching;
  }

  async #fetch(object: S3Object, target: string): Promise<string> {
    if (await isDirectory(target)) {
      const now = new Date();
      await utimes(target, now, now);
      return target;
    }
    const work = join(this.#workDir, randomUUID());
    try {
      await mkdir(join(work, 'code'), { recursive: true, mode: 0o711 });
      const archive = join(work, 'archive');
      await fetchObject(object, this.#options.s3, archive, this.#options.maxArchiveBytes);
      await unpack(archive, join(work, 'code'), {
        maxBytes: this.#options.maxUnpackedBytes,
        maxEntries: this.#options.maxEntries,
      });
      await mkdir(this.#cacheDir, { recursive: true, mode: 0o711 });
      // Whole or not at all: a crash in between leaves only what `sweep` removes.
      await rename(join(work, 'code'), target);
    } finally {
      await rm(work, { recursive: true, force: true });
    }
    return target;
  }

  /** Removes the entries that were not used for longest until the unused ones fit. */
  async #trim(): Promise<void> {
    const unused: { path: string; bytes: number; usedAtMs: number }[] = [];
    for (const entry of await namesIn(this.#cacheDir)) {
      if (this.#users.has(entry) || this.#fetching.has(entry)) continue;
      const path = join(this.#cacheDir, entry);
      const facts = await stat(path).catch(() => null);
      if (facts) unused.push({ path, bytes: await sizeOf(path), usedAtMs: facts.mtimeMs });
    }
    unused.sort((a, b) => b.usedAtMs - a.usedAtMs);
    let kept = 0;
    for (const { path, bytes } of unused) {
      kept += bytes;
      if (kept > this.#options.maxCacheBytes) await rm(path, { recursive: true, force: true });
    }
  }
}

function placed(source: string, readonly: boolean, ours: boolean): PlacedCode {
  return { codePath: CODE_TARGET, mount: { source, target: CODE_TARGET, readonly }, ours };
}

/** A new revision is a new entry: an object that was replaced under the same name is fetched again. */
function cacheKey(object: S3Object, revision: string): string {
  const parts = [object.bucketUrl, object.bucketId, object.objectId, object.sha512, object.token, revision];
  return createHash('sha256').update(JSON.stringify(parts)).digest('hex');
}

async function mustBeDirectory(path: string): Promise<void> {
  if (await isDirectory(path)) return;
  throw failedPrecondition(
    `the code directory does not exist: ${path}; codePath must be a directory of the host of the service, or the target of a mount of the function`,
  );
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
