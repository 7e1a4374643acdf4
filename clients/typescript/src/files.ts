import { randomUUID } from 'node:crypto';
import { basename } from 'node:path/posix';
import { Readable } from 'node:stream';
import type { Connection, RequestOptions } from './connection.ts';
import type { FileEntry } from './generated.ts';

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

  /** Creates a directory and its parents. Succeeds if the directory exists. */
  async makeDirectory(path: string, options: RequestOptions = {}): Promise<void> {
    const query = { path, recursive: true };
    await this.#connection.call('makeDirectory', { ...options, params: this.#params, query, mayRepeat: true });
  }
}
