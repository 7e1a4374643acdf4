import { randomUUID } from 'node:crypto';
import { basename } from 'node:path/posix';
import { Readable } from 'node:stream';
import type { Connection, RequestOptions } from './connection.ts';
import type { FileEntry } from './generated.ts';

/** Files inside of a sandbox. A relative path begins at its working directory. */
export class Files {
  readonly #connection: Connection;
  readonly #params: { readonly instanceId: string };

  constructor(connection: Connection, instanceId: string) {
    this.#connection = connection;
    this.#params = { instanceId };
  }

  async read(path: string, options: RequestOptions = {}): Promise<Buffer> {
    return await this.#connection.bytes('downloadFile', { ...options, params: this.#params, query: { path } });
  }

  /** As it comes, for what is large. */
  async readStream(path: string, options: RequestOptions = {}): Promise<Readable> {
    return await this.#connection.readable('downloadFile', { ...options, params: this.#params, query: { path } });
  }

  /** Replaces the file at once when all of it is there. `mode` is octal: `755`. */
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
      // A stream can be read once.
      mayRepeat: !isStream,
      isUnbounded: true,
    });
  }

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

  /** Makes a directory and its parents; one that is there is fine. */
  async makeDirectory(path: string, options: RequestOptions = {}): Promise<void> {
    const query = { path, recursive: true };
    await this.#connection.call('makeDirectory', { ...options, params: this.#params, query, mayRepeat: true });
  }
}
