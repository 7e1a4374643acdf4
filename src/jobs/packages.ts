import { randomUUID } from 'node:crypto';
import { createReadStream, createWriteStream } from 'node:fs';
import { mkdir, readdir, rename, rm, stat, utimes } from 'node:fs/promises';
import { join } from 'node:path';
import { type Readable, Transform } from 'node:stream';
import { pipeline } from 'node:stream/promises';
import { invalidRequest, notFound, resourceExhausted, ServiceError, unavailable } from '../core/error.ts';
import { isPackageName } from '../core/runtime-env.ts';
import type { Removals } from '../lib/removals.ts';
import { isDiskFull } from '../lib/system-errors.ts';

export interface PackagesOptions {
  readonly dataDir: string;
  readonly removals: Removals;
  readonly maxBytes: number;
  /** How long a package that no job needs stays after it was last asked for. */
  readonly keepMs: number;
  readonly maxPackagesPerTenant: number;
}

/**
 * Uploaded packages, a file each. Their names say what is in them (the client makes them of the content), but nothing here can check that,
 * so each tenant has its own.
 */
export class Packages {
  readonly #options: PackagesOptions;
  readonly #directory: string;
  readonly #uploads: string;

  constructor(options: PackagesOptions) {
    this.#options = options;
    this.#directory = join(options.dataDir, 'packages');
    this.#uploads = join(this.#directory, '.uploads');
  }

  /** What a server that was killed left half written. */
  async start(): Promise<void> {
    await this.#options.removals.remove(this.#uploads);
    await mkdir(this.#uploads, { recursive: true, mode: 0o700 });
  }

  /** Its path and size, or null; it then stays for `keepMs`. */
  async find(tenant: string, name: string): Promise<{ readonly path: string; readonly bytes: number } | null> {
    const path = this.#pathOf(tenant, name);
    try {
      const now = new Date();
      await utimes(path, now, now);
      return { path, bytes: (await stat(path)).size };
    } catch {
      return null;
    }
  }

  /** Fails with `not_found`. */
  async read(tenant: string, name: string): Promise<Readable> {
    const found = await this.find(tenant, name);
    if (!found) throw notFound(`Package gcs://${name} does not exist`);
    return createReadStream(found.path);
  }

  /** Whole or not at all. Fails with `invalid_request` (too large: `number` 413), `resource_exhausted` or `unavailable`. */
  async write(tenant: string, name: string, content: Readable): Promise<void> {
    const path = this.#pathOf(tenant, name);
    const directory = join(this.#directory, tenant);
    await mkdir(directory, { recursive: true, mode: 0o700 });
    if ((await readdir(directory)).length >= this.#options.maxPackagesPerTenant) {
      throw resourceExhausted(`there are ${this.#options.maxPackagesPerTenant} packages already`, {
        retryAfterSeconds: 60,
      });
    }
    const upload = join(this.#uploads, randomUUID());
    try {
      const { bound, isTooLarge } = bounded(this.#options.maxBytes);
      await pipeline(content, bound, createWriteStream(upload, { flags: 'wx', mode: 0o600, flush: true }));
      if (isTooLarge()) throw this.tooLarge();
      await rename(upload, path);
    } catch (error) {
      await rm(upload, { force: true });
      if (error instanceof ServiceError) throw error;
      throw unavailable(isDiskFull(error) ? 'there is no room for the package' : 'the package could not be stored', {
        cause: error,
      });
    }
  }

  get maxBytes(): number {
    return this.#options.maxBytes;
  }

  /** `number` is the status. */
  tooLarge(): ServiceError {
    return invalidRequest(`the package is larger than ${this.maxBytes} bytes`, { number: 413 });
  }

  /** Removes what nobody needs and nobody has asked for lately. `isNeeded` gets `<tenant>/<name>`. */
  async collect(isNeeded: (key: string) => boolean): Promise<void> {
    const oldestMs = Date.now() - this.#options.keepMs;
    for (const tenant of await namesIn(this.#directory)) {
      if (tenant.startsWith('.')) continue;
      for (const name of await namesIn(join(this.#directory, tenant))) {
        if (isNeeded(`${tenant}/${name}`)) continue;
        const path = join(this.#directory, tenant, name);
        const found = await stat(path).catch(() => null);
        if (found && found.mtimeMs < oldestMs) await rm(path, { force: true });
      }
    }
  }

  #pathOf(tenant: string, name: string): string {
    if (!isPackageName(name)) {
      throw invalidRequest(
        `the name of a package must be 1 to 255 letters, digits or "._+-", got ${JSON.stringify(name.slice(0, 80))}`,
      );
    }
    return join(this.#directory, tenant, name);
  }
}

/** Bytes above the limit are read and dropped: who sends it would otherwise never read why it was refused. */
function bounded(maxBytes: number) {
  let bytes = 0;
  const bound = new Transform({
    transform(chunk: Buffer, _encoding, done) {
      bytes += chunk.length;
      done(null, bytes > maxBytes ? undefined : chunk);
    },
  });
  return { bound, isTooLarge: () => bytes > maxBytes };
}

async function namesIn(directory: string): Promise<readonly string[]> {
  return await readdir(directory).catch(() => []);
}
