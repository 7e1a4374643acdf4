import { open, readdir, rename, rm, stat } from 'node:fs/promises';
import { join } from 'node:path';
import { Readable } from 'node:stream';
import { flushDirectory } from '../../lib/flush.ts';
import { streamToFile } from '../../lib/stream-to-file.ts';
import { isAbsent } from '../../lib/system-errors.ts';
import {
  type CodePackageTable,
  dropLostCodeParts,
  listCodeBlobs,
  putCodePackagePart,
  readCodePackagePart,
} from '../../storage/code-packages.ts';
import type { Database } from '../../storage/database.ts';
import type { DurableWrites } from '../../storage/durable.ts';
import type { ObjectStore } from '../../storage/object-store.ts';

export interface CodeBlobsOptions {
  readonly database: Database;
  readonly writes: DurableWrites;
  /** Where the archives of an only node are. */
  readonly directory: string;
  /** Of replicas, and of an only node that has one. */
  readonly store: ObjectStore | null;
  /** Other nodes use this database. */
  readonly isShared: boolean;
}

/** A blob without a row that is younger may be an upload that goes on. */
const ORPHAN_MS = 24 * 3_600_000;
const PART_BYTES = 1024 * 1024;
const OBJECTS = 'code/';

type Blob = Pick<CodePackageTable, 'place' | 'blob'>;

/** The bytes of code packages: in the object store when there is one, else in the database that replicas share, else on this disk. */
export class CodeBlobs {
  readonly #options: CodeBlobsOptions;

  constructor(options: CodeBlobsOptions) {
    this.#options = options;
  }

  get place(): CodePackageTable['place'] {
    if (this.#options.store !== null) return 'store';
    return this.#options.isShared ? 'database' : 'disk';
  }

  /** Takes the file over when its place is the disk; else it stays the caller's. */
  async put(blob: string, file: string, sha256: string): Promise<void> {
    const { store, writes, directory, isShared } = this.#options;
    if (store !== null) return await store.put(OBJECTS + blob, file, sha256);
    if (!isShared) {
      // Before its row is.
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

  /** False: it was lost with the disk, as after a backup without it. Whoever keeps the others is not asked. */
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

  /** The archive: where it is on this disk, or fetched into `file`. Null when it is nowhere. */
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

  /** Parts in the database go with their row. */
  async remove({ place, blob }: Blob): Promise<void> {
    if (place === 'disk') await rm(this.#pathOf(blob), { force: true });
    if (place === 'store') await this.#options.store?.remove([OBJECTS + blob]);
  }

  /** Removes what no row names: of uploads and removals that were cut off. For one node of several. */
  async sweep(): Promise<void> {
    const { database, writes, store, directory, isShared } = this.#options;
    const oldestMs = Date.now() - ORPHAN_MS;
    if (isShared && store === null) await writes.write(dropLostCodeParts, oldestMs);
    const isOld = ({ changedAtMs }: { readonly changedAtMs: number }) => changedAtMs < oldestMs;
    const objects = ((await store?.list(OBJECTS)) ?? []).filter(isOld).map(({ key }) => key.slice(OBJECTS.length));
    const files = isShared ? [] : await readdir(directory).catch(() => []);
    if (objects.length + files.length === 0) return;
    // Looked at after the files: a row comes after its file.
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
