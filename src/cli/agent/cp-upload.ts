import { randomUUID } from 'node:crypto';
import { createReadStream, type Stats } from 'node:fs';
import { lstat, readdir, stat } from 'node:fs/promises';
import { join } from 'node:path';
import { Readable } from 'node:stream';
import { fileProblem } from '../../../clients/typescript/src/file-problem.ts';
import { CliError } from '../shared/exit.ts';
import type { Io } from '../shared/io.ts';
import { type CopyProgress, copyName, isRemoteDirectory, joinRemote, type Remote } from './cp-remote.ts';
import { hasTar, notCopied, sendAsTar } from './cp-tar.ts';

const MAX_FILES = 100_000;

/** Copies a file, a directory or stdin (`-`) of this machine into a sandbox. */
export async function uploadFrom(
  io: Io,
  remote: Remote,
  source: string,
  target: string,
  progress: CopyProgress,
): Promise<void> {
  if (source === '-') {
    await sendContent(remote, { path: target, mode: null, name: 'stdin', content: io.stdin, bytes: null }, progress);
    return;
  }
  const stats = await statHere(source);
  if (!stats.isDirectory()) {
    await sendFile(remote, source, stats, target, copyName(source), progress);
    return;
  }
  const name = copyName(source);
  const isInside = name !== '' && (target.endsWith('/') || (await isRemoteDirectory(remote, target)));
  const place = isInside ? joinRemote(target, name) : target;
  if (await hasTar(remote)) {
    await makeRemoteDirectory(remote, place, stats);
    await sendAsTar(remote, source, place, progress);
  } else await sendDirectory({ remote, progress, count: 0 }, source, stats, place);
}

interface Walk {
  readonly remote: Remote;
  readonly progress: CopyProgress;
  count: number;
}

async function sendDirectory(walk: Walk, source: string, stats: Stats, target: string): Promise<void> {
  const { remote, progress } = walk;
  await makeRemoteDirectory(remote, target, stats);
  for (const name of (await readdir(source)).sort()) {
    walk.count += 1;
    if (walk.count > MAX_FILES) throw new CliError(`More than ${MAX_FILES} files are too many: pack them first.`);
    const path = join(source, name);
    // The target of a link is copied only when the command names the link itself.
    const entry = await lstat(path);
    if (entry.isDirectory()) await sendDirectory(walk, path, entry, joinRemote(target, name));
    else if (entry.isFile()) await sendFile(remote, path, entry, joinRemote(target, name), name, progress);
    else progress.warn(notCopied(path, entry.isSymbolicLink()));
  }
}

async function makeRemoteDirectory({ client, base }: Remote, path: string, stats: Stats): Promise<void> {
  await client.json('POST', `${base}/mkdir?${new URLSearchParams({ path, mode: modeOf(stats), recursive: 'true' })}`);
}

async function sendFile(
  remote: Remote,
  source: string,
  stats: Stats,
  target: string,
  name: string,
  progress: CopyProgress,
): Promise<void> {
  if (!stats.isFile()) throw new CliError(`${source} is neither a file nor a directory.`);
  // Reads no more than the announced length, even if the file has grown.
  const content =
    stats.size === 0 ? Readable.from([]) : createReadStream(source, { end: stats.size - 1, highWaterMark: 256 * 1024 });
  await sendContent(remote, { path: target, mode: modeOf(stats), name, content, bytes: stats.size }, progress);
}

interface Content {
  readonly path: string;
  readonly mode: string | null;
  readonly name: string;
  readonly content: Readable;
  /** Null: unknown. */
  readonly bytes: number | null;
}

/** Sends one upload as the multipart body that the service reads. */
async function sendContent(
  remote: Remote,
  { path, mode, name, content, bytes }: Content,
  progress: CopyProgress,
): Promise<void> {
  const { client, base } = remote;
  const boundary = `rookery-${randomUUID()}`;
  const field = (field: string, value: string) =>
    `--${boundary}\r\nContent-Disposition: form-data; name="${field}"\r\n\r\n${value}\r\n`;
  const fileName = name.replace(/["\r\n]/g, '_');
  const head = Buffer.from(
    `${field('path', path)}${mode === null ? '' : field('mode', mode)}--${boundary}\r\nContent-Disposition: form-data; ` +
      `name="file"; filename="${fileName}"\r\nContent-Type: application/octet-stream\r\n\r\n`,
  );
  const tail = Buffer.from(`\r\n--${boundary}--\r\n`);
  const body = async function* () {
    yield head;
    for await (const chunk of content as AsyncIterable<Buffer>) {
      progress.addBytes(chunk.length);
      yield chunk;
    }
    yield tail;
  };
  const upload = { content: Readable.from(body()), bytes: bytes === null ? null : head.length + bytes + tail.length };
  const headers = { 'content-type': `multipart/form-data; boundary=${boundary}` };
  await client.json('POST', `${base}/upload`, { upload, headers, timeoutMs: null }).catch((error: unknown) => {
    throw error instanceof CliError ? withCommand(error, remote, path) : error;
  });
  progress.addFile();
}

/** Replaces the route for making directories, which the service's error names, by a command. */
function withCommand(error: CliError, { agent }: Remote, path: string): CliError {
  const directory = path.slice(0, path.lastIndexOf('/')).replaceAll("'", "'\\''");
  const what = error.message.replace(/: directories are not made by an upload; .*$/s, '');
  if (what === error.message) return error;
  const command = `rookery agent exec ${agent} -- mkdir -p '${directory}'`;
  return new CliError(`${what}. Make it with: ${command}`, error.exitCode, error.status);
}

async function statHere(path: string): Promise<Stats> {
  try {
    return await stat(path);
  } catch (error) {
    throw new CliError(`${path} cannot be read: ${fileProblem(error)}.`);
  }
}

function modeOf({ mode }: Stats): string {
  return (mode & 0o777).toString(8).padStart(3, '0');
}
