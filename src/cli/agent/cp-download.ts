import { randomUUID } from 'node:crypto';
import { createWriteStream } from 'node:fs';
import { chmod, mkdir, rename, rm, stat } from 'node:fs/promises';
import type { IncomingMessage } from 'node:http';
import { dirname, join } from 'node:path';
import { type Readable, Transform } from 'node:stream';
import { pipeline } from 'node:stream/promises';
import { fileProblem } from '../../../clients/typescript/src/file-problem.ts';
import { CliError, EXIT, usageError } from '../shared/exit.ts';
import { type Io, pump } from '../shared/io.ts';
import { notLeft } from '../shared/scratch.ts';
import { type CopyProgress, copyName, joinRemote, listRemote, type Remote } from './cp-remote.ts';
import { hasTar, notCopied, receiveTar } from './cp-tar.ts';

const MAX_DOWNLOADED = 100_000;
const DEFAULT_MODE = 0o644;
/** Lets the copy write into the directory. The directory gets its own mode afterwards. */
const WRITABLE_DIRECTORY = 0o700;

/** Copies a file or a directory of a sandbox to this machine, or a file to stdout (`-`). */
export async function downloadTo(
  io: Io,
  remote: Remote,
  source: string,
  target: string,
  progress: CopyProgress,
): Promise<void> {
  const answer = await openRemote(remote, source);
  if (target === '-') {
    if (answer === null) throw usageError(`${source} is a directory: only a file can be copied to stdout.`);
    await brokenIsTold(source, pump(answer, io.out, io.signal)).catch(error => {
      // A reader that closes its pipe is not an error.
      if (!io.signal.aborted) throw error;
    });
    return;
  }
  const place = await placeHere(target, copyName(source));
  if (answer !== null) {
    await save(answer, source, place, progress);
    return;
  }
  await mkdir(place, { recursive: true });
  if (await hasTar(remote)) {
    await receiveTar(remote, source, place, progress, (content, path, mode) =>
      saveContent(content, mode, join(source, path.slice(place.length)), path, progress),
    );
  } else await saveDirectory({ remote, progress, count: 0 }, source, place);
}

/** Returns the content of a file, or null for a directory. */
async function openRemote({ client, base }: Remote, path: string): Promise<IncomingMessage | null> {
  try {
    return await client.stream('GET', `${base}/download?${new URLSearchParams({ path })}`);
  } catch (error) {
    if (!(error instanceof CliError) || error.status !== 400) throw error;
    // The path is a directory, or listing it reports the real problem.
    await client.json('GET', `${base}/list?${new URLSearchParams({ path })}`);
    return null;
  }
}

interface DownloadWalk {
  readonly remote: Remote;
  readonly progress: CopyProgress;
  count: number;
}

async function saveDirectory(walk: DownloadWalk, source: string, place: string): Promise<void> {
  const { remote, progress } = walk;
  for (const { name, type, mode, isUtf8 } of await listRemote(remote, source)) {
    walk.count += 1;
    if (walk.count > MAX_DOWNLOADED)
      throw new CliError(`More than ${MAX_DOWNLOADED} files are too many: pack them first.`);
    const from = joinRemote(source, name);
    const to = join(place, name);
    if (!isUtf8) progress.warn(`${from} is left out: its name is not UTF-8, and only a tar inside could copy it`);
    else if (type === 'directory') {
      await mkdir(to, { recursive: true, mode: WRITABLE_DIRECTORY });
      await saveDirectory(walk, from, to);
      await chmod(to, mode);
    } else if (type === 'file') {
      const answer = await openRemote(remote, from);
      if (answer === null) throw new CliError(`${from} changed while it was copied.`);
      await save(answer, from, to, progress);
    } else progress.warn(notCopied(from, type === 'symlink'));
  }
}

/** Writes a temporary file and renames it once it is complete. */
function save(answer: IncomingMessage, source: string, place: string, progress: CopyProgress): Promise<void> {
  return saveContent(answer, modeOf(answer), source, place, progress);
}

async function saveContent(
  content: Readable,
  mode: number,
  source: string,
  place: string,
  progress: CopyProgress,
): Promise<void> {
  const temporary = join(dirname(place), `.rookery-${randomUUID()}`);
  const counted = new Transform({
    transform(chunk: Buffer, _encoding, done) {
      progress.addBytes(chunk.length);
      done(null, chunk);
    },
  });
  await notLeft(temporary, async () => {
    try {
      const sink = createWriteStream(temporary, { mode: 0o600, flags: 'wx' });
      await brokenIsTold(source, pipeline(content, counted, sink));
      await chmod(temporary, mode);
      await rename(temporary, place);
    } catch (error) {
      await rm(temporary, { force: true });
      throw error;
    }
  });
  progress.addFile();
}

async function brokenIsTold(source: string, work: Promise<void>): Promise<void> {
  try {
    await work;
  } catch (error) {
    const { code, path, message } = error as NodeJS.ErrnoException;
    if (path !== undefined) throw new CliError(`${path} cannot be written: ${fileProblem(error)}.`);
    throw new CliError(`${source} could not be copied: the connection broke (${code ?? message}).`, EXIT.unreachable);
  }
}

/** Returns `target`, or the path of the copy inside `target` when that is a directory. */
async function placeHere(target: string, name: string): Promise<string> {
  const isDirectory = await stat(target).then(
    found => found.isDirectory(),
    () => false,
  );
  if (target.endsWith('/') && !isDirectory)
    throw new CliError(`The directory ${target} does not exist here. Make it first: mkdir -p ${target}`);
  return isDirectory && name !== '' ? join(target, name) : target;
}

function modeOf({ headers }: IncomingMessage): number {
  const mode = Number.parseInt(String(headers['x-file-mode'] ?? ''), 8);
  return Number.isNaN(mode) ? DEFAULT_MODE : mode & 0o777;
}
