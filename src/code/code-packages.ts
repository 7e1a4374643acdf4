import { createHash, randomUUID } from 'node:crypto';
import { createReadStream } from 'node:fs';
import { mkdir, rm, stat } from 'node:fs/promises';
import { join } from 'node:path';
import { type Readable, Transform } from 'node:stream';
import { pipeline } from 'node:stream/promises';
import { codeUrl, isSha256 } from '../core/code-package.ts';
import {
  alreadyExists,
  failedPrecondition,
  invalidRequest,
  messageOf,
  notFound,
  ServiceError,
  unavailable,
} from '../core/error.ts';
import { streamToFile } from '../lib/file-writes.ts';
import { Interval } from '../lib/interval.ts';
import type { Removals } from '../lib/removals.ts';
import { isDiskFull } from '../lib/system-errors.ts';
import type { TenantDisk } from '../lib/tenant-disk.ts';
import type { Database } from '../storage/database.ts';
import {
  codeBytesOf,
  countUnpackedCode,
  dropCodePackage,
  findCodePackage,
  listCodePackages,
  listUnusedCodePackages,
  putCodePackage,
  useCodePackage,
} from '../storage/queries/code-packages.ts';
import type { CodePackageTable } from '../storage/schema.ts';
import type { DurableWrites } from '../storage/writes/durable.ts';
import { CodeBlobs, type CodeBlobsOptions } from './code-blobs.ts';
import type { PackageArchives } from './code-store.ts';

export interface CodePackagesOptions extends Omit<CodeBlobsOptions, 'directory'> {
  readonly database: Database;
  readonly writes: DurableWrites;
  readonly dataDir: string;
  readonly removals: Removals;
  readonly maxBytes: number;
  readonly disk: TenantDisk;
  /** Time for which an unused package is kept, from its last use. */
  readonly keepMs: number;
  /** Returns true if this node removes unused packages for all nodes. */
  readonly mayCollect: () => boolean;
  readonly log: { warn(fields: object, text: string): void };
}

/** Package as shown to clients. */
export interface CodePackage {
  readonly sha256: string;
  readonly bytes: number;
  readonly createdAtMs: number;
  readonly usedAtMs: number;
}

/** Unpacks packages. */
export interface Unpacker {
  /**
   * Unpacks an archive at its place of use, which proves that it can be unpacked. Returns the unpacked bytes.
   * Fails with `failed_precondition`.
   */
  unpackUpload(tenant: string, sha256: string, archive: string): Promise<number>;
  /** Removes the unpacked files of a package that was refused. */
  discard(tenant: string, sha256: string): Promise<void>;
}

const COLLECT_MS = 600_000;
/** Least time between two records of a package's use. */
const USE_MS = 60_000;

/**
 * Uploaded code, stored once for each tenant and content. The SHA-256 is the name by which users refer to it.
 */
export class CodePackages implements PackageArchives {
  readonly #options: CodePackagesOptions;
  readonly #blobs: CodeBlobs;
  readonly #directory: string;
  readonly #uploads: string;
  readonly #interval: Interval;

  constructor(options: CodePackagesOptions) {
    this.#options = options;
    options.disk.countStored(tenant => codeBytesOf(options.database, tenant));
    this.#directory = join(options.dataDir, 'code', 'packages');
    this.#uploads = join(options.dataDir, 'code', 'uploads');
    this.#blobs = new CodeBlobs({ ...options, directory: this.#directory });
    this.#interval = new Interval(COLLECT_MS, () => this.collect());
  }

  async start(): Promise<void> {
    await this.#options.removals.remove(this.#uploads);
    for (const path of [this.#uploads, this.#directory]) await mkdir(path, { recursive: true, mode: 0o700 });
    this.#interval.start();
  }

  close(): Promise<void> {
    return this.#interval.close();
  }

  get maxBytes(): number {
    return this.#options.maxBytes;
  }

  /** Returns the error of an upload that is too large. `number` is the HTTP status. */
  tooLarge(): ServiceError {
    return invalidRequest(`the code package is larger than ${this.maxBytes} bytes`, { number: 413 });
  }

  /**
   * Returns a package; null if the tenant has none or its bytes were lost. A new upload restores lost bytes.
   */
  async find(tenant: string, sha256: string): Promise<CodePackage | null> {
    const row = isSha256(sha256) ? await findCodePackage(this.#options.database, tenant, sha256) : null;
    return row !== null && (await this.#blobs.has(row)) ? toPackage(row) : null;
  }

  async list(tenant: string, after: string, limit: number): Promise<readonly CodePackage[]> {
    return (await listCodePackages(this.#options.database, { tenant, after, limit })).map(toPackage);
  }

  /**
   * Records the use of a package. Fails with `failed_precondition` if it does not exist. `noun` names the
   * subject in the error.
   */
  async use(tenant: string, sha256: string, noun: string): Promise<void> {
    const row = await findCodePackage(this.#options.database, tenant, sha256);
    const nowMs = Date.now();
    if (row !== null && row.used_at_ms > nowMs - USE_MS) return;
    const isThere = row !== null && (await this.#options.writes.write(useCodePackage, tenant, sha256, nowMs));
    if (!isThere) throw failedPrecondition(`${noun} does not exist: ${codeUrl(sha256)}`);
  }

  /**
   * Checks that a package exists after a record refers to it, which then protects the package. Fails as `use`
   * does if it was removed before.
   */
  async confirm(tenant: string, sha256: string): Promise<void> {
    // A write, so that it is ordered with removals on every database.
    const isThere = await this.#options.writes.write(useCodePackage, tenant, sha256, Date.now());
    if (!isThere) throw failedPrecondition(`the code package does not exist: ${codeUrl(sha256)}`);
  }

  async unpacked(tenant: string, sha256: string, measure: () => Promise<number>): Promise<void> {
    const row = await findCodePackage(this.#options.database, tenant, sha256);
    if (row === null || row.unpacked_bytes > 0) return;
    await this.#options.writes.write(countUnpackedCode, tenant, sha256, await measure());
  }

  async archive(tenant: string, sha256: string, file: string): Promise<string> {
    const row = await findCodePackage(this.#options.database, tenant, sha256);
    if (row === null) throw failedPrecondition(`the code package does not exist: ${codeUrl(sha256)}`);
    let archive: string | null;
    try {
      archive = await this.#blobs.get(row, file);
      if (archive !== null) await proveContent(archive, sha256);
    } catch (error) {
      if (error instanceof ServiceError) throw error;
      throw unavailable(`the code package ${codeUrl(sha256)} could not be fetched`, { cause: error });
    }
    if (archive === null)
      throw unavailable(`the code package ${codeUrl(sha256)} is not where it was stored: upload it again`);
    return archive;
  }

  /**
   * Stores a package completely or not at all; `content` is not read if the package exists. Fails with
   * `invalid_request` (other content, not an archive; too large: `number` 413), `resource_exhausted` or
   * `unavailable`.
   */
  async put(tenant: string, sha256: string, content: Readable, unpacker: Unpacker): Promise<CodePackage> {
    if (!isSha256(sha256)) throw wrongName(sha256);
    const { database, writes, disk } = this.#options;
    const isKnown = await writes.write(useCodePackage, tenant, sha256, Date.now());
    const known = isKnown ? await findCodePackage(database, tenant, sha256) : null;
    if (known !== null && (await this.#blobs.has(known))) return toPackage(known);
    const upload = join(this.#uploads, randomUUID());
    const row: CodePackageTable = {
      ...{ tenant, sha256, blob: known?.blob ?? randomUUID(), bytes: 0, unpacked_bytes: 0 },
      ...{ created_at_ms: Date.now(), used_at_ms: Date.now() },
      place: this.#blobs.place,
    };
    let isUnpacked = false;
    try {
      const bytes = await this.#receive(content, upload, sha256);
      if (known === null) await disk.assertFits(tenant, bytes);
      const unpacked = await unpacker.unpackUpload(tenant, sha256, upload).catch(refuseArchive);
      isUnpacked = true;
      if (known === null) await disk.assertFits(tenant, bytes + unpacked);
      await this.#blobs.put(row.blob, upload, sha256);
      const whole = { ...row, bytes, unpacked_bytes: unpacked, used_at_ms: Date.now() };
      const kept = await writes.write(putCodePackage, whole, disk.maxBytes);
      // Meanwhile another client uploaded the package, or used up the tenant's disk.
      if (kept?.blob !== row.blob) await this.#blobs.remove(row);
      if (kept === null) throw disk.noRoom();
      return toPackage(kept);
    } catch (error) {
      if (isUnpacked && known === null) await unpacker.discard(tenant, sha256);
      if (error instanceof ServiceError) throw error;
      const why = isDiskFull(error) ? 'there is no room for the code package' : 'the code package could not be stored';
      throw unavailable(why, { cause: error });
    } finally {
      await rm(upload, { force: true });
    }
  }

  /** Removes a package. Fails with `not_found`, and with `already_exists` while a record refers to it. */
  async remove(tenant: string, sha256: string): Promise<void> {
    const dropped = await this.#options.writes.write(dropCodePackage, tenant, sha256, null, Date.now());
    if (dropped.kind === 'in use') {
      throw alreadyExists(`the code package ${sha256} is in use: ${dropped.user} refers to it`);
    }
    if (dropped.kind !== 'dropped') throw packageNotFound(sha256);
    await this.#forget(dropped.row);
  }

  /** Removes packages that no record refers to and that were not used for `keepMs`. Never rejects. */
  async collect(): Promise<void> {
    const { database, writes, keepMs, mayCollect, log } = this.#options;
    if (!mayCollect()) return;
    try {
      const beforeMs = Date.now() - keepMs;
      for (const { tenant, sha256 } of await listUnusedCodePackages(database, beforeMs)) {
        const dropped = await writes.write(dropCodePackage, tenant, sha256, beforeMs, Date.now());
        if (dropped.kind === 'dropped') await this.#forget(dropped.row);
      }
      await this.#blobs.sweep();
    } catch (error) {
      log.warn({ reason: messageOf(error) }, 'removal of unused code packages failed; retrying');
    }
  }

  /** Removes the bytes of a package whose record is deleted. The sweep removes them later if this fails. */
  async #forget(row: CodePackageTable): Promise<void> {
    await this.#blobs.remove(row).catch((error: unknown) => {
      this.#options.log.warn({ reason: messageOf(error) }, 'removal of code package failed; retrying');
    });
  }

  async #receive(content: Readable, file: string, sha256: string): Promise<number> {
    const hash = createHash('sha256');
    let bytes = 0;
    // Bytes above the limit are read and dropped, so that the client finishes sending and reads the error.
    const bound = new Transform({
      transform: (chunk: Buffer, _encoding, done) => {
        bytes += chunk.length;
        hash.update(chunk);
        done(null, bytes > this.maxBytes ? undefined : chunk);
      },
    });
    await streamToFile([content, bound], file, { flags: 'wx', mode: 0o600, flush: true });
    if (bytes > this.maxBytes) throw this.tooLarge();
    const found = hash.digest('hex');
    if (found !== sha256) throw invalidRequest(`the content has the SHA-256 ${found}, expected ${sha256}`);
    return bytes;
  }
}

export function packageNotFound(sha256: string): ServiceError {
  return notFound(`code package not found: ${sha256.slice(0, 80)}`);
}

function wrongName(sha256: string): ServiceError {
  const got = JSON.stringify(sha256.slice(0, 80));
  return invalidRequest(`a code package is named by the 64 lower-case hexadecimal digits of its SHA-256, got ${got}`);
}

function refuseArchive(error: unknown): never {
  if (!(error instanceof ServiceError) || error.code !== 'failed_precondition') throw error;
  throw invalidRequest(error.message, { cause: error });
}

/** Fails if the content read from storage differs from the upload. */
async function proveContent(file: string, sha256: string): Promise<void> {
  const hash = createHash('sha256');
  await pipeline(createReadStream(file), hash);
  if (hash.digest('hex') !== sha256) {
    const { size } = await stat(file);
    throw new Error(`the stored code package ${sha256} has other content (${size} bytes)`);
  }
}

function toPackage({ sha256, bytes, created_at_ms, used_at_ms }: CodePackageTable): CodePackage {
  return { sha256, bytes, createdAtMs: created_at_ms, usedAtMs: used_at_ms };
}
