import { createReadStream, createWriteStream } from 'node:fs';
import { chmod, mkdir, open, stat, symlink } from 'node:fs/promises';
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
  /** Handling of symbolic links to paths in the archive; absent: refused. */
  readonly links?: 'kept' | 'refused';
}

/** Bytes per entry of a tar besides the content: the header, and headers for long names. */
const TAR_BYTES_PER_ENTRY = 16 * 1024;
const CONTROL_CHARACTER = /\p{Cc}/u;
const MAX_NAME_CHARS = 1024;

/** Entry of an archive that is written. Devices and other kinds are refused, and links are never followed. */
interface UnpackedEntry {
  readonly path: string;
  readonly kind: 'file' | 'directory' | 'link';
  readonly executable: boolean;
}

/**
 * Unpacks a zip or a tar.gz (detected by its first bytes) into `target`, which exists and is empty. Writes
 * nothing outside: refuses absolute paths, `..`, devices, and links except those that `limits.links` keeps.
 * Fails with `failed_precondition`; the caller then removes the files that were written.
 */
export async function unpack(archive: string, target: string, limits: UnpackLimits): Promise<void> {
  const writer = new Writer(target, await withRatio(archive, limits));
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

/**
 * Limits the unpacked size also to a multiple of the archive's own size, which ordinary archives never reach.
 */
async function withRatio(
  archive: string,
  limits: UnpackLimits,
): Promise<UnpackLimits & { readonly isOfRatio: boolean }> {
  const { size } = await stat(archive);
  const ratioBytes = Math.max(LIMITS.unpackFreeBytes, size * LIMITS.unpackRatio);
  return { ...limits, maxBytes: Math.min(ratioBytes, limits.maxBytes), isOfRatio: ratioBytes < limits.maxBytes };
}

/** Formats that clients send and this code cannot unpack, by their first bytes. */
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
    // `checked` validates each entry.
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
 * Returns the streams that read an entry. Raw from the library, because an error of the library's own
 * inflating stream has no listener and would end the service. The raw stream keeps the archive open until it
 * ends or is destroyed, even after `close`: pass it to a pipeline at once.
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

/** Returns the content of a zip's link, which is the link's target. */
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

/** Returns a stream that fails if the content differs in size or checksum from the archive's record. */
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
  // The iterator reports the same failure. The handler prevents an unhandled rejection if the loop stops
  // first.
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
  readonly #limits: UnpackLimits & { readonly isOfRatio: boolean };
  readonly #directories = new Set<string>(['.']);
  /** Targets of links by path. Links are made last, so that nothing is written through one. */
  readonly #links = new Map<string, string>();
  #entries = 0;
  #bytes = 0;

  constructor(target: string, limits: UnpackLimits & { readonly isOfRatio: boolean }) {
    this.#target = target;
    this.#limits = limits;
  }

  /** Limits the decompressed bytes, including those outside of files, which are only skipped. */
  boundWhole(): Transform {
    const { maxBytes, maxEntries } = this.#limits;
    let left = maxBytes + (maxEntries + 1) * TAR_BYTES_PER_ENTRY;
    return new Transform({
      transform: (chunk: Buffer, _encoding, done) => {
        left -= chunk.length;
        done(left < 0 ? tooLarge(this.#limits) : null, chunk);
      },
    });
  }

  async directory(name: string): Promise<void> {
    const entry = this.#admit(name, 'directory', false);
    await this.#makeDirectory(entry.path, name, entry.path);
  }

  /** Writes a file. `read` opens the content, and is called only when every other check has passed. */
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
          done(tooLarge(this.#limits));
        } else done(null, chunk);
      },
    });
    const content = await read();
    // `wx` refuses a second entry of the same name, which could otherwise write through the first.
    await pipeline([...content, count, createWriteStream(path, { flags: 'wx', mode: 0o644 })]).catch(error => {
      throw isThere(error) ? refuse(name, 'is in it twice') : error;
    });
    if (entry.executable) await chmod(path, 0o755);
  }

  /** Adds a link. `read` returns its target. */
  async link(name: string, read: () => Promise<string>): Promise<void> {
    const { path } = this.#admit(name, 'link', false);
    const target = await read();
    if (target.length > LIMITS.hostPathChars) throw tooLongLink(name);
    if (!staysInside(path, target)) {
      throw refuse(name, `is a link that leads out of the archive, to ${JSON.stringify(target.slice(0, 80))}`);
    }
    if (this.#links.has(path)) throw refuse(name, 'is in it twice');
    // Link targets stay in memory until the end, so they count too.
    this.#bytes += target.length;
    if (this.#bytes > this.#limits.maxBytes) throw tooLarge(this.#limits);
    this.#links.set(path, target);
  }

  async makeLinks(): Promise<void> {
    // Make the directories first, so that none is made through a link.
    for (const path of this.#links.keys()) await this.#makeDirectory(dirname(path), path);
    for (const [path, target] of this.#links) {
      await symlink(target, join(this.#target, path)).catch(error => {
        throw isThere(error) ? refuse(path, 'is in it twice') : error;
      });
    }
  }

  /** Makes a directory and its parents. `entry`: the path that is already counted. */
  async #makeDirectory(path: string, name: string, entry?: string): Promise<void> {
    // Each parent counts: a name in a hundred directories makes a hundred more.
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

  #admit(name: string, kind: UnpackedEntry['kind'], executable: boolean): UnpackedEntry {
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
 * Returns true if a link at `path` leads to a path in the archive, whatever other links exist. The target may
 * begin with `..`, at most as often as its directory is deep, and then only descend. The link's directory is
 * a real one (`makeLinks`). So every link on the way starts as deep as its own path, and this rule keeps it
 * inside too. A `..` after a name could count from the target of another link, and is refused.
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

/** Returns the parents of a path, then the path: `a/b` → `a`, `a/b`. */
function parentsAnd(path: string): readonly string[] {
  const names = path.split('/');
  return names.map((_, index) => names.slice(0, index + 1).join('/'));
}

function tooLarge({ maxBytes, isOfRatio }: { readonly maxBytes: number; readonly isOfRatio: boolean }): ServiceError {
  if (isOfRatio) {
    return failedPrecondition(
      `the archive is larger than ${maxBytes} bytes when unpacked: more than ${LIMITS.unpackRatio} times its size`,
    );
  }
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

/** Removes the path from a system error: a client must not learn the service's directories. */
function withoutPath(error: unknown): string {
  const message = messageOf(error);
  return (error as NodeJS.ErrnoException).syscall === undefined ? message : message.replace(/ '.*$/s, '');
}
