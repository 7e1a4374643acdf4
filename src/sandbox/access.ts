import type { Duplex, Readable, Writable } from 'node:stream';

/**
 * Ways into one running sandbox, beside its runtime: commands with open streams, its ports, its files. `SandboxDriver.access`
 * gives it.
 *
 * Everything happens inside, as the sandbox's user with that user's rights and limits: a path is a path in the sandbox, and a symbolic
 * link leads where it leads there. Streams carry back-pressure from end to end, so that a slow reader holds up what writes and fills
 * no memory. An open way ends with the sandbox; its streams are destroyed then.
 *
 * Errors are `ServiceError`s: `failed_precondition` when the sandbox does not run, `unavailable` when it ended or does not answer,
 * `deadline_exceeded` when `signal` ended it, and those of each method. `signal` bounds the opening and ends what was opened.
 */
export interface SandboxAccess {
  /** Starts a command. Fails with `resource_exhausted` when too many are open in this sandbox (32). */
  openExec(request: OpenExecRequest, signal: AbortSignal): Promise<OpenExec>;

  /** A connection to TCP `port` on 127.0.0.1 inside. Fails with `unavailable` (`nothing listens on port <n>`). */
  dial(port: number, signal: AbortSignal): Promise<Duplex>;

  /** Opens a regular file. Fails with `not_found`, `permission_denied`, or `invalid_request` when it is something else. */
  openFile(path: string, signal: AbortSignal): Promise<OpenFile>;

  /**
   * Writes `content` to a new file that takes the place of what is at `path` when it is complete, and only then; a failure leaves what was
   * there. `path` is never a symbolic link afterwards. Directories above it must be there. Fails with `not_found`,
   * `permission_denied`, `invalid_request` (a directory is there), `resource_exhausted` (no room, or a limit of the disk).
   */
  writeFile(path: string, options: WriteFileOptions, content: Readable, signal: AbortSignal): Promise<WrittenFile>;

  /** The files of a directory, ordered by path. Fails with `not_found`, `permission_denied`, `invalid_request` (no directory). */
  listFiles(path: string, options: ListFilesOptions, signal: AbortSignal): Promise<FileList>;

  /** Fails with `already_exists` (not with `recursive` when it is a directory), `not_found` (its parent), `permission_denied`. */
  makeDirectory(path: string, options: MakeDirectoryOptions, signal: AbortSignal): Promise<void>;
}

export interface OpenExecRequest {
  readonly argv: readonly string[];
  /** `''`: the sandbox's working directory; a relative one counts from it. */
  readonly workingDir: string;
  /** Added to the sandbox's environment. */
  readonly env: Readonly<Record<string, string>>;
  /** With a terminal of this size, which is its standard input, output and error; null: three pipes. */
  readonly terminal: TerminalSize | null;
}

export interface TerminalSize {
  /** 1 to 65535. */
  readonly columns: number;
  readonly rows: number;
}

/** A command that runs. */
export interface OpenExec {
  /** Its end is the end of the command's input (with a terminal: nothing). */
  readonly stdin: Writable;
  readonly stdout: Readable;
  /** Ends at once with a terminal. */
  readonly stderr: Readable;
  /** Without effect without a terminal, or when the command has ended. */
  resize(size: TerminalSize): void;
  /** Its return code (128 + n after signal n), once it has ended and its outputs have been read. Rejects when that is not known. */
  readonly ended: Promise<number>;
  /** Ends it with its whole process group. */
  kill(): void;
}

export interface OpenFile {
  readonly sizeBytes: number;
  readonly modifiedAtMs: number;
  /** Permission bits, `0o644`. */
  readonly mode: number;
  /** The bytes from `start` up to, not including, `end`, of the file that was opened, whatever is at its path by now. Once. */
  read(start: number, end: number): Readable;
  /** Without reading. */
  close(): void;
}

export interface WriteFileOptions {
  /** Permission bits; null: 0o644. */
  readonly mode: number | null;
}

export interface WrittenFile {
  readonly sizeBytes: number;
}

export interface ListFilesOptions {
  /** 1 = what is in it. */
  readonly maxDepth: number;
  /** Above it `truncated`. */
  readonly maxEntries: number;
}

export interface FileList {
  readonly entries: readonly FileEntry[];
  readonly truncated: boolean;
}

export interface FileEntry {
  /** Absolute, inside. */
  readonly path: string;
  readonly type: 'file' | 'directory' | 'symlink' | 'other';
  readonly sizeBytes: number;
  readonly mode: number;
  readonly modifiedAtMs: number;
}

export interface MakeDirectoryOptions {
  /** Permission bits; null: 0o755. */
  readonly mode: number | null;
  /** Makes its parents too, and is content with a directory that is there. */
  readonly recursive: boolean;
}
