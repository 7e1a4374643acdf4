import { createHash, type Hash } from 'node:crypto';
import { createReadStream, createWriteStream } from 'node:fs';
import { mkdtemp, readdir, rm, stat } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { Transform } from 'node:stream';
import { pipeline } from 'node:stream/promises';
import { createGzip } from 'node:zlib';
import tar, { type Pack } from 'tar-stream';
import type { Client } from './client.ts';
import { CliError, usageError } from './exit.ts';
import type { Io } from './io.ts';
import { withSpinner } from './print.ts';

/** Never part of a job. */
const LEFT_OUT = new Set(['.git', '__pycache__', 'node_modules', '.venv']);
const MAX_FILES = 50_000;
const EPOCH = new Date(0);

/** Packs a directory and uploads it when the service does not have it yet; answers its URI. */
export async function uploadDirectory(io: Io, client: Client, directory: string): Promise<string> {
  const found = await stat(directory).catch(() => null);
  if (!found?.isDirectory()) throw usageError(`--working-dir ${directory} is not a directory.`);
  const work = await mkdtemp(join(tmpdir(), 'rookery-package-'));
  try {
    const archive = join(work, 'package.tar.gz');
    const name = await withSpinner(io, `packing ${directory}`, () => packDirectory(directory, archive));
    const path = `/api/packages/gcs/${name}`;
    if (await isThere(client, path)) return `gcs://${name}`;
    const { size } = await stat(archive);
    await withSpinner(io, `uploading ${Math.ceil(size / 1024)} KiB`, () =>
      client.text('PUT', path, { upload: { content: createReadStream(archive), bytes: size }, timeoutMs: null }),
    );
    return `gcs://${name}`;
  } finally {
    await rm(work, { recursive: true, force: true });
  }
}

async function isThere(client: Client, path: string): Promise<boolean> {
  try {
    await client.text('GET', path);
    return true;
  } catch (error) {
    if (error instanceof CliError && error.message.includes('does not exist')) return false;
    throw error;
  }
}

/** The same files give the same name: no times and no owners are in it. */
async function packDirectory(directory: string, archive: string): Promise<string> {
  const pack = tar.pack();
  const hash = createHash('sha256');
  const writing = pipeline(pack, hashing(hash), createGzip(), createWriteStream(archive));
  const count = { files: 0 };
  await Promise.all([writing, addAll(pack, directory, '', count).then(() => pack.finalize())]);
  return `_rookery_pkg_${hash.digest('hex').slice(0, 40)}.tar.gz`;
}

async function addAll(pack: Pack, root: string, below: string, count: { files: number }): Promise<void> {
  const entries = await readdir(join(root, below), { withFileTypes: true });
  for (const entry of entries.sort((a, b) => (a.name < b.name ? -1 : 1))) {
    if (LEFT_OUT.has(entry.name)) continue;
    const path = below === '' ? entry.name : `${below}/${entry.name}`;
    // Links are followed: the job has no other place to find what they lead to.
    const found = await stat(join(root, path)).catch(() => null);
    if (found?.isDirectory() && !entry.isSymbolicLink()) await addAll(pack, root, path, count);
    if (!found?.isFile()) continue;
    count.files += 1;
    if (count.files > MAX_FILES) throw usageError(`--working-dir ${root} has more than ${MAX_FILES} files.`);
    const mode = (found.mode & 0o111) === 0 ? 0o644 : 0o755;
    const header = pack.entry({ name: path, size: found.size, mode, mtime: EPOCH });
    await pipeline(createReadStream(join(root, path)), header);
  }
}

function hashing(hash: Hash): Transform {
  return new Transform({
    transform(chunk: Buffer, _encoding, done) {
      hash.update(chunk);
      done(null, chunk);
    },
  });
}
