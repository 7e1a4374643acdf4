import { isDeepStrictEqual } from 'node:util';
import type { SchedulerOptions } from '../agents/options.ts';
import type { InstanceRecord, InstanceRecords } from '../agents/records.ts';
import { messageOf } from '../core/error.ts';
import type { SandboxType } from '../core/instance.ts';
import { within } from '../lib/deadline.ts';
import { forEachOf } from '../lib/parallel.ts';
import type { ListedSandbox, SandboxDriver, SandboxHandle } from '../sandbox/driver.ts';
import type { Removals } from './removals.ts';

const LIST_MS = 5_000;
const KILL_MS = 10_000;
const REMOVE_MS = 30_000;
const PARALLEL = 64;
/** How soon a driver that was away is asked again. */
const AWAY_RETRY_MS = 5_000;
/** How soon a row that could not be finished is looked at again. */
const UNFINISHED_RETRY_MS = 2_000;

/** What the reconciler asks of the scheduler. */
export interface Reconciled {
  /** Something is being done to it. */
  isBusy(id: string): boolean;
  isLive(id: string): boolean;
  /** Watches a live instance again whose driver was away. */
  watchAgain(id: string): void;
  /** Makes a RUNNING instance live, or FAILED. Rejects when its driver does not answer. */
  adopt(record: InstanceRecord): Promise<unknown>;
}

type Options = Pick<
  SchedulerOptions,
  'drivers' | 'sweptDrivers' | 'belongsElsewhere' | 'nodeId' | 'log' | 'orphanGraceMs'
> & {
  readonly reconcileIntervalMs: number;
  readonly now: () => number;
};

interface Orphan {
  readonly handle: SandboxHandle;
  readonly sinceMs: number;
}

/**
 * Brings what is stored and what runs together: adopts what lives, marks what died, finishes what an earlier server
 * began, and removes sandboxes that belong to nobody. Nothing is polled for healthy instances: a pass every few minutes
 * looks for what was lost.
 */
export class Reconciler {
  readonly #options: Options;
  readonly #records: InstanceRecords;
  readonly #removals: Removals;
  readonly #scheduler: Reconciled;
  /** Drivers that instances need and that do not answer, and why. */
  readonly #away = new Map<SandboxType, string>();
  #orphans: Orphan[] = [];
  #unfinished = false;
  #pass: Promise<void> | undefined;
  #timer: NodeJS.Timeout | undefined;
  #isClosed = false;

  constructor(options: Options, records: InstanceRecords, removals: Removals, scheduler: Reconciled) {
    this.#options = options;
    this.#records = records;
    this.#removals = removals;
    this.#scheduler = scheduler;
  }

  /** Drivers that instances need and that do not answer, and why. */
  get away(): ReadonlyMap<SandboxType, string> {
    return this.#away;
  }

  /** One look at everything; joins the one that runs. Never rejects. The next one follows by itself until `close`. */
  run(): Promise<void> {
    this.#pass ??= this.#lookAtEverything().finally(() => {
      this.#pass = undefined;
      this.#schedule(this.#nextDelayMs());
    });
    return this.#pass;
  }

  /** Something was left unfinished: look soon. */
  soon(): void {
    this.#unfinished = true;
    if (this.#pass === undefined) this.#schedule(UNFINISHED_RETRY_MS);
  }

  /** Resolves when no pass runs. */
  async close(): Promise<void> {
    this.#isClosed = true;
    clearTimeout(this.#timer);
    await this.#pass;
  }

  #schedule(delayMs: number): void {
    clearTimeout(this.#timer);
    if (this.#isClosed) return;
    this.#timer = setTimeout(() => void this.run(), delayMs).unref();
  }

  #nextDelayMs(): number {
    const { orphanGraceMs, reconcileIntervalMs } = this.#options;
    return Math.min(
      reconcileIntervalMs,
      this.#unfinished ? UNFINISHED_RETRY_MS : reconcileIntervalMs,
      this.#away.size > 0 ? AWAY_RETRY_MS : reconcileIntervalMs,
      this.#orphans.length > 0 ? Math.max(orphanGraceMs, 10) : reconcileIntervalMs,
    );
  }

  async #lookAtEverything(): Promise<void> {
    const { log, nodeId, sweptDrivers } = this.#options;
    this.#unfinished = false;
    try {
      const rows = await this.#records.listOfNode(nodeId);
      const driverOf = ({ instance }: InstanceRecord) => instance.spec.sandboxType;
      const names = new Set([...sweptDrivers, ...rows.map(driverOf)]);
      const orphans = await Promise.all(
        [...names].map(name =>
          this.#lookAtDriver(
            name,
            rows.filter(row => driverOf(row) === name),
          ),
        ),
      );
      this.#orphans = orphans.flat();
    } catch (error) {
      this.#unfinished = true;
      log.error({ err: error }, 'the instances could not be reconciled');
    }
  }

  /** Returns the sandboxes that belong to nobody, but not for long enough yet. */
  async #lookAtDriver(name: SandboxType, rows: readonly InstanceRecord[]): Promise<Orphan[]> {
    let driver: SandboxDriver;
    let listed: readonly ListedSandbox[];
    try {
      driver = await this.#options.drivers(name);
      listed = await within(driver.list(), LIST_MS, `${name} did not answer in time`);
    } catch (error) {
      if (rows.length > 0) this.#away.set(name, messageOf(error));
      else this.#away.delete(name);
      this.#options.log.warn({ driver: name, err: error }, 'a driver is not available');
      return [];
    }
    this.#away.delete(name);
    await forEachOf(rows, PARALLEL, async row => {
      try {
        await this.#lookAtInstance(driver, row, listed);
      } catch (error) {
        this.#unfinished = true;
        this.#options.log.warn({ instanceId: row.instance.id, err: error }, 'an instance could not be reconciled');
      }
    });
    return await this.#sweep(driver, rows, listed);
  }

  async #lookAtInstance(driver: SandboxDriver, row: InstanceRecord, listed: readonly ListedSandbox[]): Promise<void> {
    const { id } = row.instance;
    if (this.#scheduler.isLive(id)) {
      this.#scheduler.watchAgain(id);
      return;
    }
    // Read again: it may have gone on since the list of rows was read.
    const now = await this.#records.find(id);
    if (now === null || this.#scheduler.isLive(id) || this.#scheduler.isBusy(id)) return;
    switch (now.instance.status) {
      case 'RUNNING':
        await this.#scheduler.adopt(now);
        return;
      case 'CREATING':
        await this.#removeAll(driver, now, listed);
        // An instance that was restarting is somebody's; one that was being created nobody was told of.
        if (now.instance.restarts > 0) {
          const statusReason = 'the server ended while the instance was restarting';
          await this.#records.move(id, 'restartFailed', { statusReason, handle: null });
        } else {
          await this.#records.end(id, 'createFailed');
        }
        return;
      case 'STOPPING':
        await this.#removeAll(driver, now, listed);
        await this.#records.end(id, 'removed');
        return;
      case 'FAILED':
        for (const sandbox of listed) {
          if (!sandbox.running || !belongsTo(sandbox.handle, now)) continue;
          await within(driver.stop(sandbox.handle, 0), KILL_MS, `${driver.name} did not stop a sandbox in time`);
        }
    }
  }

  /** Every sandbox of an instance: the one that it knows, and what a start that was cut off left. */
  async #removeAll(driver: SandboxDriver, row: InstanceRecord, listed: readonly ListedSandbox[]): Promise<void> {
    const handles = listed.filter(({ instanceId }) => instanceId === row.instance.id).map(({ handle }) => handle);
    const own = row.handle;
    if (own && !handles.some(handle => isSame(handle, own))) handles.push(own);
    for (const handle of handles) {
      await within(driver.remove(handle), REMOVE_MS, `${driver.name} did not remove a sandbox in time`);
    }
  }

  async #sweep(
    driver: SandboxDriver,
    rows: readonly InstanceRecord[],
    listed: readonly ListedSandbox[],
  ): Promise<Orphan[]> {
    const nowMs = this.#options.now();
    const waiting: Orphan[] = [];
    const known = new Map(rows.map(row => [row.instance.id, row]));
    for (const { instanceId, handle } of listed) {
      if (this.#scheduler.isBusy(instanceId) || belongsTo(handle, known.get(instanceId))) continue;
      // Not as the rows were when this pass began: perhaps as they are now.
      const row = await this.#records.find(instanceId);
      if (this.#scheduler.isBusy(instanceId) || belongsTo(handle, row)) continue;
      if (await this.#options.belongsElsewhere?.(instanceId)) continue;
      const seen = this.#orphans.find(orphan => isSame(orphan.handle, handle));
      const orphan = seen ?? { handle, sinceMs: nowMs };
      if (nowMs - orphan.sinceMs < this.#options.orphanGraceMs) {
        waiting.push(orphan);
        continue;
      }
      this.#options.log.info({ instanceId, driver: driver.name }, 'removing a sandbox that belongs to no instance');
      await this.#removals.discard(driver, handle);
    }
    return waiting;
  }
}

function belongsTo(handle: SandboxHandle, row: InstanceRecord | null | undefined): boolean {
  return row != null && row.handle !== null && isSame(handle, row.handle);
}

/** The same sandbox: a driver may write its facts in another form after a restart, but not both members. */
function isSame(a: SandboxHandle, b: SandboxHandle): boolean {
  return (
    a.instanceId === b.instanceId && (isDeepStrictEqual(a.endpoint, b.endpoint) || isDeepStrictEqual(a.data, b.data))
  );
}
