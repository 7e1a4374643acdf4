import { createHash } from 'node:crypto';
import { createReadStream, createWriteStream } from 'node:fs';
import { chmod, mkdir, open, readdir, readFile, rename, rm, stat, writeFile } from 'node:fs/promises';
import { dirname, join, resolve } from 'node:path';
import { type Readable, Transform } from 'node:stream';
import { pipeline } from 'node:stream/promises';
import { createGzip } from 'node:zlib';
import { DatabaseSync, type DatabaseSyncInstance } from '@photostructure/sqlite';
import tar from 'tar-stream';
import { failedPrecondition, messageOf } from '../core/error.ts';
import { flushDirectory, streamToFile } from '../lib/file-writes.ts';
import { isAbsent } from '../lib/system-errors.ts';
import { DATABASE, NODE_ID, readFacts, SECRETS_KEY } from './data-dir-facts.ts';

/** Longest wait of a database copy for a lock of the service. */
const LOCK_MS = 30_000;

export interface BackupOptions {
  readonly dataDir: string;
  /** A new or empty directory, or a new file with a name that ends in `.tar.gz` or `.tgz`. */
  readonly target: string;
  readonly version: string;
  /** True to copy the key of secrets in the data directory too. */
  readonly hasKey: boolean;
}

/** Summary of a backup. */
export interface Backup {
  readonly files: number;
  readonly bytes: number;
  /** Number of secrets in the copied database. */
  readonly secrets: number;
  /** True when the backup has `secrets.key`. */
  readonly hasKey: boolean;
}

/**
 * Copies the lasting content of a data directory: the database, node-id, the key of secrets and uploaded
 * packages. A service may use the directory meanwhile. The target appears complete or not at all. Fails with
 * `failed_precondition`.
 */
export async function backUp(options: BackupOptions): Promise<Backup> {
  const target = resolve(options.target);
  await checkTarget(target);
  const { nodeId, hasDatabase } = await readFacts(options.dataDir);
  if (!hasDatabase || nodeId === null) {
    throw failedPrecondition(
      `the data directory ${options.dataDir} has no ${hasDatabase ? NODE_ID : DATABASE}: choose the one of the service with --data-dir`,
    );
  }
  const staged = `${target}.partial`;
  await makeStaged(staged);
  try {
    const secrets = await copyDatabase(join(options.dataDir, DATABASE), join(staged, DATABASE));
    const files = [await describe(staged, DATABASE)];
    const names = [NODE_ID, ...(options.hasKey ? [SECRETS_KEY] : [])];
    // Copied after the database: every package that a copied record refers to was complete before.
    for (const path of UPLOADS) names.push(...(await filesBelow(options.dataDir, path)));
    for (const path of names) {
      const copied = await copyFile(join(options.dataDir, path), staged, path);
      if (copied !== null) files.push(copied);
    }
    const manifest: BackupManifest = {
      ...{ format: BACKUP_FORMAT, version: options.version, createdAt: new Date().toISOString(), nodeId },
      files,
    };
    await writeFile(join(staged, MANIFEST), `${JSON.stringify(manifest, null, 2)}\n`, { mode: 0o600, flush: true });
    if (isArchive(target)) await pack(staged, target, manifest);
    else await rename(staged, target);
    await flushDirectory(dirname(target));
    return {
      files: files.length,
      bytes: files.reduce((sum, { bytes }) => sum + bytes, 0),
      secrets,
      hasKey: files.some(({ path }) => path === SECRETS_KEY),
    };
  } finally {
    await rm(staged, { recursive: true, force: true });
  }
}

/** Fails unless the target is new or an empty directory: a backup replaces nothing. */
async function checkTarget(target: string): Promise<void> {
  const found = await stat(target).catch(orNull);
  if (found === null) return;
  if (isArchive(target)) throw failedPrecondition(`${target} exists already: choose another name`);
  if (!found.isDirectory()) {
    throw failedPrecondition(`${target} is a file: choose a new directory, or a name that ends in .tar.gz`);
  }
  if ((await readdir(target)).length > 0) {
    throw failedPrecondition(`the directory ${target} is not empty: choose a new one`);
  }
}

async function makeStaged(staged: string): Promise<void> {
  try {
    await mkdir(staged, { mode: 0o700 });
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException;
    if (code === 'EEXIST') {
      throw failedPrecondition(`${staged} exists: another backup runs, or one was interrupted; remove it then`);
    }
    throw failedPrecondition(`${staged} cannot be made: ${messageOf(error)}`, { cause: error });
  }
}

/** Copies one snapshot of a database in use. Returns the number of secrets in the copy. */
async function copyDatabase(file: string, copy: string): Promise<number> {
  let source: DatabaseSyncInstance | undefined;
  let copied: DatabaseSyncInstance | undefined;
  try {
    // Read-only: otherwise the last connection to close would remove the write-ahead log of a killed service.
    source = new DatabaseSync(file, { readOnly: true, timeout: LOCK_MS });
    source.prepare('VACUUM INTO ?').run(copy);
    await chmod(copy, 0o600);
    copied = new DatabaseSync(copy, { readOnly: true });
    const [problem] = Object.values(copied.prepare('PRAGMA quick_check(1)').get() ?? {});
    if (problem !== 'ok') throw new Error(String(problem));
    const { count } = copied.prepare('SELECT count(*) AS count FROM secrets').get() as { count: number };
    return count;
  } catch (error) {
    throw failedPrecondition(`the database ${file} cannot be copied: ${messageOf(error)}`, { cause: error });
  } finally {
    source?.close();
    copied?.close();
    await flushFile(copy).catch(() => undefined);
  }
}

/** Copies a file. Returns null when the file was removed before the copy, as an unused package is. */
async function copyFile(source: string, staged: string, path: string): Promise<BackedUpFile | null> {
  const target = join(staged, path);
  await mkdir(dirname(target), { recursive: true, mode: 0o700 });
  const content = await open(source).catch(orNull);
  if (content === null) return null;
  const { measure, measured } = measuring();
  await streamToFile([content.createReadStream(), measure], target, { flags: 'wx', mode: 0o600, flush: true });
  return { path, ...measured() };
}

async function describe(staged: string, path: string): Promise<BackedUpFile> {
  const { measure, measured } = measuring();
  measure.resume();
  await pipeline(createReadStream(join(staged, path)), measure);
  return { path, ...measured() };
}

/** Creates a transform that counts and hashes the bytes that pass through. */
export function measuring() {
  const hash = createHash('sha256');
  let bytes = 0;
  const measure = new Transform({
    transform(chunk: Buffer, _encoding, done) {
      bytes += chunk.length;
      hash.update(chunk);
      done(null, chunk);
    },
  });
  return { measure, measured: () => ({ bytes, sha256: hash.digest('hex') }) };
}

/**
 * Returns regular files, relative to the data directory. Names that begin with a dot belong to unfinished
 * uploads and are skipped.
 */
async function filesBelow(dataDir: string, path: string): Promise<readonly string[]> {
  const entries = await readdir(join(dataDir, path), { withFileTypes: true }).catch(orNull);
  const found = (entries ?? []).filter(({ name }) => !name.startsWith('.'));
  const nested = await Promise.all(
    found.map(async entry => {
      const below = `${path}/${entry.name}`;
      if (entry.isDirectory()) return await filesBelow(dataDir, below);
      return entry.isFile() ? [below] : [];
    }),
  );
  return nested.flat().sort();
}

/** Writes an archive with the manifest first, so that a reader of the stream can check each file. */
async function pack(staged: string, target: string, { files }: BackupManifest): Promise<void> {
  const archive = `${staged}/archive`;
  const stream = tar.pack();
  const written = pipeline(stream, createGzip(), createWriteStream(archive, { flags: 'wx', mode: 0o600, flush: true }));
  const filled = (async () => {
    const manifest = await readFile(join(staged, MANIFEST));
    stream.entry({ name: MANIFEST, mode: 0o600 }, manifest);
    for (const { path, bytes } of files) {
      const entry = stream.entry({ name: path, size: bytes, mode: 0o600 });
      await pipeline(createReadStream(join(staged, path)) as Readable, entry);
    }
    stream.finalize();
  })();
  filled.catch((error: Error) => stream.destroy(error));
  await Promise.all([filled, written]);
  await rename(archive, target);
}

async function flushFile(path: string): Promise<void> {
  const file = await open(path, 'r');
  await file.sync().finally(() => file.close());
}

function orNull(error: unknown): null {
  if (isAbsent(error)) return null;
  throw error;
}

/** The file that lists the content of a backup. */
export const MANIFEST = 'backup.json';
export const BACKUP_FORMAT = 1;
/** Directories with uploads, relative to the data directory: code packages, and packages of jobs. */
export const UPLOADS = ['code/packages', 'packages'] as const;
/** Enough for the names of a million packages. */
export const MAX_MANIFEST_BYTES = 256 * 1024 * 1024;

export interface BackedUpFile {
  /** Relative to the data directory. */
  readonly path: string;
  readonly bytes: number;
  readonly sha256: string;
}

export interface BackupManifest {
  readonly format: number;
  /** Version of Rookery that made the backup. */
  readonly version: string;
  readonly createdAt: string;
  readonly nodeId: string;
  readonly files: readonly BackedUpFile[];
}

/**
 * A path with one or two names below an upload directory. No name begins with a dot, so no path leads
 * upwards.
 */
const UPLOADED = new RegExp(`^(?:${UPLOADS.join('|')})(?:/(?!\\.)[^/\\0]+){1,2}$`);

/** Returns true when a backup is a single file. */
export function isArchive(path: string): boolean {
  return /\.(?:tar\.gz|tgz)$/.test(path);
}

/** Parses a manifest. Fails with `failed_precondition`. */
export function readManifest(text: string): BackupManifest {
  let manifest: BackupManifest;
  try {
    manifest = JSON.parse(text) as BackupManifest;
  } catch {
    throw damaged(`${MANIFEST} is not JSON`);
  }
  if (manifest.format !== BACKUP_FORMAT) {
    throw failedPrecondition(
      `the backup has format ${manifest.format}, and this version reads format ${BACKUP_FORMAT}: restore it with Rookery ${manifest.version}`,
    );
  }
  const paths = new Set(manifest.files.map(({ path }) => path));
  for (const path of [DATABASE, NODE_ID]) if (!paths.has(path)) throw damaged(`${MANIFEST} does not list ${path}`);
  for (const path of paths) {
    const isKnown = path === DATABASE || path === NODE_ID || path === SECRETS_KEY || UPLOADED.test(path);
    if (!isKnown) throw damaged(`${MANIFEST} lists ${JSON.stringify(path)}, which no backup has`);
  }
  return manifest;
}

export function damaged(why: string) {
  return failedPrecondition(`the backup is damaged: ${why}; nothing was started, restore another one`);
}
