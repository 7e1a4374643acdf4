import { type ChildProcess, spawn } from 'node:child_process';
import { randomUUID } from 'node:crypto';
import { constants } from 'node:fs';
import { type FileHandle, lstat, mkdir, open, readdir, readlink, rename, rm, stat } from 'node:fs/promises';
import net from 'node:net';
import { tmpdir } from 'node:os';
import { basename, dirname, join, resolve } from 'node:path';
import { type Duplex, Readable, type Writable } from 'node:stream';
import { pipeline } from 'node:stream/promises';
import {
  alreadyExists,
  deadlineExceeded,
  failedPrecondition,
  invalidRequest,
  messageOf,
  notFound,
  permissionDenied,
  resourceExhausted,
  ServiceError,
  unavailable,
} from '../../src/core/error.ts';
import type {
  FileEntry,
  FileList,
  ListFilesOptions,
  MakeDirectoryOptions,
  OpenExec,
  OpenExecRequest,
  OpenFile,
  SandboxAccess,
  WriteFileOptions,
  WrittenFile,
} from '../../src/sandbox/access.ts';
import { NoProcesses } from './no-processes.ts';

const MAX_EXECS = 32;
const SIGNALS: Readonly<Record<string, number>> = { SIGINT: 2, SIGKILL: 9, SIGTERM: 15 };

/** State that all accesses to one fake sandbox share. */
export interface FakeInside {
  readonly env: Readonly<Record<string, string>>;
  /** Aborts when the sandbox ends. */
  readonly ended: AbortSignal;
  openExecs: number;
}

/**
 * Access to a fake sandbox: its files, commands and ports are those of the host. A terminal is a pipe for
 * both outputs.
 */
export class FakeAccess extends NoProcesses implements SandboxAccess {
  readonly #inside: FakeInside | undefined;

  /** `inside` is undefined when the sandbox was removed. */
  constructor(inside: FakeInside | undefined) {
    super();
    this.#inside = inside;
  }

  async openExec(request: OpenExecRequest, signal: AbortSignal): Promise<OpenExec> {
    const inside = this.#enter(signal);
    if (inside.openExecs >= MAX_EXECS)
      throw resourceExhausted(`too many commands are open in this sandbox (${MAX_EXECS})`);
    inside.openExecs += 1;
    return new FakeExec(request, inside, signal);
  }

  async dial(port: number, signal: AbortSignal): Promise<Duplex> {
    const inside = this.#enter(signal);
    const socket = net.connect({ host: '127.0.0.1', port, allowHalfOpen: true, noDelay: true });
    const opened = new Promise<Duplex>((resolve, reject) => {
      socket.once('connect', () => resolve(socket));
      socket.on('error', () => reject(failureOf(inside, signal) ?? unavailable(`nothing listens on port ${port}`)));
    });
    endWith(inside, signal, error => socket.destroy(error), socket);
    return await opened;
  }

  async openFile(path: string, signal: AbortSignal): Promise<OpenFile> {
    const inside = this.#enter(signal);
    const place = placeOf(path);
    try {
      if (!(await stat(place)).isFile()) throw invalidRequest(`${path} is not a file`);
      const file = await open(place, constants.O_RDONLY | constants.O_NONBLOCK);
      const { size, mtimeMs, mode } = await file.stat();
      return {
        sizeBytes: size,
        modifiedAtMs: Math.floor(mtimeMs),
        mode: mode & 0o7777,
        read: (start, end) => readRange(file, start, Math.min(end, size), path, inside, signal),
        close: () => void file.close(),
      };
    } catch (error) {
      throw toServiceError(error, path);
    }
  }

  async writeFile(
    path: string,
    { mode }: WriteFileOptions,
    content: Readable,
    signal: AbortSignal,
  ): Promise<WrittenFile> {
    content.on('error', () => undefined);
    const inside = this.#enter(signal);
    const place = await targetOf(placeOf(path));
    const temporary = join(dirname(place), `.rookery-${randomUUID()}.part`);
    try {
      const before = await stat(place).catch(() => null);
      if (path.endsWith('/') || before?.isDirectory()) throw invalidRequest(`${path} is a directory, not a file`);
      if (before !== null && !before.isFile()) {
        throw invalidRequest(`${path} is a ${before.isFIFO() ? 'pipe' : 'device'}, not a file`);
      }
      const file = await open(temporary, 'wx', 0o600);
      await file.chmod(mode ?? (before === null ? 0o644 : before.mode & 0o777));
      await pipeline(content, file.createWriteStream(), { signal: AbortSignal.any([signal, inside.ended]) });
      const { size } = await stat(temporary);
      await rename(temporary, place);
      return { sizeBytes: size };
    } catch (error) {
      content.destroy();
      await rm(temporary, { force: true }).catch(() => undefined);
      throw failureOf(inside, signal) ?? toServiceError(error, path);
    }
  }

  async listFiles(path: string, { maxDepth, maxEntries }: ListFilesOptions, signal: AbortSignal): Promise<FileList> {
    this.#enter(signal);
    const place = placeOf(path);
    try {
      if (!(await stat(place)).isDirectory()) throw invalidRequest(`${path} is not a directory`);
      const found = await listBelow(place, maxDepth);
      return { entries: found.slice(0, maxEntries), truncated: found.length > maxEntries };
    } catch (error) {
      throw toServiceError(error, path);
    }
  }

  async makeDirectory(path: string, { mode, recursive }: MakeDirectoryOptions, signal: AbortSignal): Promise<void> {
    this.#enter(signal);
    const place = placeOf(path);
    try {
      if (recursive) {
        if ((await stat(place).catch(() => null))?.isDirectory()) return;
        await mkdir(dirname(place), { recursive: true });
      }
      await mkdir(place);
      const made = await open(place, constants.O_RDONLY);
      await made.chmod(mode ?? 0o755);
      await made.close();
    } catch (error) {
      // A file takes the place of a directory of the path.
      if (recursive && codeOf(error) === 'ENOTDIR') throw alreadyExists(`${path} is below a file`);
      throw toServiceError(error, path);
    }
  }

  #enter(signal: AbortSignal): FakeInside {
    if (this.#inside === undefined || this.#inside.ended.aborted) throw failedPrecondition('the sandbox does not run');
    if (signal.aborted) throw deadlineExceeded('cancelled before it started');
    return this.#inside;
  }
}

class FakeExec implements OpenExec {
  readonly stdin: Writable;
  readonly stdout: Readable;
  readonly stderr: Readable;
  readonly ended: Promise<number>;
  readonly #child: ChildProcess;

  constructor({ argv, env, workingDir, terminal }: OpenExecRequest, inside: FakeInside, signal: AbortSignal) {
    // When the program does not exist, the shell exits with 127 and prints its name.
    const script = terminal === null ? '"$@"' : '"$@" 2>&1';
    const child = spawn('sh', ['-c', `exec ${script}`, 'sh', ...argv], {
      env: { ...inside.env, ...env },
      cwd: workingDir || tmpdir(),
      detached: true,
    });
    this.#child = child;
    this.stdin = child.stdin;
    this.stdout = child.stdout;
    this.stderr = child.stderr;
    for (const stream of [this.stdin, this.stdout, this.stderr]) stream.on('error', () => undefined);
    this.ended = new Promise((resolve, reject) => {
      child.once('error', error => reject(unavailable(messageOf(error))));
      child.once('exit', (code, by) => {
        const failure = failureOf(inside, signal);
        if (failure) reject(failure);
        else resolve(code ?? 128 + (SIGNALS[by ?? ''] ?? 0));
      });
    });
    this.ended
      .catch(() => undefined)
      .finally(() => {
        inside.openExecs -= 1;
      });
    const end = (error: Error) => {
      this.kill();
      for (const stream of [this.stdin, this.stdout, this.stderr]) stream.destroy(error);
    };
    endWith(inside, signal, end, child);
  }

  resize(): void {}

  kill(): void {
    const { pid, exitCode, signalCode } = this.#child;
    if (pid !== undefined && exitCode === null && signalCode === null) process.kill(-pid, 'SIGKILL');
  }
}

/** Calls `end` when the sandbox ends or the signal aborts before `open` closes. */
function endWith(
  inside: FakeInside,
  signal: AbortSignal,
  end: (error: ServiceError) => void,
  open: NodeJS.EventEmitter,
): void {
  const abort = () => end(failureOf(inside, signal) ?? unavailable('the sandbox ended'));
  const both = [signal, inside.ended];
  for (const each of both) each.addEventListener('abort', abort, { once: true });
  open.once('close', () => {
    for (const each of both) each.removeEventListener('abort', abort);
  });
}

function failureOf(inside: FakeInside, signal: AbortSignal): ServiceError | null {
  if (inside.ended.aborted) return unavailable('the sandbox ended');
  return signal.aborted ? deadlineExceeded('the caller cancelled it') : null;
}

/**
 * Returns the path that a write to `place` creates or changes. Follows links, also a link without a target.
 */
async function targetOf(place: string): Promise<string> {
  const to = await readlink(place).catch(() => null);
  return to === null ? place : await targetOf(resolve(dirname(place), to));
}

function placeOf(path: string): string {
  if (path === '') throw invalidRequest('the path must not be empty');
  if (path.includes('\0')) throw invalidRequest('the path must not contain a NUL byte');
  return resolve(tmpdir(), path);
}

function readRange(
  file: FileHandle,
  start: number,
  end: number,
  path: string,
  inside: FakeInside,
  signal: AbortSignal,
): Readable {
  if (start >= end) {
    void file.close();
    return Readable.from([]);
  }
  const pieces = async function* () {
    let missing = end - start;
    for await (const piece of file.createReadStream({ start, end: end - 1 })) {
      const failure = failureOf(inside, signal);
      if (failure) throw failure;
      missing -= (piece as Buffer).length;
      yield piece as Buffer;
    }
    if (missing > 0) throw unavailable(`${path} became shorter while it was read`);
  };
  return Readable.from(pieces(), { objectMode: false });
}

async function listBelow(top: string, depth: number): Promise<FileEntry[]> {
  const found: FileEntry[] = [];
  const names = await readdir(top, { withFileTypes: true });
  for (const name of names) {
    const path = join(top, name.name);
    const about = await statLink(path);
    if (about === null) continue;
    found.push(about);
    if (name.isDirectory() && depth > 1) found.push(...(await listBelow(path, depth - 1)));
  }
  return found.sort((one, other) => (one.path < other.path ? -1 : 1));
}

async function statLink(path: string): Promise<FileEntry | null> {
  const about = await lstat(path).catch(() => null);
  if (about === null) return null;
  const type = about.isFile()
    ? 'file'
    : about.isDirectory()
      ? 'directory'
      : about.isSymbolicLink()
        ? 'symlink'
        : 'other';
  return { path, type, sizeBytes: about.size, mode: about.mode & 0o7777, modifiedAtMs: Math.floor(about.mtimeMs) };
}

function codeOf(error: unknown): string {
  return String((error as NodeJS.ErrnoException).code);
}

function toServiceError(error: unknown, path: string): ServiceError {
  if (error instanceof ServiceError) return error;
  const code = codeOf(error);
  const message = `${path}: ${messageOf(error)} (${basename(path)})`;
  if (code === 'ENOENT' || code === 'ENOTDIR') return notFound(message);
  if (code === 'EACCES' || code === 'EPERM' || code === 'EROFS') return permissionDenied(message);
  if (code === 'EEXIST') return alreadyExists(message);
  if (code === 'ENOSPC') return resourceExhausted(message);
  if (['ELOOP', 'EISDIR', 'ENAMETOOLONG', 'EINVAL', 'ENXIO'].includes(code)) return invalidRequest(message);
  return unavailable(message, { cause: error });
}
