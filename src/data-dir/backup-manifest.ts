import { failedPrecondition } from '../core/error.ts';
import { DATABASE, NODE_ID, SECRETS_KEY } from './data-dir-facts.ts';

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
