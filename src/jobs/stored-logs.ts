import { join } from 'node:path';
import type { ObjectStore } from '../object-store/object-store.ts';
import type { LogPart } from './log-parts.ts';

const OBJECTS = 'logs/';
const ORPHAN_MS = 24 * 3_600_000;

/** Stores logs of jobs in the object store, under the names of their files. Every node can read them. */
export class StoredLogs {
  readonly #store: ObjectStore;

  constructor(store: ObjectStore) {
    this.#store = store;
  }

  /** Uploads these files of a job, and overwrites existing objects. */
  async upload(sequence: number, directory: string, names: readonly string[]): Promise<void> {
    for (const name of names) await this.#store.put(keyOf(sequence, name), join(directory, name));
  }

  /** Returns the parts of a job's log by their names. */
  async parts(sequence: number): Promise<ReadonlyMap<string, LogPart>> {
    const prefix = keyOf(sequence, '');
    const objects = await this.#store.list(prefix);
    return new Map(
      objects.map(({ key, bytes }) => [
        key.slice(prefix.length),
        { bytes, read: start => this.#read(key, bytes, start) },
      ]),
    );
  }

  async remove(sequence: number): Promise<void> {
    const objects = await this.#store.list(keyOf(sequence, ''));
    await this.#store.remove(objects.map(({ key }) => key));
  }

  /** Removes the logs of unknown jobs that are older than a day. `known` returns which sequences exist. */
  async sweep(known: (sequences: readonly number[]) => Promise<ReadonlySet<number>>): Promise<void> {
    const oldestMs = Date.now() - ORPHAN_MS;
    const old = (await this.#store.list(OBJECTS)).filter(({ changedAtMs }) => changedAtMs < oldestMs);
    const sequenceOf = (key: string) => Number(key.slice(OBJECTS.length).split('/')[0]);
    const there = await known([...new Set(old.map(({ key }) => sequenceOf(key)))]);
    await this.#store.remove(old.map(({ key }) => key).filter(key => !there.has(sequenceOf(key))));
  }

  async *#read(key: string, bytes: number, start: number): AsyncIterable<Buffer> {
    // The object store answers a range behind the end with an error.
    if (start >= bytes) return;
    const content = await this.#store.get(key, start);
    if (content !== null) yield* content as AsyncIterable<Buffer>;
  }
}

function keyOf(sequence: number, name: string): string {
  return `${OBJECTS}${sequence}/${name}`;
}
