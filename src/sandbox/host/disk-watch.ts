import { readdir, readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { messageOf } from '../../core/error.ts';
import { execFile } from '../../lib/child-process.ts';
import { Rounds } from '../../lib/rounds.ts';
import type { Logger } from '../../telemetry/logger.ts';
import type { SandboxSpec } from '../driver.ts';

export interface DiskOptions {
  /** What one sandbox may have on the host's disk; 0: as much as there is. */
  readonly maxMb: number;
  /** Between two measurements. */
  readonly intervalMs?: number;
}

export const UNBOUNDED_DISK: DiskOptions = { maxMb: 0 };

/** Of one sandbox: directories of the service that it can write to. */
interface DiskOrder {
  readonly maxMb: number;
  readonly places: readonly string[];
}

export interface DiskWatchOptions extends DiskOptions {
  /** Where sandboxes have their directories. */
  readonly instancesDir: string;
  readonly end: (instanceId: string, cause: string) => Promise<void>;
  readonly logger: Logger;
}

const INTERVAL_MS = 10_000;
const MEASURE_TIMEOUT_MS = 60_000;
const MEBIBYTE = 1024 * 1024;
const ORDER_FILE = 'disk.json';

/**
 * Ends sandboxes that have too much on the host's disk. Most have nothing there: their own files are in memory and counted as that, and what
 * the caller has mounted is the caller's. It is measured now and then, so that a sandbox may be over its bound for that long.
 */
export class DiskWatch {
  readonly #options: DiskWatchOptions;
  readonly #orders = new Map<string, DiskOrder>();
  readonly #rounds: Rounds;

  constructor(options: DiskWatchOptions) {
    this.#options = options;
    this.#rounds = new Rounds(options.intervalMs ?? INTERVAL_MS, () => this.#round());
    void this.#adopt().finally(() => this.#rounds.start());
  }

  /** Of a sandbox that has just started. It is written down beside it, for a server that adopts it. */
  async add(spec: Pick<SandboxSpec, 'instanceId' | 'command' | 'platformMounts'>): Promise<void> {
    const { maxMb, instancesDir } = this.#options;
    const directory = join(instancesDir, spec.instanceId);
    const places = (spec.platformMounts ?? []).filter(mount => !mount.readonly).map(mount => mount.source);
    // A program has its socket's directory to write to.
    if (spec.command.kind === 'exec') places.push(join(directory, 'sock'));
    if (maxMb === 0 || places.length === 0) return;
    this.#orders.set(spec.instanceId, { maxMb, places });
    await writeFile(join(directory, ORDER_FILE), JSON.stringify({ maxMb, places }), { mode: 0o600 }).catch(
      () => undefined,
    );
  }

  /** One that has ended. */
  drop(instanceId: string): void {
    this.#orders.delete(instanceId);
  }

  close(): void {
    // A measurement that runs ends by itself, and harms nobody.
    void this.#rounds.close();
  }

  async #adopt(): Promise<void> {
    const { instancesDir } = this.#options;
    for (const instanceId of await readdir(instancesDir).catch(() => [])) {
      try {
        const order = JSON.parse(await readFile(join(instancesDir, instanceId, ORDER_FILE), 'utf8'));
        if (!this.#orders.has(instanceId)) this.#orders.set(instanceId, order as DiskOrder);
      } catch {
        // It has nothing on the disk, or is going away.
      }
    }
  }

  async #round(): Promise<void> {
    for (const [instanceId, { maxMb, places }] of [...this.#orders]) {
      if (this.#rounds.isClosed) return;
      try {
        const usedMb = Math.ceil((await diskUsage(places)) / MEBIBYTE);
        if (usedMb <= maxMb || !this.#orders.delete(instanceId)) continue;
        await this.#options.end(instanceId, `it has ${usedMb} MB on disk, more than the ${maxMb} MB of process.diskMb`);
      } catch (error) {
        this.#options.logger.warn(
          { instanceId, reason: messageOf(error) },
          'the disk usage of a sandbox could not be measured',
        );
      }
    }
  }
}

/**
 * Bytes of the disk that these directories take. By a program of its own: it goes to any depth, follows nothing and leaves the file system
 * never, and the event loop has none of the work.
 */
function diskUsage(places: readonly string[]): Promise<number> {
  return new Promise((resolve, reject) => {
    const options = {
      timeout: MEASURE_TIMEOUT_MS,
      killSignal: 'SIGKILL' as const,
      env: { PATH: '/usr/bin:/bin', LC_ALL: 'C' },
    };
    execFile('du', ['-c', '-s', '-x', '-B1', '--', ...places], options, (error, stdout) => {
      // A file that disappears meanwhile makes it fail at the end, with a sum all the same.
      const total = /^(\d+)\ttotal$/m.exec(stdout)?.[1];
      if (total !== undefined) resolve(Number(total));
      else reject(error ?? new Error('du has said nothing'));
    });
  });
}
