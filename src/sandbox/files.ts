import type { Readable } from 'node:stream';

/**
 * File operations for an account of the sandbox. `SandboxAccess` contains them.
 *
 * `user` of the options selects rights, home and owner:
 *
 * | `user` | Rights | Relative paths start at | Owner of new entries |
 * |---|---|---|---|
 * | null | those of the sandbox's own user | the sandbox's working directory | that user |
 * | `''` | those of the sandbox's root | the home of the default account | the default account |
 * | a name | those of the sandbox's root | the home of that account | that account |
 *
 * With an account, `''` and `~` are its home, and `~/x` is below it. Other paths that begin with `~` fail
 * with `invalid_request`. A sandbox without accounts of its own accepts `''` and the name of its user, with
 * the rights of that user.
 *
 * Paths and links are resolved inside the sandbox. In addition to the errors of `SandboxAccess`, all
 * operations fail with `unauthenticated` (no such account), `not_found`, `permission_denied` or
 * `invalid_request` (the entry has the wrong type, or the path cannot name one).
 */
export interface SandboxFiles {
  /** Returns the facts of an entry. Does not follow a link at the end of `path`. */
  statFile(path: string, options: FileAccount, signal: AbortSignal): Promise<FileFacts>;

  /**
   * Opens a file, also one of `/proc` whose size is unknown. Fails with `invalid_request` when the entry is
   * not a regular file.
   */
  readFile(path: string, options: FileAccount, signal: AbortSignal): Promise<OpenFile>;

  /**
   * Writes `content` to the file at `path` in place. An existing file keeps its inode and mode and gets the
   * account as its owner; a failure leaves what was written until then. Creates missing parents, which belong
   * to the account. A watcher of a new file sees `create`, `chmod`, `write`.
   * Consumes or destroys `content`. Fails with `resource_exhausted` when there is no space.
   */
  writeInPlace(path: string, options: WriteInPlaceOptions, content: Readable, signal: AbortSignal): Promise<FileFacts>;

  /**
   * Lists a directory depth-first, parents before children and names in byte order. Follows a link only at
   * `path` itself; the listed paths are below `path` as given. Fails with `invalid_request` (no directory).
   */
  listTree(path: string, options: ListTreeOptions, signal: AbortSignal): Promise<FileTree>;

  /**
   * Creates a directory with mode 0o755 and its missing parents. Fails with `already_exists` (a directory
   * exists) or `invalid_request` (another entry exists).
   */
  createDirectory(path: string, options: FileAccount, signal: AbortSignal): Promise<FileFacts>;

  /**
   * Renames an entry and returns its new facts. Creates missing parents of `to` and replaces a file there.
   * Fails with `failed_precondition` between file systems.
   */
  renameFile(from: string, to: string, options: FileAccount, signal: AbortSignal): Promise<FileFacts>;

  /** Removes an entry with everything below it. Succeeds when nothing exists at `path`. Follows no link. */
  removeFile(path: string, options: FileAccount, signal: AbortSignal): Promise<void>;

  /**
   * Reports changes below a directory from now on. Fails with `invalid_request` (no directory) and
   * `resource_exhausted` (too many watches or directories).
   */
  watchDirectory(path: string, options: WatchOptions, signal: AbortSignal): Promise<DirectoryWatch>;
}

export interface OpenFile {
  readonly sizeBytes: number;
  readonly modifiedAtMs: number;
  /** Permission bits, for example `0o644`. */
  readonly mode: number;
  /**
   * Reads the bytes from `start` up to, not including, `end`. May be called once.
   * The bytes come from the file that was opened, even when `path` has been replaced since.
   */
  read(start: number, end: number): Readable;
  /** Closes the file without reading. */
  close(): void;
}

export interface FileAccount {
  readonly user: string | null;
}

export interface WriteInPlaceOptions extends FileAccount {
  /**
   * Replaces all metadata of the file. Keys and values are printable ASCII; a key has up to 246 bytes. null:
   * the metadata stay. Fails with `failed_precondition` when the file system stores none.
   */
  readonly metadata: Readonly<Record<string, string>> | null;
}

export interface ListTreeOptions extends FileAccount {
  /** Depth of the listing; 1 = the directory's own entries. */
  readonly maxDepth: number;
  /** Maximum number of entries; a longer list is cut, and `truncated` is set. */
  readonly maxEntries: number;
}

export interface FileTree {
  readonly entries: readonly FileFacts[];
  readonly truncated: boolean;
}

export type FileType = 'file' | 'directory' | 'symlink' | 'other';

/** Facts of one entry. A link has its own facts, and those of its target in `target`. */
export interface FileFacts {
  /** Absolute path inside the sandbox, without `.`, `..` and empty parts. */
  readonly path: string;
  readonly type: FileType;
  readonly sizeBytes: number;
  /** Permission bits, for example `0o644`. */
  readonly mode: number;
  readonly modifiedAtMs: number;
  /** Name of the owner in the sandbox, or its number in decimal digits. */
  readonly owner: string;
  readonly group: string;
  readonly metadata: Readonly<Record<string, string>>;
  /** The target of a symbolic link; null for other types. */
  readonly target: LinkTarget | null;
}

export interface LinkTarget {
  /** Absolute path with all links resolved. For a target that does not exist: the text of the link. */
  readonly path: string;
  /** null: the target does not exist. */
  readonly type: FileType | null;
  readonly mode: number;
  readonly sizeBytes: number;
}

export interface WatchOptions extends FileAccount {
  /** Also reports changes in directories below, including those that are created later. */
  readonly recursive: boolean;
  /** Adds the facts of the entry to `create`, `write` and `chmod`. */
  readonly withFacts: boolean;
}

export interface WatchEvent {
  /** `rename` reports the old name; `create` reports the new one. */
  readonly type: 'create' | 'write' | 'remove' | 'rename' | 'chmod';
  /** Path of the entry relative to the watched directory. */
  readonly name: string;
  /** Absent without `withFacts`, and when the entry no longer exists. */
  readonly facts?: FileFacts;
}

/**
 * A watched directory. Iterating yields the events until `close`, or throws the reason why the watch ended.
 * The watch queues a bounded number of events, then it stops reading. When the sandbox itself loses events
 * because nothing takes them, the watch fails with `resource_exhausted`.
 */
export interface DirectoryWatch extends AsyncIterable<WatchEvent> {
  /** Removes and returns the queued events. Without one, throws the reason of the end if the watch failed. */
  drain(): WatchEvent[];
  /**
   * Resolves when all events of changes that happened before this call are queued, or the queue is full.
   * Rejects with the reason of the end.
   */
  flush(): Promise<void>;
  /** Resolves with the reason why the watch ended; null after `close`. */
  readonly ended: Promise<Error | null>;
  close(): void;
}
