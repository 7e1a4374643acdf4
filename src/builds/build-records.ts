import { createReadStream } from 'node:fs';
import { appendFile, mkdir, readdir, readFile, rename, rm, stat, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { notFound } from '../core/error.ts';
import type { LogRequest } from '../sandbox/driver.ts';

export type BuildStatus = 'BUILDING' | 'READY' | 'FAILED';

/** Record of the build of one layer; the id is the key of the layer. */
export interface BuildRecord {
  readonly id: string;
  readonly tenant: string;
  readonly tool: string;
  readonly runtime: string;
  readonly status: BuildStatus;
  /** Reason of a failure; `''` otherwise. */
  readonly reason: string;
  readonly startedAtMs: number;
  /** 0 while the build runs. */
  readonly endedAtMs: number;
}

interface Going {
  record: BuildRecord;
  bytes: number;
  readonly waiting: Set<() => void>;
}

const MAX_LOG_BYTES = 1024 * 1024;
const CUT = Buffer.from('\n… the log is cut off here\n');

/** Running and past builds, each with its output. The next build of the same layer replaces a record. */
export class BuildRecords {
  readonly #directory: string;
  readonly #going = new Map<string, Going>();

  constructor(directory: string) {
    this.#directory = directory;
  }

  async start(): Promise<void> {
    await mkdir(this.#directory, { recursive: true, mode: 0o700 });
  }

  async addBuild(record: Pick<BuildRecord, 'id' | 'tenant' | 'tool' | 'runtime'>): Promise<void> {
    const whole = { ...record, status: 'BUILDING', reason: '', startedAtMs: Date.now(), endedAtMs: 0 } as const;
    this.#going.set(record.id, { record: whole, bytes: 0, waiting: new Set() });
    await writeFile(this.#log(record.id), '', { mode: 0o600 });
  }

  /** Appends output. Calls for the same build must not overlap. */
  async say(id: string, text: Buffer | string): Promise<void> {
    const going = this.#going.get(id);
    if (going === undefined || going.bytes >= MAX_LOG_BYTES) return;
    const chunk = Buffer.from(text);
    going.bytes += chunk.length;
    await appendFile(this.#log(id), going.bytes >= MAX_LOG_BYTES ? Buffer.concat([chunk, CUT]) : chunk);
    this.#wake(going);
  }

  /** Records the end of a build. `reason` null: success. */
  async end(id: string, reason: string | null): Promise<void> {
    const going = this.#going.get(id);
    if (going === undefined) return;
    const ended = {
      status: reason === null ? 'READY' : 'FAILED',
      reason: reason ?? '',
      endedAtMs: Date.now(),
    } as const;
    going.record = { ...going.record, ...ended };
    try {
      await this.#write(going.record);
    } finally {
      this.#going.delete(id);
      this.#wake(going);
    }
  }

  /** Records that the layer exists. A server that died, or a full disk, may have prevented the record. */
  async ready(record: Pick<BuildRecord, 'id' | 'tenant' | 'tool' | 'runtime'>): Promise<void> {
    if (this.#going.has(record.id) || (await this.#read(record.id))?.status === 'READY') return;
    const now = Date.now();
    await appendFile(this.#log(record.id), '', { mode: 0o600 });
    await this.#write({ ...record, status: 'READY', reason: '', startedAtMs: now, endedAtMs: now });
  }

  /** Returns a build. Fails with `not_found`. */
  async get(tenant: string, id: string): Promise<BuildRecord> {
    const record = /^[0-9a-f]{40}$/.test(id) ? (this.#going.get(id)?.record ?? (await this.#read(id))) : null;
    if (record?.tenant !== tenant) throw notFound(`build not found: ${id.slice(0, 80)}`);
    return record;
  }

  /** Returns the builds of a tenant, newest first. */
  async list(tenant: string, limit: number): Promise<readonly BuildRecord[]> {
    const going = [...this.#going.values()].map(({ record }) => record);
    const names = (await readdir(this.#directory).catch(() => [])).filter(name => name.endsWith('.json'));
    const ended = [];
    for (const name of names) {
      const id = name.slice(0, -'.json'.length);
      const record = this.#going.has(id) ? null : await this.#read(id);
      if (record !== null) ended.push(record);
    }
    return [...going, ...ended]
      .filter(record => record.tenant === tenant)
      .sort((a, b) => b.startedAtMs - a.startedAtMs)
      .slice(0, limit);
  }

  /** Yields the output of a build. Fails with `not_found`. */
  async logs(
    tenant: string,
    id: string,
    { tail, follow }: LogRequest,
    signal: AbortSignal,
  ): Promise<AsyncIterable<Buffer>> {
    await this.get(tenant, id);
    return this.#lines(id, tail, follow, signal);
  }

  /** Removes records that are older than `beforeMs` and whose layer is removed. */
  async collect(beforeMs: number, isThere: (id: string) => Promise<boolean>): Promise<void> {
    for (const name of await readdir(this.#directory).catch(() => [])) {
      const [id = ''] = name.split('.');
      const facts = await stat(join(this.#directory, name)).catch(() => null);
      if (facts === null || facts.mtimeMs >= beforeMs || this.#going.has(id) || (await isThere(id))) continue;
      await rm(join(this.#directory, name), { force: true });
    }
  }

  async *#lines(id: string, tail: number | null, follow: boolean, signal: AbortSignal): AsyncGenerator<Buffer> {
    const file = this.#log(id);
    let at = tail === null ? 0 : await startOfTail(file, tail);
    for (;;) {
      const going = this.#going.get(id);
      // Subscribe before reading, so that output in between is not missed.
      const more = going === undefined ? null : waitFor(going.waiting, signal);
      try {
        for await (const chunk of createReadStream(file, { start: at, signal })) {
          at += (chunk as Buffer).length;
          yield chunk as Buffer;
        }
      } catch (error) {
        if (signal.aborted) return;
        throw error;
      }
      if (!follow || more === null) return;
      await more;
      if (signal.aborted) return;
    }
  }

  #wake({ waiting }: Going): void {
    for (const wake of [...waiting]) wake();
  }

  async #write(record: BuildRecord): Promise<void> {
    const file = this.#facts(record.id);
    await writeFile(`${file}.new`, JSON.stringify(record), { mode: 0o600 });
    await rename(`${file}.new`, file);
  }

  async #read(id: string): Promise<BuildRecord | null> {
    try {
      return JSON.parse(await readFile(this.#facts(id), 'utf8')) as BuildRecord;
    } catch {
      // The file is missing, or empty after a power cut.
      return null;
    }
  }

  #log(id: string): string {
    return join(this.#directory, `${id}.log`);
  }

  #facts(id: string): string {
    return join(this.#directory, `${id}.json`);
  }
}

function waitFor(waiting: Set<() => void>, signal: AbortSignal): Promise<void> {
  return new Promise(resolve => {
    const wake = () => {
      waiting.delete(wake);
      signal.removeEventListener('abort', wake);
      resolve();
    };
    waiting.add(wake);
    signal.addEventListener('abort', wake);
    if (signal.aborted) wake();
  });
}

/** Returns the offset of the last `lines` lines. A log is small enough to be read as a whole. */
async function startOfTail(file: string, lines: number): Promise<number> {
  const content = await readFile(file);
  let at = content.length;
  // Stop at the first byte: a negative position would count from the end.
  for (let left = lines; left > 0 && at > 0; left--) at = at === 1 ? 0 : content.lastIndexOf(0x0a, at - 2) + 1;
  return at;
}
