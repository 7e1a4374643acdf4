import { constants } from 'node:fs';
import { type FileHandle, open, readdir, readlink } from 'node:fs/promises';
import { join } from 'node:path';
import { Writable } from 'node:stream';
import { buffer } from 'node:stream/consumers';
import { pipeline } from 'node:stream/promises';
import tar, { type Header, type Pack } from 'tar-stream';
import { messageOf, ServiceError, unavailable } from '../../core/error.ts';
import { frameHead } from '../../lib/length-frames.ts';
import type { AccessConnection } from '../host/access-connection.ts';

const DIRECTORY = constants.O_RDONLY | constants.O_DIRECTORY | constants.O_NOFOLLOW;
/** `O_NONBLOCK`: a pipe that replaces the file meanwhile must not block the open. */
const FILE = constants.O_RDONLY | constants.O_NOFOLLOW | constants.O_NONBLOCK;
const PERMISSIONS = 0o777;
/** Size of each entry's header in an archive. */
const HEADER_BYTES = 512;
const MAX_FRAME_BYTES = 256 * 1024;
/** Longest delay that a timer supports; the caller's signal sets the limit. */
const MAX_WAIT_MS = 2 ** 31 - 1;

/**
 * Sends a directory of this host as a tar stream in frames, and waits until the pod has unpacked it. An empty
 * frame ends the stream.
 * Links stay links and are never followed, even if the directory changes meanwhile: each entry is opened from
 * its directory's descriptor.
 */
export async function sendDirectory(
  connection: AccessConnection,
  directory: string,
  signal: AbortSignal,
): Promise<void> {
  const pack = tar.pack();
  // The manager may refuse in the middle; the rest is not sent then.
  const answer = connection.next(MAX_WAIT_MS);
  answer.catch(error => pack.destroy(error as Error));
  const sending = pipeline(pack, new Frames(connection), { signal });
  sending.catch(() => undefined);
  try {
    const top = await open(directory, constants.O_RDONLY | constants.O_DIRECTORY);
    await addDirectory(pack, top, '');
    pack.finalize();
    await sending;
  } catch (error) {
    pack.destroy(error as Error);
    await sending.catch(() => undefined);
    if (error instanceof ServiceError) throw error;
    throw notSent(error);
  }
  await answer;
}

/**
 * Returns the archive of a directory, or null when its content exceeds `maxBytes`. Reads all entries
 * concurrently.
 */
export async function archiveOf(directory: string, maxBytes: number): Promise<Buffer | null> {
  const room = { bytes: maxBytes };
  try {
    const top = await open(directory, constants.O_RDONLY | constants.O_DIRECTORY);
    const entries = await entriesOf(top, '', room);
    if (room.bytes < 0) return null;
    const pack = tar.pack();
    for (const { header, content } of entries) {
      if (content === undefined) pack.entry(header);
      else pack.entry(header, content);
    }
    pack.finalize();
    return await buffer(pack);
  } catch (error) {
    if (room.bytes < 0) return null;
    throw notSent(error);
  }
}

interface Entry {
  readonly header: Partial<Header> & { readonly name: string };
  readonly content?: Buffer;
}

/**
 * Returns the entries of a directory and closes the handle. Reduces `room`; below 0 the content does not fit
 * and the result is incomplete.
 */
async function entriesOf(handle: FileHandle, prefix: string, room: { bytes: number }): Promise<readonly Entry[]> {
  try {
    const here = `/proc/self/fd/${handle.fd}`;
    const found = await readdir(here, { withFileTypes: true });
    room.bytes -= found.length * HEADER_BYTES;
    if (room.bytes < 0) return [];
    const entries = await Promise.all(
      found.map(async (entry): Promise<readonly Entry[]> => {
        const name = prefix + entry.name;
        const path = join(here, entry.name);
        if (entry.isDirectory()) {
          const inner = await open(path, DIRECTORY);
          const { mode, mtime } = await inner.stat();
          const header = { name, type: 'directory', mode: mode & PERMISSIONS, mtime } as const;
          return [{ header }, ...(await entriesOf(inner, `${name}/`, room))];
        }
        if (entry.isSymbolicLink())
          return [{ header: { name, type: 'symlink', linkname: await readlink(path) } as const }];
        return entry.isFile() ? await entryOf(await open(path, FILE), name, room) : [];
      }),
    );
    return entries.flat();
  } finally {
    await handle.close();
  }
}

/** Returns the entry of a file and closes the handle. */
async function entryOf(handle: FileHandle, name: string, room: { bytes: number }): Promise<readonly Entry[]> {
  try {
    const facts = await handle.stat();
    if (!facts.isFile()) return [];
    room.bytes -= facts.size;
    if (room.bytes < 0) return [];
    // The file may have changed its size meanwhile; the bytes that were read count.
    const content = Buffer.alloc(facts.size);
    const { bytesRead } = await handle.read(content, 0, facts.size, 0);
    const header = { name, mode: facts.mode & PERMISSIONS, mtime: facts.mtime };
    return [{ header, content: content.subarray(0, bytesRead) }];
  } finally {
    await handle.close();
  }
}

function notSent(error: unknown): ServiceError {
  return unavailable(`the code cannot be sent to the pod: ${messageOf(error)}`, { cause: error });
}

/** Adds a directory to the archive and closes the handle. */
async function addDirectory(pack: Pack, handle: FileHandle, prefix: string): Promise<void> {
  try {
    const here = `/proc/self/fd/${handle.fd}`;
    for (const entry of await readdir(here, { withFileTypes: true })) {
      const name = prefix + entry.name;
      const path = join(here, entry.name);
      if (entry.isDirectory()) {
        const inner = await open(path, DIRECTORY);
        const { mode, mtime } = await inner.stat();
        pack.entry({ name, type: 'directory', mode: mode & PERMISSIONS, mtime });
        await addDirectory(pack, inner, `${name}/`);
      } else if (entry.isSymbolicLink()) {
        pack.entry({ name, type: 'symlink', linkname: await readlink(path) });
      } else if (entry.isFile()) {
        await addFile(pack, await open(path, FILE), name);
      }
    }
  } finally {
    await handle.close();
  }
}

/** Adds a file to the archive and closes the handle. */
async function addFile(pack: Pack, handle: FileHandle, name: string): Promise<void> {
  try {
    const facts = await handle.stat();
    if (!facts.isFile()) return;
    const header = { name, mode: facts.mode & PERMISSIONS, mtime: facts.mtime, size: facts.size };
    const place = pack.entry(header);
    if (facts.size === 0) {
      place.end(null);
      return;
    }
    // The file may change its size meanwhile; the archive's header has already fixed it.
    const content = handle.createReadStream({ end: facts.size - 1, autoClose: false, highWaterMark: MAX_FRAME_BYTES });
    await pipeline(content, place);
  } finally {
    await handle.close();
  }
}

class Frames extends Writable {
  readonly #connection: AccessConnection;

  constructor(connection: AccessConnection) {
    super({ highWaterMark: MAX_FRAME_BYTES });
    this.#connection = connection;
  }

  override _write(chunk: Buffer, _encoding: string, done: (error?: Error | null) => void): void {
    const { socket } = this.#connection;
    socket.cork();
    for (let start = 0; start < chunk.length; start += MAX_FRAME_BYTES) {
      const part = chunk.subarray(start, start + MAX_FRAME_BYTES);
      socket.write(frameHead(part.length));
      socket.write(part, start + part.length === chunk.length ? done : undefined);
    }
    socket.uncork();
  }

  override _final(done: (error?: Error | null) => void): void {
    this.#connection.socket.write(frameHead(0), done);
  }
}
