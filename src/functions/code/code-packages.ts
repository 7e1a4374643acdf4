import { createHash, randomUUID } from 'node:crypto';
import { createReadStream } from 'node:fs';
import { mkdir, rm, stat } from 'node:fs/promises';
import { join } from 'node:path';
import { type Readable, Transform } from 'node:stream';
import { pipeline } from 'node:stream/promises';
import { codeUrl, isSha256 } from '../../core/code-package.ts';
import {
  alreadyExists,
  failedPrecondition,
  invalidRequest,
  messageOf,
  notFound,
  resourceExhausted,
  ServiceError,
  unavailable,
} from '../../core/error.ts';
import type { Removals } from '../../lib/removals.ts';
import { Rounds } from '../../lib/rounds.ts';
import { streamToFile } from '../../lib/stream-to-file.ts';
import { isDiskFull } from '../../lib/system-errors.ts';
import {
  type CodePackageTable,
  codeBytesOf,
  dropCodePackage,
  findCodePackage,
  listCodePackages,
  listUnusedCodePackages,
  putCodePackage,
  useCodePackage,
} from '../../storage/code-packages.ts';
import type { Database } from '../../storage/database.ts';
import type { DurableWrites } from '../../storage/durable.ts';
import { CodeBlobs, type CodeBlobsOptions } from './code-blobs.ts';
import type { PackageArchives } from './code-store.ts';

export interface CodePackagesOptions extends Omit<CodeBlobsOptions, 'directory'> {
  readonly database: Database;
  readonly writes: DurableWrites;
  readonly dataDir: string;
  readonly removals: Removals;
  readonly maxBytes: number;
  readonly maxTenantBytes: number;
  /** How long one stays that nothing refers to, after its last use. */
  readonly keepMs: number;
  /** Whether this node removes, for all, what nobody needs. */
  readonly mayCollect: () => boolean;
  readonly log: { warn(fields: object, text: string): void };
}

/** A package as callers see it. */
export interface CodePackage {
  readonly sha256: string;
  readonly bytes: number;
  readonly createdAtMs: number;
  readonly usedAtMs: number;
}

/** Unpacks an archive where it is used, which proves that it can be. Fails with `failed_precondition`. */
export type Prove = (tenant: string, sha256: string, archive: string) => Promise<void>;

const COLLECT_MS = 600_000;
/** A use is written down when the last one is so long ago. */
const USE_MS = 60_000;

/** Uploaded code, once for each content and tenant; its name is its SHA-256. Who uses it refers to it by that. */
export class CodePackages implements PackageArchives {
  readonly #options: CodePackagesOptions;
  readonly #blobs: CodeBlobs;
  readonly #directory: string;
  readonly #uploads: string;
  readonly #rounds: Rounds;

  constructor(options: CodePackagesOptions) {
    this.#options = options;
    this.#directory = join(options.dataDir, 'code', 'packages');
    this.#uploads = join(options.dataDir, 'code', 'uploads');
    this.#blobs = new CodeBlobs({ ...options, directory: this.#directory });
    this.#rounds = new Rounds(COLLECT_MS, () => this.collect());
  }

  async start(): Promise<void> {
    await this.#options.removals.remove(this.#uploads);
    for (const path of [this.#uploads, this.#directory]) await mkdir(path, { recursive: true, mode: 0o700 });
    this.#rounds.start();
  }

  close(): Promise<void> {
    return this.#rounds.close();
  }

  get maxBytes(): number {
    return this.#options.maxBytes;
  }

  /** `number` is the status. */
  tooLarge(): ServiceError {
    return invalidRequest(`the code package is larger than ${this.maxBytes} bytes`, { number: 413 });
  }

  /** Null when the tenant has none, and when its bytes were lost: an upload brings them back. */
  async find(tenant: string, sha256: string): Promise<CodePackage | null> {
    const row = isSha256(sha256) ? await findCodePackage(this.#options.database, tenant, sha256) : null;
    return row !== null && (await this.#blobs.has(row)) ? toPackage(row) : null;
  }

  async list(tenant: string, after: string, limit: number): Promise<readonly CodePackage[]> {
    return (await listCodePackages(this.#options.database, { tenant, after, limit })).map(toPackage);
  }

  /** Something begins to use it. Fails with `failed_precondition` when it is not there. `noun`: what names it. */
  async use(tenant: string, sha256: string, noun: string): Promise<void> {
    const row = await findCodePackage(this.#options.database, tenant, sha256);
    const nowMs = Date.now();
    if (row !== null && row.used_at_ms > nowMs - USE_MS) return;
    const isThere = row !== null && (await this.#options.writes.write(useCodePackage, tenant, sha256, nowMs));
    if (!isThere) throw failedPrecondition(`${noun} does not exist: ${codeUrl(sha256)}`);
  }

  /** Once a row refers to it: it is there, and stays. Fails as `use` does, with what removed it before the row was there. */
  async confirm(tenant: string, sha256: string): Promise<void> {
    // In turn with removals, whatever the database is.
    const isThere = await this.#options.writes.write(useCodePackage, tenant, sha256, Date.now());
    if (!isThere) throw failedPrecondition(`the code package does not exist: ${codeUrl(sha256)}`);
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
   * Whole, or not at all; `content` is not read when it is there already. Fails with `invalid_request` (another content, no archive; too large:
   * `number` 413), `resource_exhausted` or `unavailable`.
   */
  async put(tenant: string, sha256: string, content: Readable, prove: Prove): Promise<CodePackage> {
    if (!isSha256(sha256)) throw wrongName(sha256);
    const { database, writes } = this.#options;
    const isKnown = await writes.write(useCodePackage, tenant, sha256, Date.now());
    const known = isKnown ? await findCodePackage(database, tenant, sha256) : null;
    if (known !== null && (await this.#blobs.has(known))) return toPackage(known);
    const upload = join(this.#uploads, randomUUID());
    const row: CodePackageTable = {
      ...{ tenant, sha256, blob: known?.blob ?? randomUUID(), bytes: 0 },
      ...{ created_at_ms: Date.now(), used_at_ms: Date.now() },
      place: this.#blobs.place,
    };
    try {
      const bytes = await this.#receive(content, upload, sha256);
      if (known === null) await this.#assertRoom(tenant, bytes);
      await prove(tenant, sha256, upload).catch(refuseArchive);
      await this.#blobs.put(row.blob, upload, sha256);
      const whole = { ...row, bytes, used_at_ms: Date.now() };
      const kept = await writes.write(putCodePackage, whole, this.#options.maxTenantBytes);
      // Somebody else uploaded it meanwhile, or something that takes the room.
      if (kept?.blob !== row.blob) await this.#blobs.remove(row);
      if (kept === null) throw this.#noRoom();
      return toPackage(kept);
    } catch (error) {
      if (error instanceof ServiceError) throw error;
      const why = isDiskFull(error) ? 'there is no room for the code package' : 'the code package could not be stored';
      throw unavailable(why, { cause: error });
    } finally {
      await rm(upload, { force: true });
    }
  }

  /** Fails with `not_found`, and with `already_exists` while something refers to it. */
  async remove(tenant: string, sha256: string): Promise<void> {
    const dropped = await this.#options.writes.write(dropCodePackage, tenant, sha256, null, Date.now());
    if (dropped.kind === 'in use') {
      throw alreadyExists(`the code package ${sha256} is in use: ${dropped.user} refers to it`);
    }
    if (dropped.kind !== 'dropped') throw packageNotFound(sha256);
    await this.#forget(dropped.row);
  }

  /** Removes what nobody refers to and nobody used lately. Never rejects. */
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
      log.warn({ reason: messageOf(error) }, 'code packages that nobody needs were not all removed; it is tried again');
    }
  }

  /** Its row is gone: what stays of it is swept later. */
  async #forget(row: CodePackageTable): Promise<void> {
    await this.#blobs.remove(row).catch((error: unknown) => {
      this.#options.log.warn({ reason: messageOf(error) }, 'a code package was not removed; it is tried again');
    });
  }

  async #receive(content: Readable, file: string, sha256: string): Promise<number> {
    const hash = createHash('sha256');
    let bytes = 0;
    // Bytes above the limit are read and dropped: who sends it would otherwise never read why it was refused.
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

  async #assertRoom(tenant: string, bytes: number): Promise<void> {
    const { database, maxTenantBytes } = this.#options;
    if ((await codeBytesOf(database, tenant)) + bytes > maxTenantBytes) throw this.#noRoom();
  }

  #noRoom(): ServiceError {
    const { maxTenantBytes } = this.#options;
    return resourceExhausted(`the code packages of a tenant may have ${maxTenantBytes} bytes together: delete some`, {
      retryAfterSeconds: 60,
    });
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

/** What comes from elsewhere is what was uploaded. */
async function proveContent(file: string, sha256: string): Promise<void> {
  const hash = createHash('sha256');
  await pipeline(createReadStream(file), hash);
  if (hash.digest('hex') !== sha256) {
    const { size } = await stat(file);
    throw new Error(`what was stored of ${sha256} are other ${size} bytes`);
  }
}

function toPackage({ sha256, bytes, created_at_ms, used_at_ms }: CodePackageTable): CodePackage {
  return { sha256, bytes, createdAtMs: created_at_ms, usedAtMs: used_at_ms };
}
