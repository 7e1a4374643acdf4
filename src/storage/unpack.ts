import { createReadStream, createWriteStream } from 'node:fs';
import { chmod, mkdir, open, symlink } from 'node:fs/promises';
import { dirname, join, normalize as normalizePath } from 'node:path';
import { type Readable, Transform, Writable } from 'node:stream';
import { pipeline } from 'node:stream/promises';
import { crc32, createGunzip, createInflateRaw } from 'node:zlib';
import tar from 'tar-stream';
import yauzl, { type Entry as ZipEntry, type ZipFile } from 'yauzl';
import { failedPrecondition, messageOf, ServiceError } from '../core/error.ts';
import { LIMITS } from '../core/limits.ts';
import { boundHeaders } from './tar-headers.ts';

export interface UnpackLimits {
  /** Bytes of all files together, unpacked. */
  readonly maxBytes: number;
  /** Files and directories. */
  readonly maxEntries: number;
  /** Symbolic links that lead to something in the archive; absent: refused. */
  readonly links?: 'kept' | 'refused';
}

/** What a tar has beside the content of its files: headers, and names in headers of their own. */
const TAR_BYTES_PER_ENTRY = 16 * 1024;
const CONTROL_CHARACTER = /\p{Cc}/u;
const MAX_NAME_CHARS = 1024;

/** One thing in an archive that is worth writing: devices and the rest are refused, and no link is ever followed. */
interface Entry {
  readonly path: string;
  readonly kind: 'file' | 'directory' | 'link';
  readonly executable: boolean;
}

/**
 * Unpacks a zip or a tar.gz (its first bytes say which) into `target`, which exists and is empty.
 * Writes nothing outside of it: refuses absolute paths, `..`, devices, and links but those that `limits.links` keeps. Fails with `failed_precondition`; the caller then
 * removes the files that are there already.
 */
export async function unpack(archive: string, target: string, limits: UnpackLimits): Promise<void> {
  const writer = new Writer(target, limits);
  try {
    const kind = await kindOf(archive);
    if (kind === 'zip') await unpackZip(archive, writer, limits);
    else await unpackTarGz(archive, writer, limits);
    await writer.makeLinks();
  } catch (error) {
    if (error instanceof ServiceError) throw error;
    throw failedPrecondition(`the archive cannot be read: ${withoutPath(error)}`, { cause: error });
  }
}

/** Formats that callers send and this code cannot unpack, by their first bytes. */
const OTHER_KINDS: readonly (readonly [magic: string, name: string])[] = [
  ['\xfd7zXZ\0', 'a tar.xz archive cannot be unpacked'],
  ['BZh', 'a tar.bz2 archive cannot be unpacked'],
  ['\x28\xb5\x2f\xfd', 'a tar.zst archive cannot be unpacked'],
  ['7z\xbc\xaf\x27\x1c', 'a 7z archive cannot be unpacked'],
  ['', 'it is no archive that can be unpacked'],
];

async function kindOf(archive: string): Promise<'zip' | 'tar.gz'> {
  let found = '';
  const file = await open(archive);
  try {
    const { buffer, bytesRead } = await file.read(Buffer.alloc(6), 0, 6, 0);
    const magic = buffer.subarray(0, bytesRead).toString('latin1');
    if (magic.startsWith('PK')) return 'zip';
    if (magic.startsWith('\x1f\x8b')) return 'tar.gz';
    found = magic === '' ? 'it is empty' : (OTHER_KINDS.find(([start]) => magic.startsWith(start))?.[1] ?? '');
  } finally {
    await file.close();
  }
  throw failedPrecondition(`${found}: expected a zip or a tar.gz archive`);
}

async function unpackZip(archive: string, writer: Writer, limits: UnpackLimits): Promise<void> {
  const zip = await yauzl.openPromise(archive, {
    lazyEntries: true,
    strictFileNames: true,
    // `checked` does, for each entry.
    validateEntrySizes: false,
  });
  try {
    for await (const entry of zip.eachEntry()) {
      // Unix mode in the upper half, when the archive was made on unix (APPNOTE 4.4.15).
      const mode = entry.externalFileAttributes >>> 16;
      const type = mode & 0o170000;
      if (type === 0o120000 && limits.links === 'kept') {
        await writer.link(entry.fileName, () => textOf(zip, entry));
        continue;
      }
      if (type !== 0 && type !== 0o100000 && type !== 0o040000)
        throw refuse(entry.fileName, 'is neither a file nor a directory');
      if (entry.fileName.endsWith('/')) await writer.directory(entry.fileName);
      else await writer.file(entry.fileName, (mode & 0o111) !== 0, () => contentOf(zip, entry));
    }
  } finally {
    zip.close();
  }
}

/**
 * Raw from the library: an error of its own inflating streams can reach nobody, and would end the service. It holds the archive open until it has
 * ended or is destroyed, also when the archive is closed: only for who gives it to a pipeline at once.
 */
async function contentOf(zip: ZipFile, entry: ZipEntry): Promise<readonly [Readable, ...Transform[]]> {
  const { fileName, compressionMethod } = entry;
  if (entry.isEncrypted()) throw refuse(fileName, 'is encrypted');
  if (compressionMethod !== STORED && compressionMethod !== DEFLATED) {
    throw refuse(fileName, `is compressed by method ${compressionMethod}, expected none or deflate`);
  }
  const raw = await zip.openReadStreamPromise(entry, { decodeFileData: false });
  return compressionMethod === STORED ? [raw, checked(entry)] : [raw, createInflateRaw(), checked(entry)];
}

/** Where a link of a zip leads is its content. */
async function textOf(zip: ZipFile, entry: ZipEntry): Promise<string> {
  if (entry.uncompressedSize > LIMITS.hostPathChars) throw tooLongLink(entry.fileName);
  const chunks: Buffer[] = [];
  const keep = new Writable({
    write(chunk: Buffer, _encoding, done) {
      chunks.push(chunk);
      done();
    },
  });
  await pipeline([...(await contentOf(zip, entry)), keep]);
  return Buffer.concat(chunks).toString('utf8');
}

const STORED = 0;
const DEFLATED = 8;

/** Fails when the content differs in size or checksum from the archive's own record. */
function checked({ fileName, uncompressedSize, crc32: expected }: ZipEntry): Transform {
  let bytes = 0;
  let sum = 0;
  return new Transform({
    transform(chunk: Buffer, _encoding, done) {
      bytes += chunk.length;
      sum = crc32(chunk, sum);
      done(bytes > uncompressedSize ? broken() : null, chunk);
    },
    flush: done => done(bytes === uncompressedSize && sum === expected ? null : broken()),
  });
  function broken(): ServiceError {
    return refuse(fileName, 'is broken: its size or its checksum is not what the archive says');
  }
}

async function unpackTarGz(archive: string, writer: Writer, limits: UnpackLimits): Promise<void> {
  const extract = tar.extract();
  const reading = pipeline(createReadStream(archive), createGunzip(), writer.boundWhole(), boundHeaders(), extract);
  // Its failure is the iterator's failure too; this only keeps it from being unhandled when we stop first.
  reading.catch(() => undefined);
  for await (const entry of extract) {
    const { name, type, mode, linkname } = entry.header;
    if (type === 'directory') {
      await writer.directory(name);
      entry.resume();
    } else if (type === 'file' || type === 'contiguous-file') {
      await writer.file(name, ((mode ?? 0) & 0o111) !== 0, async () => [entry as unknown as Readable]);
    } else if (type === 'symlink' && limits.links === 'kept') {
      await writer.link(name, async () => linkname ?? '');
      entry.resume();
    } else {
      throw refuse(name, `is a ${type}`);
    }
  }
  await reading;
}

class Writer {
  readonly #target: string;
  readonly #limits: UnpackLimits;
  readonly #directories = new Set<string>(['.']);
  /** By their paths, where they lead: made when all else is there, so that nothing is written through one. */
  readonly #links = new Map<string, string>();
  #entries = 0;
  #bytes = 0;

  constructor(target: string, limits: UnpackLimits) {
    this.#target = target;
    this.#limits = limits;
  }

  /** Bounds what comes out of the compression, also what is in no file and would only be skipped. */
  boundWhole(): Transform {
    const { maxBytes, maxEntries } = this.#limits;
    let left = maxBytes + (maxEntries + 1) * TAR_BYTES_PER_ENTRY;
    return new Transform({
      transform: (chunk: Buffer, _encoding, done) => {
        left -= chunk.length;
        done(left < 0 ? tooLarge(maxBytes) : null, chunk);
      },
    });
  }

  async directory(name: string): Promise<void> {
    const entry = this.#admit(name, 'directory', false);
    await this.#makeDirectory(entry.path, name, entry.path);
  }

  /** `read` begins to read the content, which happens only when nothing but the content can be wrong any more. */
  async file(
    name: string,
    executable: boolean,
    read: () => Promise<readonly [Readable, ...Transform[]]>,
  ): Promise<void> {
    const entry = this.#admit(name, 'file', executable);
    const path = join(this.#target, entry.path);
    await this.#makeDirectory(dirname(entry.path), name);
    const count = new Transform({
      transform: (chunk: Buffer, _encoding, done) => {
        this.#bytes += chunk.length;
        if (this.#bytes > this.#limits.maxBytes) {
          done(tooLarge(this.#limits.maxBytes));
        } else done(null, chunk);
      },
    });
    const content = await read();
    // `wx`: two entries of one name are refused, so that the second cannot write through what the first made.
    await pipeline([...content, count, createWriteStream(path, { flags: 'wx', mode: 0o644 })]).catch(error => {
      throw isThere(error) ? refuse(name, 'is in it twice') : error;
    });
    if (entry.executable) await chmod(path, 0o755);
  }

  /** `read` says where it leads. */
  async link(name: string, read: () => Promise<string>): Promise<void> {
    const { path } = this.#admit(name, 'link', false);
    const target = await read();
    if (target.length > LIMITS.hostPathChars) throw tooLongLink(name);
    if (!staysInside(path, target)) {
      throw refuse(name, `is a link that leads out of the archive, to ${JSON.stringify(target.slice(0, 80))}`);
    }
    if (this.#links.has(path)) throw refuse(name, 'is in it twice');
    // All are in memory until the end.
    this.#bytes += target.length;
    if (this.#bytes > this.#limits.maxBytes) throw tooLarge(this.#limits.maxBytes);
    this.#links.set(path, target);
  }

  async makeLinks(): Promise<void> {
    // Directories first: none may be made through a link.
    for (const path of this.#links.keys()) await this.#makeDirectory(dirname(path), path);
    for (const [path, target] of this.#links) {
      await symlink(target, join(this.#target, path)).catch(error => {
        throw isThere(error) ? refuse(path, 'is in it twice') : error;
      });
    }
  }

  /** `entry` is the one that has been counted. */
  async #makeDirectory(path: string, name: string, entry?: string): Promise<void> {
    // Each by itself, and counted: a name in a hundred directories makes a hundred more.
    for (const each of parentsAnd(path)) {
      if (this.#directories.has(each)) continue;
      if (each !== entry) this.#count();
      await mkdir(join(this.#target, each)).catch(error => {
        throw isThere(error) ? refuse(name, 'is in it as a file and as a directory') : error;
      });
      this.#directories.add(each);
    }
  }

  #count(): void {
    this.#entries += 1;
    if (this.#entries > this.#limits.maxEntries) {
      throw failedPrecondition(`the archive has more than ${this.#limits.maxEntries} entries`);
    }
  }

  #admit(name: string, kind: Entry['kind'], executable: boolean): Entry {
    this.#count();
    if (name === '') throw refuse(name, 'has no name');
    if (name.length > MAX_NAME_CHARS)
      throw refuse(`${name.slice(0, 80)}…`, `has more than ${MAX_NAME_CHARS} characters`);
    if (name.startsWith('/') || name.includes('\\') || name.includes('\0') || name.split('/').includes('..')) {
      throw refuse(name, 'leads out of its directory');
    }
    if (CONTROL_CHARACTER.test(name)) throw refuse(name, 'has a control character in its name');
    const path = normalizePath(name).replace(/\/$/, '');
    if (path.split('/').length > LIMITS.treeDepth + 1) {
      throw refuse(`${name.slice(0, 80)}…`, `is more than ${LIMITS.treeDepth} directories deep`);
    }
    return { path, kind, executable };
  }
}

/**
 * Whether a link at `path` leads to something in the archive, whatever other links there are: it may go up first, no further than its own directory
 * is deep, and then only down. That directory is a real one (`makeLinks`), so each link that is met on the way begins as deep as its own path
 * says, and leaves the archive no more than this one. `..` behind a name would count from where that name leads, if it is a link too.
 */
function staysInside(path: string, target: string): boolean {
  if (target === '' || target.startsWith('/') || target.includes('\0')) return false;
  let up = 0;
  let goesDown = false;
  for (const name of target.split('/')) {
    if (name === '' || name === '.') continue;
    if (name !== '..') goesDown = true;
    else if (goesDown) return false;
    else up += 1;
  }
  return up < path.split('/').length;
}

/** `a/b` → `a`, `a/b` */
function parentsAnd(path: string): readonly string[] {
  const names = path.split('/');
  return names.map((_, index) => names.slice(0, index + 1).join('/'));
}

function tooLarge(maxBytes: number): ServiceError {
  return failedPrecondition(`the archive is larger than ${maxBytes} bytes when unpacked`);
}

function tooLongLink(name: string): ServiceError {
  return refuse(name, `is a link to more than ${LIMITS.hostPathChars} characters`);
}

function refuse(name: string, why: string): ServiceError {
  return failedPrecondition(`the archive is refused: ${JSON.stringify(name)} ${why}`);
}

function isThere(error: unknown): boolean {
  const { code } = error as NodeJS.ErrnoException;
  return code === 'EEXIST' || code === 'ENOTDIR' || code === 'EISDIR';
}

/** A caller must not learn where this host keeps its files. */
function withoutPath(error: unknown): string {
  const message = messageOf(error);
  return (error as NodeJS.ErrnoException).syscall === undefined ? message : message.replace(/ '.*$/s, '');
}
