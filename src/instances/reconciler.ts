import { isDeepStrictEqual } from 'node:util';
import { messageOf } from '../core/error.ts';
import type { SandboxType } from '../core/instance.ts';
import { within } from '../lib/deadline.ts';
import { forEachOf } from '../lib/parallel.ts';
import type { ListedSandbox, SandboxDriver, SandboxHandle } from '../sandbox/driver.ts';
import { type InstancesOptions, OWNER_RULES } from './contract.ts';
import type { LiveInstance } from './live-instance.ts';
import type { Removals } from './removals.ts';
import { RepeatedFailures } from './repeated-failures.ts';
import { type InstanceRecord, type InstanceRows, isCutOff } from './rows.ts';

const LIST_MS = 5_000;
const KILL_MS = 10_000;
const REMOVE_MS = 30_000;
const PARALLEL = 64;
/** How soon a driver that was away is asked again. */
const AWAY_RETRY_MS = 5_000;
/** How soon a row that could not be finished is looked at again. */
const UNFINISHED_RETRY_MS = 2_000;

/** What the reconciler asks of `Instances`. */
export interface Reconciled {
  /** Somebody in this process is at work on it. */
  isBusy(id: string): boolean;
  live(record: InstanceRecord): LiveInstance | undefined;
  /** Everything that takes calls in this process. */
  allLive(): readonly LiveInstance[];
  /** Makes a RUNNING instance live, or ends it. Rejects when its driver does not answer. */
  adopt(record: InstanceRecord): Promise<unknown>;
  /** Removes what is left of an instance that nobody needs, and its row. */
  discard(record: InstanceRecord, driver: SandboxDriver, handles: readonly SandboxHandle[]): Promise<void>;
  /** Nothing of its sandbox runs any more, or it is nobody's: its owner gives back what it held. */
  removed(instance: Pick<InstanceRecord, 'id' | 'owner' | 'epoch'>): void;
  /** This process sends its calls to another sandbox than the row names. */
  letGo(instance: Pick<InstanceRecord, 'id' | 'owner' | 'epoch'>): void;
  /** Everything was looked at, but for what belongs to drivers that are away. */
  looked(): Promise<void>;
}

type Options = Pick<
  InstancesOptions,
  'drivers' | 'sweptDrivers' | 'rowsFollow' | 'nodeId' | 'isLost' | 'log' | 'orphanGraceMs'
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
  readonly #rows: InstanceRows;
  readonly #removals: Removals;
  readonly #instances: Reconciled;
  readonly #failures: RepeatedFailures;
  /** Drivers that instances need and that do not answer, and why. */
  readonly #away = new Map<SandboxType, string>();
  #orphans: Orphan[] = [];
  #unfinished = false;
  #hasPassed = false;
  #pass: Promise<void> | undefined;
  #timer: NodeJS.Timeout | undefined;
  #isClosed = false;

  constructor(options: Options, rows: InstanceRows, removals: Removals, instances: Reconciled) {
    this.#options = options;
    this.#rows = rows;
    this.#removals = removals;
    this.#instances = instances;
    this.#failures = new RepeatedFailures(options.log, options.now);
  }

  /** Drivers that instances need and that do not answer, and why. */
  get away(): ReadonlyMap<SandboxType, string> {
    return this.#away;
  }

  /** One look at everything; joins the one that runs. Never rejects. The next one follows by itself until `close`. */
  run(): Promise<void> {
    this.#pass ??= this.#lookAtEverything().finally(() => {
      this.#pass = undefined;
      this.#hasPassed = true;
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
    const { nodeId, sweptDrivers } = this.#options;
    this.#unfinished = false;
    this.#failures.sweep();
    try {
      const live = this.#instances.allLive();
      const rows = await this.#rows.listOfNode(nodeId);
      await this.#dropWithoutRow(live, rows);
      const names = new Set([...sweptDrivers, ...rows.map(row => row.sandboxType)]);
      const orphans = await Promise.all(
        [...names].map(name =>
          this.#lookAtDriver(
            name,
            rows.filter(row => row.sandboxType === name),
          ),
        ),
      );
      this.#orphans = orphans.flat();
      await this.#instances.looked();
      this.#failures.passed('', {}, 'the instances could be reconciled again');
    } catch (error) {
      this.#unfinished = true;
      this.#failures.failed('', error, {}, 'the instances could not be reconciled');
    }
  }

  /** This node was given up while it slept, and somebody else ended what it has: its sandbox is an orphan. */
  async #dropWithoutRow(live: readonly LiveInstance[], rows: readonly InstanceRecord[]): Promise<void> {
    const known = new Set(rows.map(({ id }) => id));
    for (const instance of live) {
      const { id } = instance;
      if (known.has(id) || this.#instances.isBusy(id)) continue;
      // A row that another node has taken over is none of ours.
      if ((await this.#rows.find(id))?.nodeId === this.#options.nodeId) continue;
      if (this.#instances.isBusy(id)) continue;
      this.#instances.letGo(instance);
      // Without a row nothing comes back to it.
      this.#instances.removed(instance);
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
      this.#failures.failed(`driver ${name}`, error, { driver: name }, 'a driver is not available');
      return [];
    }
    this.#away.delete(name);
    this.#failures.passed(`driver ${name}`, { driver: name }, 'a driver is available again');
    await forEachOf(rows, PARALLEL, async row => {
      try {
        await this.#lookAtInstance(driver, row, listed);
        this.#failures.passed(row.id, { instanceId: row.id }, 'an instance could be reconciled again');
      } catch (error) {
        this.#unfinished = true;
        this.#failures.failed(row.id, error, { instanceId: row.id }, 'an instance could not be reconciled');
      }
    });
    return await this.#sweep(driver, rows, listed);
  }

  async #lookAtInstance(driver: SandboxDriver, row: InstanceRecord, listed: readonly ListedSandbox[]): Promise<void> {
    const { id } = row;
    const live = this.#instances.live(row);
    if (isSandboxOf(live, row)) {
      // Perhaps its driver was away.
      live?.watchSandbox();
      return;
    }
    // Read again: it may have gone on since the list of rows was read.
    const now = await this.#rows.find(id);
    if (now === null || this.#instances.isBusy(id) || isSandboxOf(this.#instances.live(now), now)) return;
    if (this.#instances.live(now)?.epoch === now.epoch && now.status === 'CREATING') {
      // That it runs could not be written when it began to.
      await this.#rows.move(now, 'started');
      return;
    }
    this.#instances.letGo(now);
    const { keepsEnded, recovers } = OWNER_RULES[now.owner.kind];
    switch (now.status) {
      case 'RUNNING':
        if (now.concurrency > 0) await this.#instances.adopt(now);
        else if (!recovers) await this.#discard(now, driver, listed);
        return;
      case 'CREATING':
        if (recovers) return;
        if (isCutOff(now)) {
          await this.#instances.adopt(now);
          return;
        }
        await this.#removeAll(driver, now, listed);
        if (now.epoch > 1) {
          const statusReason = 'the server ended while the instance was restarting';
          await this.#rows.move(now, 'startFailed', { statusReason, handle: null });
        } else {
          await this.#rows.end(now, 'forgotten');
        }
        this.#instances.removed(now);
        return;
      case 'STOPPING':
        await this.#removeAll(driver, now, listed);
        await this.#rows.end(now, 'removed');
        this.#instances.removed(now);
        return;
      case 'FAILED':
        if (!keepsEnded) await this.#discard(now, driver, listed);
        else {
          await this.#stopRemains(driver, now, listed);
          this.#instances.removed(now);
        }
    }
  }

  async #discard(row: InstanceRecord, driver: SandboxDriver, listed: readonly ListedSandbox[]): Promise<void> {
    await this.#instances.discard(row, driver, handlesOf(row, listed));
    this.#instances.removed(row);
  }

  /** An instance that ended stays on record with its logs, but nothing of it runs. */
  async #stopRemains(driver: SandboxDriver, row: InstanceRecord, listed: readonly ListedSandbox[]): Promise<void> {
    for (const { running, handle } of listed) {
      if (!running || !belongsTo(handle, row)) continue;
      await within(driver.stop(handle, 0), KILL_MS, `${driver.name} did not stop a sandbox in time`);
    }
  }

  async #removeAll(driver: SandboxDriver, row: InstanceRecord, listed: readonly ListedSandbox[]): Promise<void> {
    for (const handle of handlesOf(row, listed)) {
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
    const known = new Map(rows.map(row => [row.id, row]));
    for (const { instanceId, handle, nodeId } of listed) {
      // Who waits for the end of this pass does not wait for many removals.
      if (this.#isClosed) break;
      if (nodeId !== undefined && !this.#isSwept(nodeId)) continue;
      if (this.#instances.isBusy(instanceId) || belongsTo(handle, known.get(instanceId))) continue;
      // Not as the rows were when this pass began: perhaps as they are now.
      const row = await this.#rows.find(instanceId);
      if (this.#instances.isBusy(instanceId) || belongsTo(handle, row)) continue;
      // The rest of a start that was cut off goes with its row, or its owner asks for it.
      if (row?.status === 'CREATING') continue;
      const seen = this.#orphans.find(orphan => isSame(orphan.handle, handle));
      const orphan = seen ?? { handle, sinceMs: nowMs };
      if (nowMs - orphan.sinceMs < this.#graceOf(driver, row)) {
        waiting.push(orphan);
        continue;
      }
      this.#options.log.info({ instanceId, driver: driver.name }, 'removing a sandbox that belongs to no instance');
      await this.#removals.discard(driver, handle);
    }
    return waiting;
  }

  /** What the server before was making goes before somebody makes it again. */
  #graceOf({ name }: SandboxDriver, row: InstanceRecord | null): number {
    const { orphanGraceMs, rowsFollow = [] } = this.#options;
    return row === null && !this.#hasPassed && rowsFollow.includes(name) ? 0 : orphanGraceMs;
  }

  /** Whose sandboxes this node looks after, where others may list them too: its own, and those of nodes that nobody waits for. */
  #isSwept(nodeId: string): boolean {
    return nodeId === this.#options.nodeId || this.#options.isLost?.(nodeId) === true;
  }
}

/** Whether what takes calls in this process does so in the sandbox that the row names. */
function isSandboxOf(live: LiveInstance | undefined, { status, epoch }: InstanceRecord): boolean {
  return live !== undefined && status === 'RUNNING' && live.epoch === epoch;
}

/** Every sandbox of an instance: the one that it knows, and what a start that was cut off left. */
function handlesOf({ id, handle: own }: InstanceRecord, listed: readonly ListedSandbox[]): readonly SandboxHandle[] {
  const handles = listed.filter(({ instanceId }) => instanceId === id).map(({ handle }) => handle);
  return own === null || handles.some(handle => isSame(handle, own)) ? handles : [...handles, own];
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
