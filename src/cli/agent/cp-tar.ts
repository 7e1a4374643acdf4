import { createReadStream, type Stats } from 'node:fs';
import { chmod, copyFile, lstat, mkdir, readdir, readlink, rename, rm, symlink } from 'node:fs/promises';
import { join } from 'node:path';
import { PassThrough, Readable, Writable } from 'node:stream';
import { pipeline } from 'node:stream/promises';
import tar, { type Header, type Pack } from 'tar-stream';
import { receive, send, sendBinary } from '../../lib/socket-stream.ts';
import { CliError, EXIT } from '../shared/exit.ts';
import type { CopyProgress, Remote } from './cp-remote.ts';

const MAX_FILES = 100_000;
const STDERR = 2;
const MAX_STDERR_CHARS = 2000;
const STDIN_END = JSON.stringify({ type: 'stdin-end' });
/** Lets the copy write into the directory. The directory gets its own mode afterwards. */
const WRITABLE_DIRECTORY = 0o700;

/** Returns the warning for an entry that a copy without `tar` omits. */
export function notCopied(path: string, isLink: boolean): string {
  return isLink
    ? `${path} is not copied: it is a symbolic link, and those need a tar program in the sandbox (and the right to run it).`
    : `${path} is not copied: it is neither a file nor a directory.`;
}

/**
 * Returns true if a directory can be copied as one stream, which is faster than one request for each file.
 * False if the sandbox has no `tar`, or if the caller may not run commands.
 */
export async function hasTar({ client, base }: Remote): Promise<boolean> {
  try {
    const body = JSON.stringify({ command: ['/bin/sh', '-c', 'command -v tar'], timeout: 10 });
    const { returncode } = await client.json('POST', base.replace(/\/files$/, '/exec'), { body });
    return returncode === 0;
  } catch (error) {
    if (error instanceof CliError && error.exitCode !== EXIT.unreachable) return false;
    throw error;
  }
}

/**
 * Sends the content of a directory of this machine into an existing directory of the sandbox. Links stay
 * links.
 */
export async function sendAsTar(remote: Remote, source: string, target: string, progress: CopyProgress): Promise<void> {
  // Files get the sandbox's user as owner (`-o`) and keep their modes whatever the umask (`-p`).
  const command = await startTar(remote, target, ['-x', '-o', '-p', '-f', '-']);
  const pack = tar.pack();
  const stream = new PassThrough({ highWaterMark: 1024 * 1024 });
  let isOver = false;
  let failure: Error | undefined;
  const packed = packDirectory(pack, source, '', { progress, count: 0 }).then(
    () => pack.finalize(),
    (error: Error) => {
      // A failure here caused the end of the other side, unless the other side had ended before.
      if (!isOver) failure = error;
      pack.destroy(error);
    },
  );
  const piped = pipeline(pack, stream).catch(() => undefined);
  command.stdout.resume();
  const sent = command.feed(stream).catch(() => undefined);
  const end = await command.ended.catch((error: Error) => error);
  isOver = true;
  stream.destroy();
  await Promise.all([piped, packed, sent]);
  if (failure instanceof CliError) throw failure;
  if (failure !== undefined) throw new CliError(`${source} could not be read (${failure.message}).`);
  if (end instanceof Error) throw end;
  if (end.returncode !== 0) throw new CliError(`${target} could not be written: tar in it says: ${end.stderr.trim()}`);
}

/**
 * Writes the content of a directory of the sandbox into an existing directory here. Never writes through a
 * link.
 */
export async function receiveTar(
  remote: Remote,
  source: string,
  place: string,
  progress: CopyProgress,
  save: (content: Readable, path: string, mode: number) => Promise<void>,
): Promise<void> {
  const command = await startTar(remote, source, ['-c', '-f', '-', '.']);
  const extract = tar.extract();
  const fed = pipeline(command.stdout, extract).catch(() => undefined);
  const unpacked = new Unpacked(place, progress, save);
  try {
    for await (const entry of extract) {
      await unpacked.add(entry.header, Readable.from(entry));
      entry.resume();
    }
  } catch (error) {
    command.stop();
    throw error instanceof CliError
      ? error
      : new CliError(`${source} could not be copied: ${(error as Error).message}`);
  } finally {
    await fed;
  }
  const { returncode, stderr } = await command.ended;
  await unpacked.end();
  if (returncode !== 0) throw new CliError(`${source} was not copied whole: tar in the sandbox says: ${stderr.trim()}`);
}

interface TarCommand {
  readonly stdout: Readable;
  /** Rejects when the connection breaks. */
  readonly ended: Promise<{ readonly returncode: number; readonly stderr: string }>;
  feed(content: Readable): Promise<void>;
  stop(): void;
}

async function startTar({ client, base }: Remote, directory: string, args: readonly string[]): Promise<TarCommand> {
  const query = new URLSearchParams({ command: JSON.stringify(['tar', ...args]), working_dir: directory });
  const socket = await client.webSocket(`${base.replace(/\/files$/, '/exec')}?${query}`);
  const stdout = new PassThrough({ highWaterMark: 1024 * 1024 });
  let stderr = '';
  let returncode: number | undefined;
  const output = new Writable({
    write(chunk: Buffer, _encoding, done) {
      const content = chunk.subarray(1);
      if (chunk[0] === STDERR) {
        if (stderr.length < MAX_STDERR_CHARS) stderr += content.toString();
        done();
      } else if (stdout.destroyed || stdout.write(content)) done();
      else stdout.once('drain', done).once('close', done);
    },
    final(done) {
      stdout.end();
      done();
    },
  });
  const ended = new Promise<{ returncode: number; stderr: string }>((resolve, reject) => {
    socket.once('close', (code: number, reason: Buffer) => {
      output.end();
      if (returncode !== undefined) resolve({ returncode, stderr });
      else reject(new CliError(`The connection broke (${reason.toString() || `code ${code}`}).`, EXIT.unreachable));
    });
  });
  // Prevents an unhandled rejection when no caller waits for the end.
  ended.catch(() => undefined);
  receive(socket, output, text => {
    const message = JSON.parse(text) as { type?: string; returncode?: number };
    if (message.type === 'exit') returncode = message.returncode;
  });
  return {
    stdout,
    ended,
    async feed(content) {
      try {
        await sendBinary(socket, content);
        await send(socket, STDIN_END);
      } catch (error) {
        // Otherwise the command would wait for the rest of its input.
        socket.close();
        throw error;
      }
    },
    stop() {
      stdout.destroy();
      socket.terminate();
    },
  };
}

interface Packing {
  readonly progress: CopyProgress;
  count: number;
}

async function packDirectory(pack: Pack, root: string, below: string, packing: Packing): Promise<void> {
  for (const name of (await readdir(join(root, below))).sort()) {
    packing.count += 1;
    if (packing.count > MAX_FILES) throw new CliError(`More than ${MAX_FILES} files are too many: pack them first.`);
    const path = below === '' ? name : `${below}/${name}`;
    const stats = await lstat(join(root, path));
    const header = { name: path, mode: stats.mode & 0o777, mtime: stats.mtime };
    if (stats.isDirectory()) {
      pack.entry({ ...header, type: 'directory' });
      await packDirectory(pack, root, path, packing);
    } else if (stats.isSymbolicLink()) {
      pack.entry({ ...header, type: 'symlink', linkname: await readlink(join(root, path)) });
    } else if (stats.isFile()) await packFile(pack, join(root, path), header, stats, packing.progress);
    else packing.progress.warn(`${join(root, path)} is not copied: it is neither a file, a directory nor a link.`);
  }
}

async function packFile(
  pack: Pack,
  path: string,
  header: Partial<Header> & { name: string },
  { size }: Stats,
  progress: CopyProgress,
) {
  const entry = pack.entry({ ...header, type: 'file', size });
  if (size === 0) entry.end(Buffer.alloc(0));
  else {
    // Reads no more than the length in the header, even if the file has grown.
    const content = createReadStream(path, { end: size - 1, highWaterMark: 256 * 1024 });
    content.on('data', chunk => progress.addBytes(chunk.length));
    await pipeline(content, entry);
  }
  progress.addFile();
}

/**
 * Writes the archive from a sandbox below `place`. Names are not trusted: none may lead out of `place`, and
 * every directory above a file must be real. Links are written last, so that no file is written through one.
 */
class Unpacked {
  readonly #place: string;
  readonly #progress: CopyProgress;
  readonly #save: (content: Readable, path: string, mode: number) => Promise<void>;
  readonly #files = new Set<string>();
  readonly #directories = new Map<string, number>();
  readonly #links = new Map<string, string>();
  #count = 0;

  constructor(
    place: string,
    progress: CopyProgress,
    save: (content: Readable, path: string, mode: number) => Promise<void>,
  ) {
    this.#place = place;
    this.#progress = progress;
    this.#save = save;
  }

  async add(header: Header, content: Readable): Promise<void> {
    const parts = partsOf(header.name);
    if (parts.length === 0) return;
    this.#count += 1;
    if (this.#count > MAX_FILES) throw new CliError(`More than ${MAX_FILES} files are too many: pack them first.`);
    const path = join(this.#place, ...parts);
    const mode = (header.mode ?? 0o644) & 0o777;
    await this.#makeDirectories(parts.slice(0, -1));
    if (header.type === 'directory') {
      await this.#makeDirectories(parts);
      this.#directories.set(path, mode);
    } else if (header.type === 'symlink') {
      this.#links.set(path, header.linkname ?? '');
    } else if (header.type === 'link') {
      // A hard link: another name of an earlier file.
      const known = join(this.#place, ...partsOf(header.linkname ?? ''));
      if (!this.#files.has(known)) throw unusable(header.linkname ?? '');
      await rm(path, { force: true });
      await copyFile(known, path);
      this.#files.add(path);
      this.#progress.addFile();
    } else if (header.type === 'file' || header.type === 'contiguous-file') {
      await this.#save(content, path, mode);
      this.#files.add(path);
    } else this.#progress.warn(`${header.name} is not copied: it is neither a file, a directory nor a link.`);
  }

  async end(): Promise<void> {
    for (const [path, target] of this.#links) {
      await this.#makeDirectories(partsOf(path.slice(this.#place.length)).slice(0, -1));
      const temporary = `${path}.rookery-link`;
      await rm(temporary, { force: true });
      await symlink(target, temporary);
      await rename(temporary, path).catch(async (error: Error) => {
        await rm(temporary, { force: true });
        throw new CliError(`${path} cannot be made a link (${error.message}).`);
      });
      this.#progress.addFile();
    }
    // Deepest directories first, because a parent's mode may forbid changes below it.
    for (const [path, mode] of [...this.#directories].reverse()) await chmod(path, mode);
  }

  async #makeDirectories(parts: readonly string[]): Promise<void> {
    let path = this.#place;
    for (const part of parts) {
      path = join(path, part);
      const found = await lstat(path).catch(() => null);
      if (found === null) await mkdir(path, { mode: WRITABLE_DIRECTORY });
      else if (!found.isDirectory()) throw new CliError(`${path} is no directory: nothing is written through it.`);
    }
  }
}

function partsOf(name: string): string[] {
  const parts = name.split('/').filter(part => part !== '' && part !== '.');
  if (parts.some(part => part === '..' || part.includes('\0'))) throw unusable(name);
  return parts;
}

function unusable(name: string): CliError {
  return new CliError(`The sandbox has a file with a name that cannot be used here: ${JSON.stringify(name)}.`);
}
