import { isDeepStrictEqual } from 'node:util';
import { messageOf } from '../core/error.ts';
import type { SandboxType } from '../core/instance.ts';
import { forEachOf } from '../lib/parallel.ts';
import { RepeatedFailures } from '../lib/repeated-failures.ts';
import { groupsBy } from '../lib/split.ts';
import type { ListedSandbox, SandboxDriver, SandboxHandle } from '../sandbox/driver.ts';
import { mayHaveSandbox } from '../storage/conditions.ts';
import { storedIdentityOf } from './changes.ts';
import { type InstancesOptions, OWNER_RULES } from './contract.ts';
import { listSandboxes, removeSandbox, stopSandbox } from './driver-calls.ts';
import type { LiveInstance } from './live-instance.ts';
import { keepPaused } from './pausing.ts';
import type { RunnerRegistry } from './registry.ts';
import type { InstanceRecord } from './rows.ts';
import type { InstanceRunner, RunnerParts } from './runner.ts';
import { SILENCE_TIMES } from './silence-times.ts';

const PARALLEL = 64;
/** Delay before a record that could not be completed is reconciled again. */
const UNFINISHED_RETRY_MS = 2_000;

type Options = Pick<
  InstancesOptions,
  'sweptDrivers' | 'cheapDrivers' | 'nodeId' | 'isLost' | 'orphanGraceMs' | 'reconcileIntervalMs'
>;

interface Orphan {
  readonly handle: SandboxHandle;
  readonly sinceMs: number;
}

/**
 * Reconciles the records with the running sandboxes. Adopts running instances, marks dead ones, completes the
 * work of an earlier server, and removes orphans. Healthy instances are not polled: a pass every few minutes
 * finds lost changes.
 */
export class Reconciler {
  readonly #options: Options;
  readonly #parts: RunnerParts;
  readonly #registry: RunnerRegistry;
  readonly #failures: RepeatedFailures;
  /** Drivers that instances need and that do not answer, with the reason. */
  readonly #away = new Map<SandboxType, string>();
  #orphans: Orphan[] = [];
  #unfinished = false;
  #hasPassed = false;
  #pass: Promise<void> | undefined;
  #timer: NodeJS.Timeout | undefined;
  #isClosed = false;

  constructor(options: Options, parts: RunnerParts, registry: RunnerRegistry) {
    this.#options = options;
    this.#parts = parts;
    this.#registry = registry;
    this.#failures = new RepeatedFailures(parts.log, parts.now);
  }

  /** Returns the drivers that instances need and that do not answer, with the reason. */
  get away(): ReadonlyMap<SandboxType, string> {
    return this.#away;
  }

  /** Runs one pass, or joins the running one. Never rejects. Passes repeat until `close`. */
  run(): Promise<void> {
    this.#pass ??= this.#reconcileAll().finally(() => {
      this.#pass = undefined;
      this.#hasPassed = true;
      this.#schedule(this.#nextDelayMs());
    });
    return this.#pass;
  }

  /** Schedules an early pass because an operation was left unfinished. */
  soon(): void {
    this.#unfinished = true;
    if (this.#pass === undefined) this.#schedule(UNFINISHED_RETRY_MS);
  }

  /** Stops the passes. Resolves when none runs. */
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
    const { silence = SILENCE_TIMES } = this.#parts;
    return Math.min(
      reconcileIntervalMs,
      this.#unfinished ? UNFINISHED_RETRY_MS : reconcileIntervalMs,
      this.#away.size > 0 ? silence.awayRetryMs : reconcileIntervalMs,
      this.#orphans.length > 0 ? Math.max(orphanGraceMs, 10) : reconcileIntervalMs,
    );
  }

  async #reconcileAll(): Promise<void> {
    const { nodeId, sweptDrivers } = this.#options;
    this.#unfinished = false;
    this.#failures.sweep();
    try {
      const before = this.#registry.all();
      const rows = await this.#parts.rows.listWithSandbox(nodeId);
      for (const row of rows) {
        const { writer } = this.#registry.of(row.id);
        if (!writer.isPublished) writer.found(storedIdentityOf(row));
      }
      rows.push(...(await this.#endedOf(before, rows)));
      const byDriver = groupsBy(rows, row => row.sandboxType);
      const names = new Set([...sweptDrivers, ...byDriver.keys()]);
      const orphans = await Promise.all([...names].map(name => this.#reconcileDriver(name, byDriver.get(name) ?? [])));
      this.#orphans = orphans.flat();
      for (const owner of Object.values(this.#parts.owners)) await owner.reconciled?.();
      this.#failures.passed('', {}, 'the instances could be reconciled again');
    } catch (error) {
      this.#unfinished = true;
      this.#failures.failed('', error, {}, 'the instances could not be reconciled');
    }
  }

  /**
   * Returns the records of ended agents that this process still knows, and drops live instances without a
   * record. While this node was suspended, another node gave it up and ended its instances. Their sandboxes
   * are orphans.
   */
  async #endedOf(
    before: readonly InstanceRunner[],
    rows: readonly InstanceRecord[],
  ): Promise<readonly InstanceRecord[]> {
    const known = new Set(rows.map(({ id }) => id));
    const others = before.filter(runner => !known.has(runner.id) && !runner.isBusy && !runner.isIdle);
    const found = await this.#parts.rows.findAll(others.map(({ id }) => id));
    // A record that another node has taken over does not count.
    const own = new Map(found.filter(row => row.nodeId === this.#options.nodeId).map(row => [row.id, row]));
    for (const runner of others) {
      const { id, live } = runner;
      if (own.has(id) || runner.isBusy || runner.isIdle) continue;
      runner.writer.forget();
      if (live === undefined || runner.live !== live) continue;
      this.#detach(live);
      // No later event would release the owner's capacity for an instance without a record.
      this.#removed(live);
    }
    return [...own.values()].filter(row => !mayHaveSandbox(row));
  }

  /** Returns the records of ended agents that have a listed sandbox and are not in `rows`. */
  async #endedIn(
    listed: ReadonlyMap<string, unknown>,
    rows: ReadonlyMap<string, InstanceRecord>,
  ): Promise<readonly InstanceRecord[]> {
    const found = await this.#parts.rows.findAll([...listed.keys()].filter(id => !rows.has(id)));
    return found.filter(row => row.nodeId === this.#options.nodeId && !mayHaveSandbox(row));
  }

  /** Detaches the live sandbox of an instance that has ended or has another sandbox. */
  #detach({ id }: Pick<InstanceRecord, 'id'>): void {
    this.#registry.get(id)?.removeLive()?.detach('it has ended, or has another sandbox');
  }

  /** Notifies the owner that a sandbox ended or has no record. The owner releases the capacity. */
  #removed(instance: Pick<InstanceRecord, 'id' | 'owner' | 'epoch'>): void {
    this.#parts.owners[instance.owner.kind]?.ended?.(instance, 'the server ended');
  }

  #isBusy(id: string): boolean {
    return this.#registry.get(id)?.isBusy === true;
  }

  /** Reconciles the instances of a driver. Returns orphans whose grace period is not over. */
  async #reconcileDriver(name: SandboxType, known: readonly InstanceRecord[]): Promise<Orphan[]> {
    let driver: SandboxDriver;
    let listed: readonly ListedSandbox[];
    try {
      driver = await this.#parts.drivers(name);
      listed = await listSandboxes(driver);
    } catch (error) {
      if (known.length > 0) this.#away.set(name, messageOf(error));
      else this.#away.delete(name);
      this.#failures.failed(`driver ${name}`, error, { driver: name }, 'a driver is not available');
      return [];
    }
    this.#away.delete(name);
    this.#failures.passed(`driver ${name}`, { driver: name }, 'a driver is available again');
    const sandboxes = groupsBy(listed, ({ instanceId }) => instanceId);
    const rows = new Map(known.map(row => [row.id, row]));
    const ended = await this.#endedIn(sandboxes, rows);
    for (const row of ended) rows.set(row.id, row);
    const remains = ended.filter(
      ({ id, status }) =>
        sandboxes.get(id)?.some(({ running }) => running) || (status === 'SLEEPING' && sandboxes.has(id)),
    );
    await forEachOf([...known, ...remains], PARALLEL, async row => {
      try {
        await this.#reconcileInstance(driver, row, sandboxes.get(row.id) ?? []);
        this.#failures.passed(row.id, { instanceId: row.id }, 'an instance could be reconciled again');
      } catch (error) {
        this.#unfinished = true;
        this.#failures.failed(row.id, error, { instanceId: row.id }, 'an instance could not be reconciled');
      }
    });
    return await this.#sweep(driver, rows, listed);
  }

  /** Reconciles one instance. `listed`: its sandboxes. */
  async #reconcileInstance(
    driver: SandboxDriver,
    row: InstanceRecord,
    listed: readonly ListedSandbox[],
  ): Promise<void> {
    const { id } = row;
    const live = this.#registry.get(id)?.live;
    if (isSandboxOf(live, row)) {
      // The driver may have been unavailable when the watch was started.
      live?.watchSandbox();
      return;
    }
    // The record may have changed since the list was read.
    const now = await this.#parts.rows.find(id);
    if (now === null || this.#isBusy(id) || isSandboxOf(this.#registry.get(id)?.live, now)) return;
    this.#detach(now);
    const { keepsEnded, recovers } = OWNER_RULES[now.owner.kind];
    switch (now.status) {
      case 'RUNNING':
        if (now.concurrency > 0) await this.#registry.of(id).adopt(now);
        else if (!recovers) await this.#discard(now, driver, listed);
        return;
      case 'PAUSED':
        await keepPaused(this.#registry.of(id), now, driver);
        return;
      case 'CREATING':
        if (recovers) return;
        await this.#removeAll(driver, now, listed);
        if (now.epoch > 1) {
          const statusReason = 'the server ended while the instance was restarting';
          await this.#registry.of(id).writer.move(now, 'startFailed', { statusReason, handle: null });
        } else {
          await this.#registry.of(id).writer.end(now, 'forgotten');
        }
        this.#removed(now);
        return;
      case 'SLEEPING':
        // The service ended before it had removed the sandbox.
        await this.#removeAll(driver, now, listed);
        await this.#registry.of(id).writer.move(now, 'emptied', { handle: null });
        this.#removed(now);
        this.#registry.of(id).writer.forget();
        return;
      case 'STOPPING':
        await this.#removeAll(driver, now, listed);
        await this.#registry.of(id).writer.end(now, 'removed');
        this.#removed(now);
        return;
      case 'FAILED':
        if (!keepsEnded) await this.#discard(now, driver, listed);
        else {
          await this.#stopRemains(driver, now, listed);
          this.#removed(now);
          const runner = this.#registry.get(id);
          if (runner?.isBusy === false && runner.live === undefined) runner.writer.forget();
        }
    }
  }

  async #discard(row: InstanceRecord, driver: SandboxDriver, listed: readonly ListedSandbox[]): Promise<void> {
    for (const handle of handlesOf(row, listed)) await this.#parts.removals.discard(driver, handle);
    await this.#registry.of(row.id).writer.end(row, 'discarded');
    this.#removed(row);
  }

  /** Stops the sandboxes of an ended instance, and keeps its record and logs. */
  async #stopRemains(driver: SandboxDriver, row: InstanceRecord, listed: readonly ListedSandbox[]): Promise<void> {
    for (const { running, handle } of listed) {
      if (!running || !belongsTo(handle, row)) continue;
      await stopSandbox(driver, handle, 0);
    }
  }

  async #removeAll(driver: SandboxDriver, row: InstanceRecord, listed: readonly ListedSandbox[]): Promise<void> {
    for (const handle of handlesOf(row, listed)) {
      await removeSandbox(driver, handle);
    }
  }

  async #sweep(
    driver: SandboxDriver,
    rows: ReadonlyMap<string, InstanceRecord>,
    listed: readonly ListedSandbox[],
  ): Promise<Orphan[]> {
    const nowMs = this.#parts.now();
    const waiting: Orphan[] = [];
    for (const { instanceId, handle, nodeId } of listed) {
      // A caller of `close` waits for this pass, but not for many removals.
      if (this.#isClosed) break;
      if (nodeId !== undefined && !this.#isSwept(nodeId)) continue;
      if (this.#isBusy(instanceId) || belongsTo(handle, rows.get(instanceId))) continue;
      // The record may have changed since this pass began.
      const row = await this.#parts.rows.find(instanceId);
      if (this.#isBusy(instanceId) || belongsTo(handle, row)) continue;
      // The residue of an interrupted start is removed with its record, or its owner recovers it.
      if (row?.status === 'CREATING') continue;
      const seen = this.#orphans.find(orphan => isSame(orphan.handle, handle));
      const orphan = seen ?? { handle, sinceMs: nowMs };
      if (nowMs - orphan.sinceMs < this.#graceOf(driver, row)) {
        waiting.push(orphan);
        continue;
      }
      this.#parts.log.info({ instanceId, driver: driver.name }, 'removing orphan sandbox');
      await this.#parts.removals.discard(driver, handle);
    }
    return waiting;
  }

  /**
   * Returns 0 for sandboxes whose start was interrupted before a record existed: a client may repeat the
   * create soon.
   */
  #graceOf({ name }: SandboxDriver, row: InstanceRecord | null): number {
    const { orphanGraceMs, cheapDrivers } = this.#options;
    return row === null && !this.#hasPassed && cheapDrivers.includes(name) ? 0 : orphanGraceMs;
  }

  /**
   * Returns true if this node removes orphans of `nodeId`: its own, and those of lost nodes. Several nodes
   * may list the same sandboxes.
   */
  #isSwept(nodeId: string): boolean {
    return nodeId === this.#options.nodeId || this.#options.isLost?.(nodeId) === true;
  }
}

/** Returns true if the live instance uses the sandbox that the record names. */
function isSandboxOf(live: LiveInstance | undefined, { status, epoch }: InstanceRecord): boolean {
  return live !== undefined && status === 'RUNNING' && live.epoch === epoch;
}

/** Returns every sandbox of an instance: the recorded one, and those that an interrupted start left. */
function handlesOf({ handle: own }: InstanceRecord, listed: readonly ListedSandbox[]): readonly SandboxHandle[] {
  const handles = listed.map(({ handle }) => handle);
  return own === null || handles.some(handle => isSame(handle, own)) ? handles : [...handles, own];
}

function belongsTo(handle: SandboxHandle, row: InstanceRecord | null | undefined): boolean {
  return row != null && row.handle !== null && isSame(handle, row.handle);
}

/**
 * Returns true for the same sandbox. After a restart, a driver may write one of the two members in another
 * form, never both.
 */
function isSame(a: SandboxHandle, b: SandboxHandle): boolean {
  return (
    a.instanceId === b.instanceId && (isDeepStrictEqual(a.endpoint, b.endpoint) || isDeepStrictEqual(a.data, b.data))
  );
}
