import { open, readdir, rename, rm, stat } from 'node:fs/promises';
import { join } from 'node:path';
import { Readable } from 'node:stream';
import { flushDirectory, streamToFile } from '../lib/file-writes.ts';
import { isAbsent } from '../lib/system-errors.ts';
import type { ObjectStore } from '../object-store/object-store.ts';
import type { Database } from '../storage/database.ts';
import {
  dropLostCodeParts,
  listCodeBlobs,
  putCodePackagePart,
  readCodePackagePart,
} from '../storage/queries/code-packages.ts';
import type { CodePackageTable } from '../storage/schema.ts';
import type { DurableWrites } from '../storage/writes/durable.ts';

export interface CodeBlobsOptions {
  readonly database: Database;
  readonly writes: DurableWrites;
  /** Directory of the archives on a single node without an object store. */
  readonly directory: string;
  /** Object store of replicas, or of a single node that has one. */
  readonly store: ObjectStore | null;
  /** True if other nodes use this database. */
  readonly isShared: boolean;
}

/** Age from which a blob without a record is an orphan; a younger one may be a running upload. */
const ORPHAN_MS = 24 * 3_600_000;
const PART_BYTES = 1024 * 1024;
const OBJECTS = 'code/';

type Blob = Pick<CodePackageTable, 'place' | 'blob'>;

/**
 * Bytes of code packages. Stored in the object store if there is one, else in the database that replicas
 * share, else on this disk.
 */
export class CodeBlobs {
  readonly #options: CodeBlobsOptions;

  constructor(options: CodeBlobsOptions) {
    this.#options = options;
  }

  get place(): CodePackageTable['place'] {
    if (this.#options.store !== null) return 'store';
    return this.#options.isShared ? 'database' : 'disk';
  }

  /** Stores a file. Moves it if the place is the disk; otherwise the caller keeps the file. */
  async put(blob: string, file: string, sha256: string): Promise<void> {
    const { store, writes, directory, isShared } = this.#options;
    if (store !== null) return await store.put(OBJECTS + blob, file, sha256);
    if (!isShared) {
      // The file must be durable before its record.
      await rename(file, this.#pathOf(blob));
      return await flushDirectory(directory);
    }
    const source = await open(file);
    try {
      for (let part = 0; ; part++) {
        const { bytesRead, buffer } = await source.read(Buffer.alloc(PART_BYTES), 0, PART_BYTES, part * PART_BYTES);
        if (bytesRead === 0) return;
        const content = buffer.subarray(0, bytesRead);
        await writes.write(putCodePackagePart, { blob, part, at_ms: Date.now(), content });
      }
    } finally {
      await source.close();
    }
  }

  /**
   * Returns false if the blob was lost with the disk, for example after restoring a backup without it. Blobs
   * in the object store and the database are not checked.
   */
  async has({ place, blob }: Blob): Promise<boolean> {
    if (place !== 'disk') return true;
    return await stat(this.#pathOf(blob)).then(
      () => true,
      (error: unknown) => {
        if (isAbsent(error)) return false;
        throw error;
      },
    );
  }

  /** Returns the path of the archive: on this disk, or `file` after a download. null: it is lost. */
  async get({ place, blob }: Blob, file: string): Promise<string | null> {
    const { store, database } = this.#options;
    if (place === 'disk') {
      const path = this.#pathOf(blob);
      return (await stat(path).catch(() => null)) === null ? null : path;
    }
    const content = place === 'database' ? Readable.from(partsOf(database, blob)) : await store?.get(OBJECTS + blob);
    if (content == null) return null;
    await streamToFile([content], file, { flags: 'wx', mode: 0o600 });
    return file;
  }

  /** Removes a blob. Parts in the database are deleted with their record. */
  async remove({ place, blob }: Blob): Promise<void> {
    if (place === 'disk') await rm(this.#pathOf(blob), { force: true });
    if (place === 'store') await this.#options.store?.remove([OBJECTS + blob]);
  }

  /**
   * Removes blobs without a record, from interrupted uploads and removals. Only one of several nodes may call
   * it.
   */
  async sweep(): Promise<void> {
    const { database, writes, store, directory, isShared } = this.#options;
    const oldestMs = Date.now() - ORPHAN_MS;
    if (isShared && store === null) await writes.write(dropLostCodeParts, oldestMs);
    const isOld = ({ changedAtMs }: { readonly changedAtMs: number }) => changedAtMs < oldestMs;
    const objects = ((await store?.list(OBJECTS)) ?? []).filter(isOld).map(({ key }) => key.slice(OBJECTS.length));
    const files = isShared ? [] : await readdir(directory).catch(() => []);
    if (objects.length + files.length === 0) return;
    // Read the records after the files, because a record is written after its file.
    const known = await listCodeBlobs(database);
    const lost = objects.filter(blob => !known.has(blob));
    if (lost.length > 0) await store?.remove(lost.map(blob => OBJECTS + blob));
    for (const blob of files) {
      const facts = known.has(blob) ? null : await stat(this.#pathOf(blob)).catch(() => null);
      if (facts !== null && facts.mtimeMs < oldestMs) await rm(this.#pathOf(blob), { force: true });
    }
  }

  #pathOf(blob: string): string {
    return join(this.#options.directory, blob);
  }
}

async function* partsOf(database: Database, blob: string): AsyncGenerator<Uint8Array> {
  for (let part = 0; ; part++) {
    const content = await readCodePackagePart(database, blob, part);
    if (content === null) return;
    yield content;
  }
}
