import { readdir, readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { messageOf } from '../../core/error.ts';
import { MEBIBYTE } from '../../core/units.ts';
import { execFile } from '../../lib/child-process.ts';
import { Interval } from '../../lib/interval.ts';
import type { Logger } from '../../telemetry/logger.ts';
import type { SandboxSpec } from '../driver.ts';

export interface DiskOptions {
  /** Limit of a sandbox on the host's disk, in MB; 0: no limit. */
  readonly maxMb: number;
  /** Interval between measurements. */
  readonly intervalMs?: number;
}

export const UNBOUNDED_DISK: DiskOptions = { maxMb: 0 };

/** The limit of a sandbox, and the service's directories that it can write to. */
interface DiskOrder {
  readonly maxMb: number;
  readonly places: readonly string[];
}

export interface DiskWatchOptions extends DiskOptions {
  /** The parent of all sandbox directories. */
  readonly instancesDir: string;
  readonly end: (instanceId: string, cause: string) => Promise<void>;
  readonly logger: Logger;
}

const INTERVAL_MS = 10_000;
const MEASURE_TIMEOUT_MS = 60_000;
const ORDER_FILE = 'disk.json';

/**
 * Ends sandboxes that use too much of the host's disk.
 * Most sandboxes use none: their own files are in memory and count as memory. A client's mounts belong to the
 * client. Usage is measured at intervals, so a sandbox may exceed its limit for that long.
 */
export class DiskWatch {
  readonly #options: DiskWatchOptions;
  readonly #orders = new Map<string, DiskOrder>();
  readonly #interval: Interval;

  constructor(options: DiskWatchOptions) {
    this.#options = options;
    this.#interval = new Interval(options.intervalMs ?? INTERVAL_MS, () => this.#round());
    void this.#adopt().finally(() => this.#interval.start());
  }

  /**
   * Watches a sandbox that has just started.
   * Also stores the limit in the sandbox's directory, for a server that adopts the sandbox.
   */
  async add(spec: Pick<SandboxSpec, 'instanceId' | 'command' | 'platformMounts'>): Promise<void> {
    const { maxMb, instancesDir } = this.#options;
    const directory = join(instancesDir, spec.instanceId);
    const places = (spec.platformMounts ?? []).filter(mount => !mount.readonly).map(mount => mount.source);
    // A program may write to the directory of its socket.
    if (spec.command.kind === 'exec') places.push(join(directory, 'sock'));
    if (maxMb === 0 || places.length === 0) return;
    this.#orders.set(spec.instanceId, { maxMb, places });
    await writeFile(join(directory, ORDER_FILE), JSON.stringify({ maxMb, places }), { mode: 0o600 }).catch(
      () => undefined,
    );
  }

  /** Stops watching a sandbox that has ended. */
  drop(instanceId: string): void {
    this.#orders.delete(instanceId);
  }

  close(): void {
    // A running measurement ends by itself and has no side effects.
    void this.#interval.close();
  }

  async #adopt(): Promise<void> {
    const { instancesDir } = this.#options;
    for (const instanceId of await readdir(instancesDir).catch(() => [])) {
      try {
        const order = JSON.parse(await readFile(join(instancesDir, instanceId, ORDER_FILE), 'utf8'));
        if (!this.#orders.has(instanceId)) this.#orders.set(instanceId, order as DiskOrder);
      } catch {
        // The sandbox has nothing on the disk, or is being removed.
      }
    }
  }

  async #round(): Promise<void> {
    for (const [instanceId, { maxMb, places }] of [...this.#orders]) {
      if (this.#interval.isClosed) return;
      try {
        const usedMb = Math.ceil((await diskUsage(places)) / MEBIBYTE);
        if (usedMb <= maxMb || !this.#orders.delete(instanceId)) continue;
        await this.#options.end(instanceId, `it has ${usedMb} MB on disk, more than the ${maxMb} MB of process.diskMb`);
      } catch (error) {
        this.#options.logger.warn({ instanceId, reason: messageOf(error) }, 'cannot measure disk usage of sandbox');
      }
    }
  }
}

/**
 * Returns the bytes on disk that these directories take.
 * Uses `du` in a child process: it handles any depth, follows no links, stays on the file system and keeps
 * the event loop free.
 */
function diskUsage(places: readonly string[]): Promise<number> {
  return new Promise((resolve, reject) => {
    const options = {
      timeout: MEASURE_TIMEOUT_MS,
      killSignal: 'SIGKILL' as const,
      env: { PATH: '/usr/bin:/bin', LC_ALL: 'C' },
    };
    execFile('du', ['-c', '-s', '-x', '-B1', '--', ...places], options, (error, stdout) => {
      // If a file disappears during the run, `du` fails at the end but still prints a sum.
      const total = /^(\d+)\ttotal$/m.exec(stdout)?.[1];
      if (total !== undefined) resolve(Number(total));
      else reject(error ?? new Error('du has said nothing'));
    });
  });
}
