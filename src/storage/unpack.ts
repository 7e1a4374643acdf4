import { createReadStream, createWriteStream } from 'node:fs';
import { chmod, mkdir, open } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { type Readable, Transform } from 'node:stream';
import { pipeline } from 'node:stream/promises';
import { createGunzip } from 'node:zlib';
import tar from 'tar-stream';
import yauzl from 'yauzl';
import { failedPrecondition, messageOf, ServiceError } from '../core/error.ts';

export interface UnpackLimits {
  /** Bytes of all files together, unpacked. */
  readonly maxBytes: number;
  /** Files and directories. */
  readonly maxEntries: number;
}

/** One thing in an archive that is worth writing: links, devices and the rest are refused, never followed. */
interface Entry {
  readonly path: string;
  readonly kind: 'file' | 'directory';
  readonly executable: boolean;
}

/**
 * Unpacks a zip or a tar.gz (told apart by its first bytes) into `target`, which exists and is empty.
 * Nothing is written outside of it: absolute paths, `..`, links and devices are refused. Fails with `failed_precondition`; what was
 * written by then is the caller's to remove.
 */
export async function unpack(archive: string, target: string, limits: UnpackLimits): Promise<void> {
  const writer = new Writer(target, limits);
  try {
    const kind = await kindOf(archive);
    if (kind === 'zip') await unpackZip(archive, writer);
    else await unpackTarGz(archive, writer);
  } catch (error) {
    if (error instanceof ServiceError) throw error;
    throw failedPrecondition(`the code archive cannot be read: ${messageOf(error)}`, { cause: error });
  }
}

async function kindOf(archive: string): Promise<'zip' | 'tar.gz'> {
  const file = await open(archive);
  try {
    const { buffer, bytesRead } = await file.read(Buffer.alloc(4), 0, 4, 0);
    const magic = buffer.subarray(0, bytesRead).toString('latin1');
    if (magic.startsWith('PK')) return 'zip';
    if (magic.startsWith('\x1f\x8b')) return 'tar.gz';
  } finally {
    await file.close();
  }
  throw failedPrecondition('the code object is neither a zip nor a tar.gz archive');
}

async function unpackZip(archive: string, writer: Writer): Promise<void> {
  const zip = await yauzl.openPromise(archive, { lazyEntries: true, strictFileNames: true });
  try {
    for await (const entry of zip.eachEntry()) {
      // Unix mode in the upper half, when the archive was made on unix (APPNOTE 4.4.15).
      const mode = entry.externalFileAttributes >>> 16;
      const type = mode & 0o170000;
      if (type !== 0 && type !== 0o100000 && type !== 0o040000)
        throw refuse(entry.fileName, 'is neither a file nor a directory');
      if (entry.fileName.endsWith('/')) await writer.directory(entry.fileName);
      else await writer.file(entry.fileName, (mode & 0o111) !== 0, await zip.openReadStreamPromise(entry));
    }
  } finally {
    zip.close();
  }
}

async function unpackTarGz(archive: string, writer: Writer): Promise<void> {
  const extract = tar.extract();
  const reading = pipeline(createReadStream(archive), createGunzip(), extract);
  // Its failure is the iterator's failure too; this only keeps it from being unhandled when we stop first.
  reading.catch(() => undefined);
  for await (const entry of extract) {
    const { name, type, mode } = entry.header;
    if (type === 'directory') {
      await writer.directory(name);
      entry.resume();
    } else if (type === 'file' || type === 'contiguous-file') {
      await writer.file(name, ((mode ?? 0) & 0o111) !== 0, entry as unknown as Readable);
    } else {
      throw refuse(name, `is a ${type}`);
    }
  }
  await reading;
}

class Writer {
  readonly #target: string;
  readonly #limits: UnpackLimits;
  #entries = 0;
  #bytes = 0;

  constructor(target: string, limits: UnpackLimits) {
    this.#target = target;
    this.#limits = limits;
  }

  async directory(name: string): Promise<void> {
    const entry = this.#admit(name, 'directory', false);
    await mkdir(join(this.#target, entry.path), { recursive: true });
  }

  async file(name: string, executable: boolean, content: Readable): Promise<void> {
    const entry = this.#admit(name, 'file', executable);
    const path = join(this.#target, entry.path);
    await mkdir(dirname(path), { recursive: true });
    const count = new Transform({
      transform: (chunk: Buffer, _encoding, done) => {
        this.#bytes += chunk.length;
        if (this.#bytes > this.#limits.maxBytes) {
          done(failedPrecondition(`the code archive is larger than ${this.#limits.maxBytes} bytes when unpacked`));
        } else done(null, chunk);
      },
    });
    // `wx`: two entries of one name are refused, so that the second cannot write through what the first made.
    await pipeline(content, count, createWriteStream(path, { flags: 'wx', mode: 0o644 }));
    if (entry.executable) await chmod(path, 0o755);
  }

  #admit(name: string, kind: Entry['kind'], executable: boolean): Entry {
    this.#entries += 1;
    if (this.#entries > this.#limits.maxEntries) {
      throw failedPrecondition(`the code archive has more than ${this.#limits.maxEntries} entries`);
    }
    if (name.startsWith('/') || name.includes('\\') || name.includes('\0') || name.split('/').includes('..')) {
      throw refuse(name, 'leads out of the code directory');
    }
    return { path: name, kind, executable };
  }
}

function refuse(name: string, why: string): ServiceError {
  return failedPrecondition(`the code archive is refused: ${JSON.stringify(name)} ${why}`);
}
