import { failedPrecondition, messageOf, ServiceError } from '../core/error.ts';
import { NO_SANDBOX, type OwnerKind } from '../core/instance.ts';
import { endsWithin, withDeadline } from '../lib/deadline.ts';
import type { ServerTiming } from '../lib/server-timing.ts';
import type { Channel } from '../runtime/channel.ts';
import type { SandboxDriver, SandboxHandle } from '../sandbox/driver.ts';
import type { AgentIdentity, InstanceRef, StoredInstance } from '../storage/queries/instances.ts';
import { untilWritten } from '../storage/writes/until-written.ts';
import type { Dead } from './adopt.ts';
import { Adoption } from './adoption.ts';
import { type InstanceOwner, type InstancesOptions, OWNER_RULES } from './contract.ts';
import { removeSandbox, stopsInTime } from './driver-calls.ts';
import { LiveInstance } from './live-instance.ts';
import type { LiveInstanceOptions } from './live-options.ts';
import { RecordWriter } from './record-writer.ts';
import { instanceNotFound, restartFailed } from './refusals.ts';
import type { Removals } from './removals.ts';
import type { InstanceRecord, InstanceRows } from './rows.ts';
import { SILENCE_TIMES } from './silence-times.ts';
import { factsOf, rowOf, type Start, type StartedFacts } from './start.ts';
import { RecordRefused, startWithRecord } from './start-with-record.ts';

/** Longest wait for a write that is retried in the background. */
export const RECORDED_MS = 1_000;
/** Time during which the record of a failed start is retried; then the reconciler completes it. */
const UNDO_MS = 60_000;

/** Parts that all runners share. */
export interface RunnerParts
  extends Pick<
    InstancesOptions,
    'drivers' | 'log' | 'metrics' | 'changed' | 'createTimeoutMs' | 'adoption' | 'silence'
  > {
  readonly rows: InstanceRows;
  readonly removals: Removals;
  readonly owners: { [K in OwnerKind]?: InstanceOwner };
  readonly now: () => number;
  /** Aborts when the service closes. */
  readonly closing: AbortSignal;
  /** Returns true when nothing may become live any more. */
  readonly isStopping: () => boolean;
  /** Schedules an early reconciler pass, after a failed write or an unfinished operation. */
  readonly reconcileSoon: () => void;
}

/** Callbacks during the end of a sandbox. */
export interface Ending {
  readonly stopped?: (driver: SandboxDriver, handle: SandboxHandle) => Promise<void>;
  /** Passed to `SandboxDriver.remove`. */
  readonly cleared?: () => void;
  readonly stages?: ServerTiming | undefined;
}

export interface Launched {
  readonly live: LiveInstance;
  /** Facts that were written with the start. */
  readonly facts: StartedFacts;
  /** Duration of loading the code and running its initializer, milliseconds. */
  readonly loadMs: number;
}

/**
 * Owns the state of an instance in this process: its live sandbox, the search for a recovered one, and the
 * chain of its writes. Each change is a compare-and-set on the state and epoch of the record. So a late exit
 * or a slow probe cannot undo a newer change.
 */
export class InstanceRunner {
  readonly id: string;
  /** Writes the record of the instance. */
  readonly writer: RecordWriter;
  readonly #parts: RunnerParts;
  /** Called when `isIdle` may have become true. */
  readonly #idle: () => void;
  #live: LiveInstance | undefined;
  /** Record of `#live`, without its handle. */
  #record: Omit<StoredInstance, 'handle'> | undefined;
  #adoption: Adoption | undefined;
  #locks = 0;

  constructor(id: string, parts: RunnerParts, idle: (runner: InstanceRunner) => void) {
    this.id = id;
    this.#parts = parts;
    this.#idle = () => idle(this);
    const { rows, changed = () => undefined } = parts;
    this.writer = new RecordWriter({ rows, notify: changed, idle: this.#idle });
  }

  /** Running sandbox that takes calls. */
  get live(): LiveInstance | undefined {
    return this.#live;
  }

  /** Record of the live sandbox, without reading storage. */
  get liveRecord(): InstanceRecord | undefined {
    const { id } = this;
    return this.#live && this.#record && { ...this.#record, id, status: 'RUNNING', handle: this.#live.handle };
  }

  get isLocked(): boolean {
    return this.#locks > 0;
  }

  /** Returns true while a part of this process works on the instance; the reconciler skips it. */
  get isBusy(): boolean {
    return this.isLocked || this.#adoption !== undefined || this.writer.isPending;
  }

  /** Returns true if the registry may drop this runner. */
  get isIdle(): boolean {
    return !this.isBusy && this.#live === undefined && !this.writer.isPublished;
  }

  /** Locks the instance against other parts of this process until the returned function is called. */
  lock(): () => void {
    this.#locks += 1;
    return () => {
      this.#locks -= 1;
      this.#idle();
    };
  }

  /**
   * Inserts the record. Returns false if its name or its idempotency key is taken. Removes a record whose
   * write was not confirmed.
   */
  async insert(instance: StoredInstance, agent?: AgentIdentity, write?: () => Promise<boolean>): Promise<boolean> {
    try {
      return await this.writer.insert(instance, agent, write);
    } catch (error) {
      // Tried once, because many creates fail at the same time. The reconciler removes a record that remains.
      await this.writer.end(instance, 'forgotten', messageOf(error)).catch(() => undefined);
      this.#parts.reconcileSoon();
      throw error;
    }
  }

  /**
   * Starts the sandbox of a locked CREATING instance, connects to its runtime and loads its code, within the
   * create budget. The instance is RUNNING afterwards and takes calls. Fails with the cause, with the reason
   * of `signal`, with `deadline_exceeded`, or with `RecordRefused`. The sandbox is removed then. The record
   * is deleted, or FAILED if the instance had a sandbox before.
   */
  async start(record: StoredInstance, start: Start, signal: AbortSignal): Promise<Launched> {
    const { createTimeoutMs, metrics, reconcileSoon } = this.#parts;
    const { driver, insert } = start;
    const startedMs = performance.now();
    let outcome: 'created' | 'failed' | 'refused' = 'failed';
    let isRecorded = insert === undefined;
    try {
      const inserting =
        insert &&
        (async () => {
          isRecorded = await insert();
          return isRecorded;
        });
      const launched = await startWithRecord({ ...start, ...(inserting && { insert: inserting }) }, signal, {
        createTimeoutMs,
        discard: handle => this.#parts.removals.discard(driver, handle),
      });
      outcome = 'created';
      return await this.#goLive(record, start, launched, signal);
    } catch (error) {
      if (error instanceof OutcomeUnknown) {
        // If the write succeeded, the agent has the name: the reconciler adopts the sandbox, or else removes
        // it.
        reconcileSoon();
        throw error;
      }
      if (error instanceof RecordRefused) outcome = 'refused';
      const cause = explained(error, start.explain);
      if (isRecorded) await this.undo(record, cause);
      throw cause;
    } finally {
      if (outcome !== 'refused') metrics?.created(driver.name, outcome, performance.now() - startedMs);
    }
  }

  /** Makes a RUNNING instance of an earlier server live, unless it is. See `Instances.adopt`. */
  async adopt(record: InstanceRecord): Promise<LiveInstance | undefined> {
    if (this.#live !== undefined) return this.#live;
    this.#adoption ??= this.#beginAdoption(record);
    return await this.#adoption.soon;
  }

  /**
   * Cancels the search for a recovered instance of this kind, and keeps its sandbox. Resolves with true if a
   * search was running.
   */
  async abandonAdoption(kind: OwnerKind): Promise<boolean> {
    const adoption = this.#adoption;
    if (adoption?.kind !== kind) return false;
    adoption.abandon();
    await adoption.ended;
    return true;
  }

  /** Makes the instance not live and cancels its adoption. The caller ends or detaches the result. */
  removeLive(): LiveInstance | undefined {
    const live = this.#live;
    this.#live = undefined;
    this.#adoption?.abandon();
    this.#idle();
    return live;
  }

  /** See `Instances.undo`. */
  async undo(record: InstanceRef, error: unknown, keepsSandbox = false): Promise<void> {
    const { closing, reconcileSoon } = this.#parts;
    const undone = () =>
      record.epoch === 1
        ? this.#forget(record, messageOf(error))
        : this.writer.move(record, 'startFailed', {
            statusReason: restartFailed(error),
            ...(keepsSandbox ? {} : { handle: null, sandbox: NO_SANDBOX }),
          });
    const release = this.lock();
    const tried = withDeadline(UNDO_MS, signal => untilWritten(undone, signal, () => undefined), closing);
    const written = this.unlessWritten(tried).finally(release);
    const isInTime = await endsWithin(written, RECORDED_MS);
    // The write is late, or the record is RUNNING because of a write whose answer was lost. The reconciler
    // decides.
    if (!isInTime || (record.epoch > 1 && !(await written))) void written.then(reconcileSoon);
  }

  /** See `Instances.endSandbox`. */
  async endSandbox(
    record: InstanceRecord,
    graceMs: number,
    why: string,
    { stopped, cleared, stages }: Ending = {},
  ): Promise<void> {
    const taken = this.removeLive();
    const live = taken?.epoch === record.epoch ? taken : undefined;
    // A live sandbox of another epoch is only detached.
    if (live === undefined) taken?.detach(`instance exited: ${why}`);
    // A live instance has its driver at hand, so it can be ended even while the driver source fails.
    const driver = live?.driver ?? (await this.#parts.drivers(record.sandboxType));
    const handle = live?.handle ?? record.handle;
    if (handle === null) return;
    try {
      const ended = live ? live.terminate(graceMs, why, stages) : driver.stop(handle, graceMs);
      await stopsInTime(ended, driver, graceMs);
    } catch (error) {
      // The removal kills the remaining processes; if it fails too, its error is thrown.
      this.#parts.log.warn({ instanceId: this.id, err: error }, 'sandbox stop failed');
    }
    stages?.end('end');
    await stopped?.(driver, handle);
    await removeSandbox(driver, handle, cleared);
    stages?.end('remove');
  }

  /** See `Instances.discard`. */
  async discard(live: LiveInstance, graceMs: number, why: string): Promise<void> {
    // Otherwise the reconciler would find a running sandbox without an owner and adopt it.
    const release = this.lock();
    try {
      this.removeLive();
      await live.terminate(graceMs, why).catch(() => undefined);
      await this.#parts.removals.discard(live.driver, live.handle);
      await this.unlessWritten(this.writer.end(live, 'discarded', why));
    } finally {
      release();
    }
  }

  /** Returns the result of a write; false if it failed, and the reconciler completes it. */
  async unlessWritten(write: Promise<boolean>): Promise<boolean> {
    try {
      return await write;
    } catch (error) {
      this.#parts.log.error({ instanceId: this.id, err: error }, 'cannot write change of instance');
      this.#parts.reconcileSoon();
      return false;
    }
  }

  /** Records a sandbox that has started as RUNNING, and makes the instance live. Removes it on failure. */
  async #goLive(
    record: StoredInstance,
    { driver, sandbox, init, accept, furnish, takesName, stages }: Start,
    { started, channel, loadFailure, loadMs }: Awaited<ReturnType<typeof startWithRecord>>,
    signal: AbortSignal,
  ): Promise<Launched> {
    const { removals, now } = this.#parts;
    const found = { handle: started.handle, secret: sandbox.secret, channel };
    const live = this.#newLive(record, driver, found, init.durable?.version);
    try {
      accept?.(loadFailure);
      await furnish?.(started.handle, signal);
      signal.throwIfAborted();
      const facts = factsOf(started, loadFailure?.message ?? '', now(), record);
      const row = { ...rowOf(facts, started, sandbox.secret), restartAtMs: 0, pausedAtMs: 0 };
      if (!(await this.#isRunning(record, row, takesName))) throw signal.reason ?? instanceNotFound(this.id);
      stages?.end('record');
      this.#add(live, { ...record, startedAtMs: facts.startedAtMs, expiresAtMs: facts.expiresAtMs });
      return { live, facts, loadMs };
    } catch (error) {
      live.detach(messageOf(error));
      if (error instanceof OutcomeUnknown) throw error;
      // Without a record the reconciler cannot find this sandbox, so remove it now.
      await removals.discard(driver, started.handle);
      throw error;
    }
  }

  /**
   * Writes that an instance runs. A failed write is not repeated, because a caller waits. The record is read
   * to see if the write was executed.
   */
  async #isRunning(
    record: InstanceRef,
    row: ReturnType<typeof rowOf>,
    takesName: Start['takesName'],
  ): Promise<boolean> {
    const { rows, reconcileSoon } = this.#parts;
    try {
      if (takesName === undefined) return await this.writer.move(record, 'started', row);
      const taken = await this.writer.takeName(record, row, takesName.name);
      if (taken.replaced !== null) takesName.replaced(taken.replaced);
      return taken.isWritten;
    } catch (error) {
      const now = await rows.find(this.id).catch(() => undefined);
      // Nothing is undone then: the agent that had the name may be STOPPING.
      if (now === undefined && takesName !== undefined)
        throw new OutcomeUnknown('unavailable', messageOf(error), { cause: error });
      if (now?.status !== 'RUNNING' || now.epoch !== record.epoch) throw error;
      if (takesName !== undefined) reconcileSoon();
      return true;
    }
  }

  #beginAdoption(record: InstanceRecord): Adoption {
    const { drivers, log, adoption: times, isStopping, reconcileSoon } = this.#parts;
    const adoption = new Adoption(record, {
      drivers,
      log,
      ...(times && { adoption: times }),
      isTaken: () => isStopping() || this.isLocked,
      agrees: async hello => (await this.#ownerOf(record).agrees?.(record, hello)) ?? true,
      found: (driver, handle, channel) => this.found(record, driver, handle, channel),
      dead: found => this.died(record, found),
      onLost: reconcileSoon,
    });
    void adoption.ended.then(() => {
      this.#adoption = undefined;
      this.#idle();
    });
    return adoption;
  }

  /** Handles a recorded sandbox that was found dead. Never rejects. */
  async died(record: InstanceRecord, { dead, exitCode }: Dead): Promise<void> {
    await this.#ended(record, dead, exitCode);
  }

  /** Makes a recorded sandbox live over its open connection. */
  found(record: InstanceRecord, driver: SandboxDriver, handle: SandboxHandle, channel: Channel): LiveInstance {
    // The watch opens published ports again, so it starts at once if there are any.
    const isWatchedLater = record.sandbox.portMappings.length === 0;
    const { stateVersion } = channel.hello;
    const found = { handle, secret: record.secret, channel, isWatchedLater };
    const live = this.#newLive(record, driver, found, stateVersion);
    this.#add(live, record);
    this.#ownerOf(record).adopted?.(live, record);
    return live;
  }

  #newLive(
    record: Pick<StoredInstance, 'id' | 'owner' | 'epoch' | 'tenant' | 'concurrency' | 'maxCallMs' | 'spec'>,
    driver: SandboxDriver,
    found: Pick<LiveInstanceOptions, 'handle' | 'secret' | 'channel' | 'isWatchedLater'>,
    stateVersion: number | undefined,
  ): LiveInstance {
    const { id, owner, epoch, tenant, concurrency, maxCallMs } = record;
    const { silence = SILENCE_TIMES, log } = this.#parts;
    const { limiter, saver: saverOf } = this.#ownerOf(record);
    const saver = stateVersion === undefined ? undefined : saverOf?.(record, stateVersion);
    const limits = { concurrency, maxCallMs, limiter, silence };
    return new LiveInstance({ id, owner, epoch, tenant, driver, ...found, ...limits, log, saver });
  }

  /** Makes an instance live until it ends by itself. */
  #add(live: LiveInstance, record: Omit<StoredInstance, 'handle'>): void {
    this.#live = live;
    this.#record = record;
    void live.ended.then(async ({ reason, exitCode }) => {
      if (this.#live === live) this.#live = undefined;
      await this.#ended({ ...record, handle: live.handle }, reason, exitCode);
    });
  }

  /** Handles a sandbox that ended by itself, was found dead, or was given up. Never rejects. */
  async #ended(record: InstanceRecord, reason: string, exitCode: number | null = null): Promise<void> {
    const { metrics, log, owners } = this.#parts;
    const { owner, sandboxType } = record;
    // Until the record shows the end, a reader of the record would search for the sandbox again.
    const release = this.lock();
    const isToTell = await this.#writeEnd(record, reason, exitCode).finally(release);
    owners[owner.kind]?.ended?.(record, reason);
    // Another operation ends or restarts the instance, or a later reconciler pass finds the end again.
    if (!isToTell) return;
    metrics?.exited(sandboxType);
    log.warn({ instanceId: this.id, reason }, 'instance ended by itself');
    owners[owner.kind]?.exited?.(record);
  }

  /**
   * Writes the end. Returns false if the record has a newer state or the write failed; owners are not
   * notified then. Never rejects.
   */
  async #writeEnd(record: InstanceRecord, reason: string, exitCode: number | null): Promise<boolean> {
    const { drivers, log, owners, reconcileSoon, removals } = this.#parts;
    const { owner, sandboxType, handle } = record;
    if (OWNER_RULES[owner.kind].keepsEnded) {
      const more = owners[owner.kind]?.exiting?.(record, reason, exitCode);
      return await this.unlessWritten(this.writer.move(record, 'exited', { statusReason: reason, ...more }));
    }
    try {
      if (handle !== null) await removals.discard(await drivers(sandboxType), handle);
    } catch (error) {
      log.warn({ instanceId: this.id, err: error }, 'removal of ended instance failed; retrying');
      reconcileSoon();
      return false;
    }
    return await this.unlessWritten(this.writer.end(record, 'discarded', reason));
  }

  /** Deletes the record in either state: RUNNING may be stored although the caller received a failure. */
  async #forget(record: InstanceRef, reason: string): Promise<boolean> {
    const { writer } = this;
    return (await writer.end(record, 'forgotten', reason)) || (await writer.end(record, 'discarded', reason));
  }

  #ownerOf({ owner: { kind } }: Pick<StoredInstance, 'owner'>): InstanceOwner {
    const owner = this.#parts.owners[kind];
    if (owner === undefined) throw new Error(`no owner of ${kind} instances is registered`);
    return owner;
  }
}

/** Thrown when a write may or may not have been executed. */
class OutcomeUnknown extends ServiceError {}

function explained(error: unknown, explain: Start['explain']): unknown {
  if (!(error instanceof ServiceError) || error.code !== 'failed_precondition') return error;
  const message = explain(error.message);
  return message === error.message ? error : failedPrecondition(message, { cause: error });
}
