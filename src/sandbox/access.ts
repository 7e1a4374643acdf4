import type { Duplex, Readable, Writable } from 'node:stream';
import type { OpenFile, SandboxFiles } from './files.ts';

export type { OpenFile } from './files.ts';

/**
 * Access to one running sandbox in addition to its runtime: commands with open streams, TCP ports, and files.
 * `SandboxDriver.access` returns it.
 *
 * All operations run inside, with the rights and limits of the sandbox's user. Paths and symbolic links are
 * resolved inside the sandbox. Streams carry back-pressure from end to end: a slow reader pauses the writer,
 * and memory stays bounded. When the sandbox ends, the driver destroys all open streams.
 *
 * Errors are `ServiceError`s: `failed_precondition` when the sandbox does not run, `unavailable` when it
 * ended or does not answer, `deadline_exceeded` when `signal` ended the operation, and those of each method.
 * `signal` bounds the opening, and later ends the opened stream.
 */
export interface SandboxAccess extends SandboxFiles, SandboxProcesses {
  /** Starts a command. Fails with `resource_exhausted` when 32 commands are open in this sandbox. */
  openExec(request: OpenExecRequest, signal: AbortSignal): Promise<OpenExec>;

  /** Connects to TCP `port` on 127.0.0.1 inside. Fails with `unavailable` (`nothing listens on port <n>`). */
  dial(port: number, signal: AbortSignal): Promise<Duplex>;

  /**
   * Opens a regular file. Fails with `not_found`, `permission_denied`, or `invalid_request` (not a regular
   * file).
   */
  openFile(path: string, signal: AbortSignal): Promise<OpenFile>;

  /**
   * Writes `content` to a new file, which replaces the file at `path` when it is complete. A failure leaves
   * the old file.
   * A symbolic link stays, and its target is replaced. The parent directories must exist. Fails with
   * `not_found`, `permission_denied`, `invalid_request` (`path` is not a file) or `resource_exhausted` (no
   * space, or a limit of the disk).
   */
  writeFile(path: string, options: WriteFileOptions, content: Readable, signal: AbortSignal): Promise<WrittenFile>;

  /**
   * Lists a directory's files by path. Fails with `not_found`, `permission_denied`, `invalid_request` (no
   * directory).
   */
  listFiles(path: string, options: ListFilesOptions, signal: AbortSignal): Promise<FileList>;

  /**
   * Creates a directory. Fails with `already_exists`, `not_found` (no parent) or `permission_denied`.
   * With `recursive`, an existing directory is no error.
   */
  makeDirectory(path: string, options: MakeDirectoryOptions, signal: AbortSignal): Promise<void>;
}

/**
 * Processes of a sandbox that outlive connections and the service. `process` selects one by pid or by tag.
 * All methods fail with `not_found` when it does not exist or has ended. Drivers without such processes fail
 * with `failed_precondition`.
 */
export interface SandboxProcesses {
  /**
   * Starts a process and listens to it. Aborting `signal` ends the listening only, not the process.
   * Fails with `invalid_request` (missing directory, program that cannot be started), `unauthenticated`
   * (unknown user) or `resource_exhausted` (too many processes).
   */
  startProcess(request: StartProcess, signal: AbortSignal): Promise<ProcessStream>;

  /**
   * Listens to a process: its output from now on, and its end. A process that ended less than 30 s ago
   * reports its end at once. Each listener gets everything; a slow one slows the process down.
   */
  attachProcess(process: ProcessSelector, signal: AbortSignal): Promise<ProcessStream>;

  /** Returns the running processes in order of their start, without hidden ones. */
  listProcesses(signal: AbortSignal): Promise<readonly ProcessInfo[]>;

  /**
   * Writes to the standard input, or to the terminal with `isTerminal`. Resolves when the process's pipe has
   * accepted all bytes.
   * Fails with `failed_precondition` when that input does not exist or is closed.
   */
  writeInput(process: ProcessSelector, data: Buffer, isTerminal: boolean, signal: AbortSignal): Promise<void>;

  /**
   * Closes the standard input; closing it again has no effect. Fails with `failed_precondition` when the
   * process has a terminal.
   */
  closeInput(process: ProcessSelector, signal: AbortSignal): Promise<void>;

  /** Signals the process itself, not its children. */
  signalProcess(process: ProcessSelector, name: NodeJS.Signals, signal: AbortSignal): Promise<void>;

  /** Resizes the terminal. Fails with `failed_precondition` when the process has none. */
  resizeProcess(process: ProcessSelector, size: TerminalSize, signal: AbortSignal): Promise<void>;
}

/** The pid that the sandbox sees, or the tag of the start. Of several processes with one tag, the latest. */
export type ProcessSelector = number | { readonly tag: string };

export interface StartProcess {
  readonly argv: readonly string[];
  /** `''`: the home of the user. Relative paths start there. */
  readonly workingDir: string;
  /** Variables to add to the sandbox's environment and to HOME, USER, LOGNAME and PATH of the user. */
  readonly env: Readonly<Record<string, string>>;
  /** Name of an account inside; `''`: the default user of the sandbox. */
  readonly user: string;
  /** The size of a terminal that becomes standard input, output and error; null: pipes. */
  readonly terminal: TerminalSize | null;
  /** Opens a standard input; otherwise it is empty. Without effect with a terminal. */
  readonly stdin: boolean;
  readonly tag?: string | undefined;
  /** The process is killed after this time; 0: never. */
  readonly timeLimitMs: number;
  /** A program of the platform: not listed, and not counted against the limit of processes. */
  readonly hidden?: boolean | undefined;
}

/** A listener of a process. */
export interface ProcessStream {
  readonly pid: number;
  /** Ends with the process, or after `close`. Fails when the connection breaks. May be iterated once. */
  readonly output: AsyncIterable<ProcessOutput>;
  /** Resolves after the last output. Rejects when the end stays unknown, and after `close`. */
  readonly ended: Promise<ProcessEnd>;
  /** Stops listening; the process continues. */
  close(): void;
}

export interface ProcessOutput {
  readonly kind: 'stdout' | 'stderr' | 'terminal';
  readonly data: Buffer;
}

export interface ProcessEnd {
  /** The exit code; null when a signal ended the process. */
  readonly code: number | null;
  /** For example `SIGKILL`; null when the process exited. */
  readonly signal: string | null;
  /** The time limit of the start ended the process. */
  readonly timedOut: boolean;
}

/** A running process; fields of its start are as requested. */
export interface ProcessInfo {
  readonly pid: number;
  readonly argv: readonly string[];
  readonly env: Readonly<Record<string, string>>;
  readonly workingDir: string;
  readonly user: string;
  readonly tag: string | null;
  readonly terminal: boolean;
  readonly startedAtMs: number;
}

export interface OpenExecRequest {
  readonly argv: readonly string[];
  /** The working directory; relative paths start at the sandbox's. `''`: the sandbox's working directory. */
  readonly workingDir: string;
  /** Variables to add to the sandbox's environment. */
  readonly env: Readonly<Record<string, string>>;
  /**
   * The size of a terminal that becomes the command's standard input, output and error; null: three pipes.
   */
  readonly terminal: TerminalSize | null;
}

export interface TerminalSize {
  /** Number of columns, 1 to 65535. */
  readonly columns: number;
  readonly rows: number;
}

/** A running command. */
export interface OpenExec {
  /** The command's input. Ending the stream ends the input; with a terminal that has no effect. */
  readonly stdin: Writable;
  readonly stdout: Readable;
  /** The command's error output. With a terminal the stream ends at once. */
  readonly stderr: Readable;
  /** Resizes the terminal. Has no effect without a terminal, or after the command has ended. */
  resize(size: TerminalSize): void;
  /**
   * Resolves with the return code when the command has ended and its outputs have been read. Signal n gives
   * 128 + n.
   * Rejects when the code is unknown.
   */
  readonly ended: Promise<number>;
  /** Kills the command with its whole process group. */
  kill(): void;
}

export interface WriteFileOptions {
  /** Permission bits; null: those of the replaced file, or 0o644 when there was none. */
  readonly mode: number | null;
}

export interface WrittenFile {
  readonly sizeBytes: number;
}

export interface ListFilesOptions {
  /** Depth of the listing; 1 = the directory's own entries. */
  readonly maxDepth: number;
  /** Maximum number of entries; a longer list is cut, and `truncated` is set. */
  readonly maxEntries: number;
}

export interface FileList {
  readonly entries: readonly FileEntry[];
  readonly truncated: boolean;
}

export interface FileEntry {
  /** Absolute path inside the sandbox. */
  readonly path: string;
  readonly type: 'file' | 'directory' | 'symlink' | 'other';
  readonly sizeBytes: number;
  readonly mode: number;
  readonly modifiedAtMs: number;
}

export interface MakeDirectoryOptions {
  /** Permission bits; null: 0o755. */
  readonly mode: number | null;
  /** Creates missing parents too, and accepts an existing directory. */
  readonly recursive: boolean;
}
