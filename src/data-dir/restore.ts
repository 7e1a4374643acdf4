import { createReadStream } from 'node:fs';
import { chmod, chown, mkdir, readdir, rename, rm, stat } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { Readable } from 'node:stream';
import { pipeline } from 'node:stream/promises';
import { createGunzip } from 'node:zlib';
import { DatabaseSync, type DatabaseSyncInstance } from '@photostructure/sqlite';
import tar from 'tar-stream';
import { failedPrecondition, messageOf } from '../core/error.ts';
import { CLUSTER_SANDBOX_TYPES } from '../core/sandbox-types.ts';
import { flushDirectory, streamToFile } from '../lib/file-writes.ts';
import { isAbsent } from '../lib/system-errors.ts';
import {
  type BackedUpFile,
  type BackupManifest,
  damaged,
  isArchive,
  MANIFEST,
  MAX_MANIFEST_BYTES,
  measuring,
  readManifest,
} from './backup.ts';
import { DATABASE, readFacts } from './data-dir-facts.ts';

/** May exist in the root of a separate file system, which still counts as empty. */
const LOST_AND_FOUND = 'lost+found';
const MOST_NAMED = 6;

interface BackupEntry {
  readonly path: string;
  readonly content: Readable;
}

/**
 * Restores a backup of `backUp` into an empty data directory. A service that starts before the end refuses
 * the directory, because the database is renamed into place last. Fails with `failed_precondition`.
 */
export async function restore(source: string, dataDir: string): Promise<BackupManifest> {
  const found = await stat(source).catch(orNull);
  if (found === null) throw failedPrecondition(`there is no backup at ${source}`);
  if (found.isFile() && !isArchive(source)) {
    throw failedPrecondition(`${source} is not a backup: expected a directory, or a file that ends in .tar.gz or .tgz`);
  }
  await checkEmpty(dataDir);
  const entries = found.isDirectory() ? filesOf(source) : entriesOf(source);
  const first = await entries.next().catch(refuse);
  if (first.done || first.value.path !== MANIFEST) throw failedPrecondition(`${source} has no ${MANIFEST}`);
  const manifest = readManifest(await textOf(first.value.content));
  await mkdir(dataDir, { recursive: true, mode: 0o700 });
  const missing = new Map(manifest.files.map(file => [file.path, file]));
  const directories = new Set([dataDir]);
  try {
    for (;;) {
      const next = await entries.next().catch(refuse);
      if (next.done) break;
      const { path, content } = next.value;
      const file = missing.get(path);
      if (file === undefined) throw damaged(`it holds ${JSON.stringify(path)}, which ${MANIFEST} does not list`);
      missing.delete(path);
      await place(content, dataDir, file, directories);
    }
    const [lacking] = missing.keys();
    if (lacking !== undefined) throw damaged(`${lacking} is missing`);
    forgetSandboxes(join(dataDir, partial(DATABASE)));
  } catch (error) {
    await clear(dataDir);
    throw error;
  }
  await giveToOwner(dataDir, manifest);
  for (const directory of directories) await flushDirectory(directory);
  await rename(join(dataDir, partial(DATABASE)), join(dataDir, DATABASE));
  await flushDirectory(dataDir);
  return manifest;
}

async function checkEmpty(dataDir: string): Promise<void> {
  const names = (await readdir(dataDir).catch(orNull)) ?? [];
  if (names.every(name => name === LOST_AND_FOUND)) return;
  const { runningPid, sandboxes } = await readFacts(dataDir);
  if (runningPid !== null) {
    throw failedPrecondition(
      `a service runs on the data directory ${dataDir} (process ${runningPid}): stop it, and restore into an empty directory`,
    );
  }
  const named = names.sort().slice(0, MOST_NAMED).join(', ');
  const more = names.length > MOST_NAMED ? ` and ${names.length - MOST_NAMED} more` : '';
  const left = sandboxes.length === 0 ? '' : `; it has files of ${sandboxes.length} sandboxes, which may still run`;
  throw failedPrecondition(
    `the data directory ${dataDir} is not empty: it holds ${named}${more}${left}. Move it away, or choose another with --data-dir`,
  );
}

async function place(content: Readable, dataDir: string, file: BackedUpFile, directories: Set<string>): Promise<void> {
  const target = join(dataDir, file.path === DATABASE ? partial(DATABASE) : file.path);
  for (let above = dirname(target); above !== dataDir; above = dirname(above)) directories.add(above);
  await mkdir(dirname(target), { recursive: true, mode: 0o700 });
  const { measure, measured } = measuring();
  await streamToFile([content, measure], target, { flags: 'wx', mode: 0o600, flush: true }).catch(refuse);
  const { bytes, sha256 } = measured();
  if (bytes !== file.bytes || sha256 !== file.sha256) throw damaged(`${file.path} is not what ${MANIFEST} says`);
}

/**
 * Removes the handles of sandboxes on a machine: their files are in the data directory of the backup. A
 * service that adopted such a sandbox would share it with the service of that directory. Pods keep their
 * handles.
 */
function forgetSandboxes(file: string): void {
  let database: DatabaseSyncInstance | undefined;
  try {
    database = new DatabaseSync(file);
    const inCluster = CLUSTER_SANDBOX_TYPES.map(() => '?').join(', ');
    database
      .prepare(`UPDATE instances SET handle = NULL WHERE handle IS NOT NULL AND sandbox_type NOT IN (${inCluster})`)
      .run(...CLUSTER_SANDBOX_TYPES);
  } catch (error) {
    throw damaged(messageOf(error));
  } finally {
    database?.close();
  }
}

/** Gives the files to the owner of the directory, when root restores for that user. */
async function giveToOwner(dataDir: string, manifest: BackupManifest): Promise<void> {
  const { uid, gid } = await stat(dataDir);
  await chmod(dataDir, 0o700);
  if (uid === process.geteuid?.()) return;
  const paths = new Set<string>();
  for (const { path } of manifest.files) {
    paths.add(path === DATABASE ? partial(DATABASE) : path);
    for (let above = dirname(path); above !== '.'; above = dirname(above)) paths.add(above);
  }
  for (const path of paths) await chown(join(dataDir, path), uid, gid);
}

/** Removes everything: the directory was empty before. */
async function clear(dataDir: string): Promise<void> {
  for (const name of await readdir(dataDir)) {
    if (name !== LOST_AND_FOUND) await rm(join(dataDir, name), { recursive: true, force: true });
  }
}

async function* filesOf(directory: string): AsyncGenerator<BackupEntry, void> {
  const open = (path: string): BackupEntry => ({ path, content: createReadStream(join(directory, path)) });
  if ((await stat(join(directory, MANIFEST)).catch(orNull)) === null) return;
  yield open(MANIFEST);
  const manifest = readManifest(await textOf(createReadStream(join(directory, MANIFEST))));
  for (const { path } of manifest.files) {
    if ((await stat(join(directory, path)).catch(orNull)) !== null) yield open(path);
  }
}

async function* entriesOf(archive: string): AsyncGenerator<BackupEntry, void> {
  const extract = tar.extract();
  const read = pipeline(createReadStream(archive), createGunzip(), extract);
  read.catch(() => undefined);
  for await (const entry of extract) {
    // An entry has only `pipe`, so wrap it.
    yield { path: entry.header.name, content: Readable.from(entry) };
  }
  await read;
}

async function textOf(content: Readable): Promise<string> {
  const chunks: Buffer[] = [];
  let bytes = 0;
  for await (const chunk of content as AsyncIterable<Buffer>) {
    bytes += chunk.length;
    if (bytes > MAX_MANIFEST_BYTES) throw damaged(`${MANIFEST} is too long`);
    chunks.push(chunk);
  }
  return Buffer.concat(chunks).toString('utf8');
}

function refuse(error: unknown): never {
  const { code = '', name } = error as NodeJS.ErrnoException;
  if (name === 'ServiceError' || code === 'ENOSPC' || code === 'EACCES') throw error;
  throw damaged(messageOf(error));
}

function partial(name: string): string {
  return `${name}.restoring`;
}

function orNull(error: unknown): null {
  if (isAbsent(error)) return null;
  throw error;
}
