import { resourceExhausted, ServiceError } from '../core/error.ts';
import { execFile } from './child-process.ts';
import { Counter } from './counter.ts';

/** Files on the disk of this node that the code of a tenant uses. */
interface Item {
  readonly tenant: string;
  readonly bytes: number;
  readonly users: Set<string>;
}

/** Reads the bytes that a tenant has stored, used or not. */
export type ReadStored = (tenant: string) => Promise<number>;

/**
 * Bounds the disk space that each tenant's code takes on this node. Counts stored packages, and copies,
 * objects, layers and files of jobs while they are in use.
 */
export class TenantDisk {
  readonly maxBytes: number;
  readonly #stored: ReadStored[] = [];
  readonly #items = new Map<string, Item>();
  readonly #usedBytes = new Counter();
  /** The last reservation of each tenant; each one waits for the previous one. */
  readonly #reserving = new Map<string, Promise<void>>();

  constructor(maxBytes: number) {
    this.maxBytes = maxBytes;
  }

  /** Adds a kind of stored data to the count. */
  countStored(read: ReadStored): void {
    this.#stored.push(read);
  }

  /** Fails with `resource_exhausted` when the tenant has less capacity left than `bytes`. */
  async assertFits(tenant: string, bytes: number): Promise<void> {
    const stored = await Promise.all(this.#stored.map(read => read(tenant)));
    const total = stored.reduce((sum, each) => sum + each, bytes + this.#usedBytes.get(tenant));
    if (total > this.maxBytes) throw this.noRoom(total);
  }

  noRoom(bytes?: number): Error {
    const wanted = bytes === undefined ? '' : `, not ${bytes}`;
    return resourceExhausted(
      `the code of a tenant may take ${this.maxBytes} bytes of disk together, packed and unpacked, with its dependencies${wanted} (setting code.tenantMb): delete some`,
      { retryAfterSeconds: 60 },
    );
  }

  /**
   * Counts an item once while it has users; `measure` reads its bytes when it has none yet. Fails with
   * `resource_exhausted` and counts nothing when it does not fit.
   */
  async acquire(tenant: string, item: string, user: string, measure: () => Promise<number>): Promise<void> {
    if (!this.#items.has(item)) {
      const bytes = await measure();
      await this.#alone(tenant, async () => {
        if (this.#items.has(item)) return;
        await this.assertFits(tenant, bytes);
        this.#items.set(item, { tenant, bytes, users: new Set() });
        this.#usedBytes.add(tenant, bytes);
      });
    }
    this.#items.get(item)?.users.add(user);
  }

  /** Runs `work` alone for a tenant: two items that only fit one by one must not both pass. */
  async #alone(tenant: string, work: () => Promise<void>): Promise<void> {
    const before = this.#reserving.get(tenant) ?? Promise.resolve();
    const done = before.then(work);
    const settled = done.catch(() => undefined);
    this.#reserving.set(tenant, settled);
    try {
      await done;
    } finally {
      if (this.#reserving.get(tenant) === settled) this.#reserving.delete(tenant);
    }
  }

  release(item: string, user: string): void {
    const held = this.#items.get(item);
    if (held === undefined || !held.users.delete(user) || held.users.size > 0) return;
    this.#items.delete(item);
    this.#usedBytes.add(held.tenant, -held.bytes);
  }
}

const MEASURE_TIMEOUT_MS = 120_000;

/**
 * Measures the disk space of a directory in bytes. Uses `du`, which handles any depth and follows no link.
 */
export function diskUsage(path: string): Promise<number> {
  return new Promise((resolve, reject) => {
    const env = { PATH: '/usr/bin:/bin', LC_ALL: 'C' };
    execFile('du', ['-s', '-x', '-B1', '--', path], { timeout: MEASURE_TIMEOUT_MS, env }, (error, stdout) => {
      const bytes = /^(\d+)\t/.exec(stdout)?.[1];
      if (bytes !== undefined) resolve(Number(bytes));
      else reject(error ?? new ServiceError('internal', 'du has said nothing'));
    });
  });
}
