import { randomUUID } from 'node:crypto';
import { basename } from 'node:path/posix';
import { Readable } from 'node:stream';
import type { Connection, RequestOptions } from './connection.ts';
import { RookeryError } from './error.ts';
import type { FileEntry, FileFacts } from './generated.ts';
import { serverEvents } from './server-events.ts';

export interface FileOptions extends RequestOptions {
  /**
   * An account of the sandbox. Relative paths then start at its home, and the rights are those of root
   * inside. Default: the user and the working directory of the agent's code.
   */
  readonly user?: string;
}

export interface WatchOptions extends FileOptions {
  /** Also changes in its directories, also in those that are made later. */
  readonly recursive?: boolean;
  /** Changes have `file` where the file exists. */
  readonly facts?: boolean;
}

/** A change in a watched directory. */
export interface FileChange {
  /** `rename` has the old name; a `create` with the new name follows. */
  readonly type: 'create' | 'write' | 'chmod' | 'remove' | 'rename';
  /** Path below the watched directory. */
  readonly name: string;
  readonly file?: FileFacts;
}

/** Files in the sandbox of an agent. Relative paths start at the sandbox's working directory. */
export class Files {
  readonly #connection: Connection;
  readonly #params: { readonly instanceId: string };

  constructor(connection: Connection, instanceId: string) {
    this.#connection = connection;
    this.#params = { instanceId };
  }

  /** Returns the whole content of a file. */
  async read(path: string, options: RequestOptions = {}): Promise<Buffer> {
    return await this.#connection.bytes('downloadFile', { ...options, params: this.#params, query: { path } });
  }

  /** Returns the content of a file as a stream, for large files. */
  async readStream(path: string, options: RequestOptions = {}): Promise<Readable> {
    return await this.#connection.readable('downloadFile', { ...options, params: this.#params, query: { path } });
  }

  /**
   * Writes a file. The service replaces an existing file atomically after all data has arrived.
   * `mode` has the permission bits in octal (`755`). Default: the bits of the existing file, otherwise `644`.
   * The client does not retry the write of a stream.
   */
  async write(
    path: string,
    data: string | Uint8Array | Readable,
    { mode, ...options }: RequestOptions & { readonly mode?: string } = {},
  ): Promise<void> {
    const boundary = `rookery-${randomUUID()}`;
    const field = (name: string, value: string) =>
      `--${boundary}\r\nContent-Disposition: form-data; name="${name}"\r\n\r\n${value}\r\n`;
    const fileName = basename(path).replaceAll(/["\r\n]/g, '_') || 'file';
    const head = Buffer.from(
      `${field('path', path)}${mode === undefined ? '' : field('mode', mode)}--${boundary}\r\n` +
        `Content-Disposition: form-data; name="file"; filename="${fileName}"\r\nContent-Type: application/octet-stream\r\n\r\n`,
    );
    const tail = Buffer.from(`\r\n--${boundary}--\r\n`);
    const isStream = data instanceof Readable;
    const whole = async function* () {
      yield head;
      if (isStream) yield* data;
      yield tail;
    };
    await this.#connection.call('uploadFile', {
      ...options,
      params: this.#params,
      content: {
        type: `multipart/form-data; boundary=${boundary}`,
        data: isStream ? () => Readable.from(whole()) : Buffer.concat([head, Buffer.from(data), tail]),
      },
      // A stream can be read only once.
      mayRepeat: !isStream,
      isUnbounded: true,
    });
  }

  /**
   * Lists a directory, ordered by path. With `recursive` the list includes subdirectories down to `maxDepth`
   * levels (default and maximum: 64). Symbolic links are not followed.
   */
  async list(
    path: string,
    {
      recursive,
      maxDepth,
      ...options
    }: RequestOptions & { readonly recursive?: boolean; readonly maxDepth?: number } = {},
  ): Promise<FileEntry[]> {
    const query = { path, recursive, max_depth: maxDepth };
    const { files } = await this.#connection.call('listFiles', { ...options, params: this.#params, query });
    return files;
  }

  /**
   * Creates a directory and its parents. Succeeds if the directory exists. `mode` has the permission bits of
   * a new directory in octal, by default `755`.
   */
  async makeDirectory(
    path: string,
    { mode, ...options }: RequestOptions & { readonly mode?: string } = {},
  ): Promise<void> {
    const query = { path, recursive: true, mode };
    await this.#connection.call('makeDirectory', { ...options, params: this.#params, query, mayRepeat: true });
  }

  /**
   * Returns the type, size, mode, time and owner of a file or directory. Does not follow a symbolic link at
   * the end of `path`. Fails with status 404 if nothing exists there.
   */
  async stat(path: string, { user, ...options }: FileOptions = {}): Promise<FileFacts> {
    const query = { path, user };
    return (await this.#connection.call('statFile', { ...options, params: this.#params, query })).file;
  }

  /** Returns true if a file, directory or symbolic link exists at `path`. */
  async exists(path: string, options: FileOptions = {}): Promise<boolean> {
    try {
      await this.stat(path, options);
      return true;
    } catch (error) {
      if (!(error instanceof RookeryError) || error.status !== 404) throw error;
    }
    // The status is 404 without the agent, too.
    const { user: _, ...request } = options;
    await this.#connection.call('getAgent', { ...request, params: this.#params });
    return false;
  }

  /**
   * Renames a file or directory and returns its new facts. Makes missing directories of the new path, and
   * replaces a file there.
   */
  async rename(from: string, to: string, { user, ...options }: FileOptions = {}): Promise<FileFacts> {
    const query = { from, to, user };
    return (await this.#connection.call('renameFile', { ...options, params: this.#params, query })).file;
  }

  /** Removes a file, or a directory with all that is in it. Succeeds if nothing exists at `path`. */
  async remove(path: string, { user, ...options }: FileOptions = {}): Promise<void> {
    await this.#connection.call('removeFile', { ...options, params: this.#params, query: { path, user } });
  }

  /**
   * Starts to watch a directory, and resolves when every further change is noticed. The watch ends with
   * `close`, `signal`, or the end of an iteration over it.
   */
  async watch(path: string, { recursive, facts, user, ...options }: WatchOptions = {}): Promise<FileWatch> {
    const query = { path, recursive, facts, user };
    const answer = await this.#connection.readable('watchFiles', {
      ...options,
      params: this.#params,
      query,
      headers: { accept: 'text/event-stream' },
      isUnbounded: true,
    });
    return new FileWatch(answer);
  }
}

/** The changes in a directory. */
export class FileWatch implements AsyncIterable<FileChange> {
  readonly #answer: Readable;
  #isClosed = false;

  /** @internal */
  constructor(answer: Readable) {
    this.#answer = answer;
  }

  /**
   * Yields the changes until the service ends the watch or it is closed. Fails with `RookeryError` if the
   * connection breaks, or with the reason if the sandbox ends the watch.
   */
  async *[Symbol.asyncIterator](): AsyncGenerator<FileChange> {
    try {
      for await (const { type, data } of serverEvents(this.#answer)) {
        const change = JSON.parse(data);
        if (type === 'error') throw new RookeryError(`the watch ended: ${change.message}`);
        yield change;
      }
    } catch (error) {
      if (!this.#isClosed) throw error;
    }
  }

  /** Ends the watch. */
  close(): void {
    this.#isClosed = true;
    this.#answer.destroy();
  }

  [Symbol.dispose](): void {
    this.close();
  }
}
