import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { createWriteStream } from 'node:fs';
import { lstat, mkdir, open, readdir, realpath, rename, rm } from 'node:fs/promises';
import { connect } from 'node:net';
import { join } from 'node:path';
import type { Duplex, Readable } from 'node:stream';
import { pipeline } from 'node:stream/promises';
import {
  alreadyExists,
  invalidRequest,
  notFound,
  permissionDenied,
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
  TerminalSize,
  WriteFileOptions,
  WrittenFile,
} from '../../src/sandbox/access.ts';
import { NoProcesses } from '../fakes/no-processes.ts';

/**
 * Access to a host directory that stands in for a sandbox, so that tests need no driver.
 * Terminals are pipes.
 */
export class HostAccess extends NoProcesses implements SandboxAccess {
  readonly execs: OpenExecRequest[] = [];
  readonly sizes: TerminalSize[] = [];
  /** Number of running commands. */
  running = 0;
  /** False: every exec fails with not_found. */
  hasPrograms = true;
  /** Replacement command lines by program name. */
  readonly programs = new Map<string, readonly string[]>();
  readonly #root: string;

  constructor(root: string) {
    super();
    this.#root = root;
  }

  async openExec(request: OpenExecRequest, signal: AbortSignal): Promise<OpenExec> {
    this.execs.push(request);
    const [name = '', ...given] = request.argv;
    const [command = '', ...args] = this.programs.get(name) ?? [name, ...given];
    if (!this.hasPrograms) throw notFound(`there is no program ${name}`);
    const child = spawn(command, args, {
      cwd: request.workingDir === '' ? this.#root : this.#path(request.workingDir),
      env: { PATH: process.env.PATH, ...request.env },
      detached: true,
    });
    const failed = once(child, 'error').then(([error]) => Promise.reject(error));
    await Promise.race([once(child, 'spawn'), failed]).catch((error: unknown) => {
      throw asServiceError(error, command);
    });
    this.running += 1;
    const ended = once(child, 'close').then(([code, ended]: (number | string | null)[]) => {
      this.running -= 1;
      return typeof code === 'number' ? code : 128 + (ended === 'SIGKILL' ? 9 : 15);
    });
    const kill = () => {
      try {
        process.kill(-(child.pid as number), 'SIGKILL');
      } catch {
        // The command has ended already.
      }
    };
    signal.addEventListener('abort', kill, { once: true });
    return {
      stdin: child.stdin,
      stdout: child.stdout,
      stderr: child.stderr,
      resize: size => void this.sizes.push(size),
      ended,
      kill,
    };
  }

  async dial(port: number, signal: AbortSignal): Promise<Duplex> {
    const socket = connect({ host: '127.0.0.1', port, allowHalfOpen: true });
    signal.addEventListener('abort', () => socket.destroy(), { once: true });
    try {
      await once(socket, 'connect', { signal });
      return socket;
    } catch (error) {
      throw unavailable(`nothing listens on port ${port}`, { cause: error });
    }
  }

  async openFile(path: string, _signal: AbortSignal): Promise<OpenFile> {
    const file = await open(this.#path(path)).catch((error: unknown) => {
      throw asServiceError(error, path);
    });
    const stats = await file.stat();
    if (!stats.isFile()) {
      await file.close();
      throw invalidRequest(`${path} is not a regular file`);
    }
    return {
      sizeBytes: stats.size,
      modifiedAtMs: stats.mtimeMs,
      mode: stats.mode & 0o7777,
      read: (start, end) => file.createReadStream({ start, end: end - 1 }),
      close: () => void file.close(),
    };
  }

  async writeFile(
    path: string,
    options: WriteFileOptions,
    content: Readable,
    signal: AbortSignal,
  ): Promise<WrittenFile> {
    const target = this.#path(path);
    const stats = await lstat(target).catch(() => null);
    if (stats?.isDirectory()) throw invalidRequest(`${path} is a directory`);
    const temporary = `${target}.part`;
    try {
      const sink = createWriteStream(temporary, { mode: options.mode ?? 0o644 });
      await pipeline(content, sink, { signal });
      await rename(temporary, target);
      return { sizeBytes: sink.bytesWritten };
    } catch (error) {
      await rm(temporary, { force: true });
      throw asServiceError(error, path);
    }
  }

  async listFiles(path: string, options: ListFilesOptions, _signal: AbortSignal): Promise<FileList> {
    const entries: FileEntry[] = [];
    try {
      await this.#list(await realpath(this.#path(path)), options, 1, entries);
    } catch (error) {
      throw asServiceError(error, path);
    }
    entries.sort((a, b) => (a.path < b.path ? -1 : 1));
    return { entries: entries.slice(0, options.maxEntries), truncated: entries.length > options.maxEntries };
  }

  async makeDirectory(path: string, { mode, recursive }: MakeDirectoryOptions, _signal: AbortSignal): Promise<void> {
    await mkdir(this.#path(path), { mode: mode ?? 0o755, recursive }).catch((error: unknown) => {
      throw asServiceError(error, path);
    });
  }

  async #list(directory: string, options: ListFilesOptions, depth: number, entries: FileEntry[]): Promise<void> {
    for (const entry of await readdir(directory, { withFileTypes: true })) {
      const path = join(directory, entry.name);
      const stats = await lstat(path);
      entries.push({
        path: path.slice(this.#root.length),
        type: entry.isSymbolicLink()
          ? 'symlink'
          : entry.isDirectory()
            ? 'directory'
            : entry.isFile()
              ? 'file'
              : 'other',
        sizeBytes: stats.size,
        mode: stats.mode & 0o7777,
        modifiedAtMs: stats.mtimeMs,
      });
      if (entry.isDirectory() && depth < options.maxDepth) await this.#list(path, options, depth + 1, entries);
    }
  }

  #path(path: string): string {
    return join(this.#root, path);
  }
}

function asServiceError(error: unknown, path: string): Error {
  if (error instanceof ServiceError) return error;
  const code = (error as NodeJS.ErrnoException).code;
  if (code === 'ENOENT') return notFound(`${path}: there is no such file or directory`);
  if (code === 'EACCES' || code === 'EPERM') return permissionDenied(`${path}: not allowed`);
  if (code === 'EEXIST') return alreadyExists(`${path} exists already`);
  if (code === 'ENOTDIR' || code === 'EISDIR') return invalidRequest(`${path}: ${code}`);
  return error as Error;
}
