import { createHash, randomUUID } from 'node:crypto';
import { createReadStream } from 'node:fs';
import { mkdir, rm, stat } from 'node:fs/promises';
import { join } from 'node:path';
import { Readable, Transform } from 'node:stream';
import { pipeline } from 'node:stream/promises';
import { createGzip } from 'node:zlib';
import tar from 'tar-stream';
import { streamToFile } from '../lib/file-writes.ts';
import type { CodePackages, Unpacker } from './code-packages.ts';

export interface SingleFilesOptions {
  readonly packages: Pick<CodePackages, 'put'>;
  readonly unpacker: Unpacker;
  /** Directory for files until they are packages, with no other content. */
  readonly directory: string;
}

/**
 * Stores single files of tenants as code packages, which all replicas have and sandboxes mount. An archive
 * that a sandbox wrote is such a file, so the service never unpacks it.
 */
export class SingleFiles {
  readonly #options: SingleFilesOptions;

  constructor(options: SingleFilesOptions) {
    this.#options = options;
  }

  /** Removes the files of an earlier server. */
  async start(): Promise<void> {
    await rm(this.#options.directory, { recursive: true, force: true });
    await mkdir(this.#options.directory, { recursive: true, mode: 0o700 });
  }

  /** Returns the path of a new file, which its caller removes. */
  newPath(): string {
    return join(this.#options.directory, randomUUID());
  }

  /**
   * Stores a file under `name` in a package of its own. Returns the SHA-256 of the package. Fails as
   * `CodePackages.put` does.
   */
  async put(tenant: string, name: string, file: string): Promise<string> {
    const { packages, unpacker } = this.#options;
    const archive = this.newPath();
    try {
      const sha256 = await pack(name, file, archive);
      await packages.put(tenant, sha256, createReadStream(archive), unpacker);
      return sha256;
    } finally {
      await rm(archive, { force: true });
    }
  }
}

/** Packs a file into an archive that is the same for the same content. Returns its SHA-256. */
async function pack(name: string, file: string, archive: string): Promise<string> {
  const { size } = await stat(file);
  const archiver = tar.pack();
  const entry = archiver.entry({ name, size, mode: 0o644, mtime: new Date(0) });
  const filled = pipeline(createReadStream(file), entry).then(
    () => archiver.finalize(),
    (error: unknown) => archiver.destroy(error as Error),
  );
  const hash = createHash('sha256');
  const hashing = new Transform({
    transform: (chunk: Buffer, _encoding, done) => {
      hash.update(chunk);
      done(null, chunk);
    },
  });
  // Files of templates are large, and mostly compressed already.
  const packed = Readable.from(archiver);
  await streamToFile([packed, createGzip({ level: 1 }), hashing], archive, { flags: 'wx', mode: 0o600 });
  await filled;
  return hash.digest('hex');
}
