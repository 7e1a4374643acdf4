import { createReadStream } from 'node:fs';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { codeDirectory, type Packed, packDirectory } from './code-archive.ts';
import type { Connection, RequestOptions } from './connection.ts';
import { RookeryError } from './error.ts';
import type { CodePackage } from './generated.ts';

/** Manages code packages: uploaded directories, each named by the SHA-256 of its archive. */
export class Code {
  readonly #connection: Connection;

  constructor(connection: Connection) {
    this.#connection = connection;
  }

  /** Packs a directory, uploads it unless the service has it, and returns its name, `code://<sha256>`. */
  async upload(directory: string, options: RequestOptions = {}): Promise<string> {
    const { sha256 } = await packed(directory, 'kept', async ({ sha256, bytes }, archive) => {
      if (await exists(this.#connection.call('getCode', { ...options, params: { sha256 } }))) return;
      await this.#connection.call('putCode', {
        ...options,
        params: { sha256 },
        content: { type: 'application/octet-stream', data: () => createReadStream(archive), bytes },
        isUnbounded: true,
      });
    });
    return `code://${sha256}`;
  }

  /**
   * Packs a working directory of jobs, uploads it unless the service has it, and returns its URI, `gcs://…`.
   * Jobs use their own kind of package, in which symbolic links are followed.
   */
  async uploadWorkingDirectory(directory: string, options: RequestOptions = {}): Promise<string> {
    const nameOf = ({ contentSha256 }: Packed) => `_rookery_pkg_${contentSha256.slice(0, 40)}.tar.gz`;
    const found = await packed(directory, 'followed', async (what, archive) => {
      const params = { protocol: 'gcs', name: nameOf(what) };
      if (await exists(this.#connection.bytes('getPackage', { ...options, params }))) return;
      await this.#connection.bytes('putPackage', {
        ...options,
        params,
        content: { type: 'application/octet-stream', data: () => createReadStream(archive), bytes: what.bytes },
        isUnbounded: true,
      });
    });
    return `gcs://${nameOf(found)}`;
  }

  /** Yields all code packages. Each page is requested when it is needed. */
  async *list(options: RequestOptions = {}): AsyncGenerator<CodePackage> {
    let cursor: string | undefined;
    do {
      const page = await this.#connection.call('listCode', { ...options, query: { cursor } });
      yield* page.packages;
      cursor = page.next_cursor ?? undefined;
    } while (cursor);
  }

  /** Deletes a code package. Fails while any resource refers to the package. */
  async delete(sha256: string, options: RequestOptions = {}): Promise<void> {
    await this.#connection.call('deleteCode', { ...options, params: { sha256 } });
  }
}

async function packed(
  code: string,
  links: 'kept' | 'followed',
  act: (packed: Packed, archive: string) => Promise<void>,
): Promise<Packed> {
  const directory = await codeDirectory(code, 'code');
  const work = await mkdtemp(join(tmpdir(), 'rookery-code-'));
  try {
    const archive = join(work, 'code.tar.gz');
    const found = await packDirectory(directory, archive, { flag: 'code', links });
    for (const warning of found.warnings) process.emitWarning(warning, 'RookeryWarning');
    await act(found, archive);
    return found;
  } finally {
    await rm(work, { recursive: true, force: true });
  }
}

async function exists(asked: Promise<unknown>): Promise<boolean> {
  try {
    await asked;
    return true;
  } catch (error) {
    if (error instanceof RookeryError && (error.status === 404 || error.message.includes('does not exist'))) {
      return false;
    }
    throw error;
  }
}
