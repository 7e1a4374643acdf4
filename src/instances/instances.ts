import { deadlineExceeded, failedPrecondition, messageOf, ServiceError } from '../core/error.ts';
import { NO_SANDBOX, type OwnerKind } from '../core/instance.ts';
import type { Lease } from '../core/lease.ts';
import { Counter } from '../lib/counter.ts';
import { endsWithin, withDeadline } from '../lib/deadline.ts';
import { OVER, sharedController } from '../lib/linked-signal.ts';
import type { ServerTiming } from '../lib/server-timing.ts';
import type { Channel } from '../runtime/channel.ts';
import type { LogRequest, SandboxDriver, SandboxHandle, SandboxSpec, StartedSandbox } from '../sandbox/driver.ts';
import type { Database } from '../storage/database.ts';
import type { AgentIdentity, InstanceRef, StoredInstance } from '../storage/queries/instances.ts';
import { untilWritten } from '../storage/writes/until-written.ts';
import { Adoptions } from './adoptions.ts';
import { InstanceChanges } from './changes.ts';
import { Commands } from './commands.ts';
import { type InstanceOwner, type InstancesOptions, OWNER_RULES } from './contract.ts';
import { removeSandbox, stopsInTime } from './driver-calls.ts';
import { HeldNames } from './held-names.ts';
import { LateRow, type Placed } from './late-row.ts';
import { launch } from './launch.ts';
import { LiveInstance } from './live-instance.ts';
import { Reconciler } from './reconciler.ts';
import { Records } from './records.ts';
import { instanceNotFound, restartFailed } from './refusals.ts';
import { Removals } from './removals.ts';
import { type InstanceRecord, InstanceRows, isCutOff, mayHavePorts } from './rows.ts';
import { SILENCE_TIMES } from './silence-times.ts';
import type { Start } from './start.ts';
import { factsOf, rowOf, type StartedFacts } from './started.ts';

const RECORDED_MS = 1_000;
/** Time during which the record of a failed start is retried; then the reconciler completes it. */
const UNDO_MS = 60_000;

/** Properties of an instance that an owner requests. */
export interface Draft
  extends Pick<StoredInstance, 'owner' | 'tenant' | 'sandboxType'>,
    Partial<Pick<StoredInstance, 'concurrency' | 'maxCallMs' | 'spec'>> {
  readonly sandbox: SandboxSpec;
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
 * Life of every instance of every owner. The record is written first, as an intent, and then the sandbox
 * starts. If only this process writes records, the record may be written with the sandbox. No other class
 * watches, adopts, ends or removes sandboxes. Owners request instances and are notified of changes. Each
 * change is a compare-and-set on the record's state and epoch. So a late exit or a slow probe cannot undo a
 * newer change.
 */
export class Instances {
  readonly rows: InstanceRows;
  readonly commands: Commands;
  /** Names that agents have or may have. null: other processes write records too. */
  readonly names: HeldNames | null;
  readonly #options: InstancesOptions;
  readonly #now: () => number;
  readonly #owners = new Map<OwnerKind, InstanceOwner>();
  /** Live instances by kind, so that a call searches the map of its kind only. */
  readonly #live: Readonly<Record<OwnerKind, Map<string, LiveInstance>>> = {
    agent: new Map(),
    function: new Map(),
    job: new Map(),
    build: new Map(),
  };
  /** Instances that another part of this process is changing; the reconciler skips them. */
  readonly #held = new Counter();
  readonly #adoptions: Adoptions;
  readonly #removals: Removals;
  readonly #reconciler: Reconciler;
  readonly #records = new Records();
  readonly #following = new Set<LateRow>();
  readonly #rowsOfLive = new WeakMap<LiveInstance, Omit<StoredInstance, 'handle'>>();
  /** Pending writes of the ends of instances. The promises never reject. */
  readonly #endings = new Map<string, Promise<boolean>>();
  readonly #closing = sharedController();
  #isStarted = false;
  #isStopping = false;
  #isClosed = false;

  constructor(database: Database, options: InstancesOptions) {
    this.#options = options;
    this.#now = options.now ?? Date.now;
    const { changed, nodeId, rowsFollow } = options;
    this.names = rowsFollow === undefined ? null : new HeldNames();
    const changes = changed === undefined ? null : new InstanceChanges(changed);
    this.rows = new InstanceRows(database, nodeId, changes, this.names, options.writes);
    this.#removals = new Removals(options.log);
    this.commands = new Commands({
      drivers: options.drivers,
      rows: this.rows,
      removals: this.#removals,
      log: options.log,
      now: this.#now,
      undo: (record, error) => this.undo(record, error),
      unlessWritten: (id, write) => this.#unlessWritten(id, write),
    });
    this.#adoptions = new Adoptions({
      ...options,
      isTaken: id => this.#isStopping || this.isHeld(id),
      found: (record, driver, channel) => this.#found(record, driver, channel),
      dead: async (record, { dead, exitCode, neverServed }) => {
        if (isCutOff(record)) {
          if (neverServed) return await this.#undoCutOff(record);
          if (!(await this.rows.move(record, 'started'))) return;
        }
        await this.#ended(record, dead, exitCode);
      },
      onLost: () => this.#reconciler.soon(),
    });
    this.#reconciler = new Reconciler({ ...options, now: this.#now }, this.rows, this.#removals, {
      isBusy: id => this.isHeld(id) || this.#adoptions.isRunning(id),
      live: record => this.#live[record.owner.kind].get(record.id),
      allLive: () => Object.values(this.#live).flatMap(map => [...map.values()]),
      adopt: record => this.adopt(record),
      discard: async (record, driver, handles) => {
        for (const handle of handles) await this.#removals.discard(driver, handle);
        await this.rows.end(record, 'discarded');
      },
      removed: record => this.#owners.get(record.owner.kind)?.ended?.(record, 'the server ended'),
      letGo: instance => this.take(instance)?.detach('it has ended, or has another sandbox'),
      looked: async () => {
        for (const owner of this.#owners.values()) await owner.looked?.();
      },
    });
  }

  /** Registers the owner of the instances of a kind. Must precede `start`. */
  own(kind: OwnerKind, owner: InstanceOwner): void {
    this.#owners.set(kind, owner);
  }

  /**
   * Adopts running instances and completes the work of an earlier server. Never rejects: retries after a
   * failure.
   */
  async start(): Promise<void> {
    await this.#reconciler.run();
    this.#isStarted = true;
  }

  /** Returns the reasons why the service is not ready, by component. */
  readiness(): Readonly<Record<string, string>> {
    const missing: Record<string, string> = {};
    if (!this.#isStarted) missing.scheduler = 'looking for instances of an earlier server';
    if (this.#isStopping) missing.scheduler = 'stopping';
    for (const [name, reason] of this.#reconciler.away) missing[`sandbox.${name}`] = reason;
    return missing;
  }

  /** Runs one reconciler pass now, or joins the running one. Passes also run every few minutes. */
  async reconcile(): Promise<void> {
    await this.#reconciler.run();
  }

  /** Schedules an early reconciler pass, after a failed write or an unfinished operation. */
  reconcileSoon(): void {
    this.#reconciler.soon();
  }

  /**
   * Flushes pending writes, ends included, for one instance or for all. Waits at most 1 s, so that a stalled
   * disk does not block reads.
   */
  async recorded(id?: string): Promise<void> {
    if (id !== undefined) {
      const ending = this.#endings.get(id);
      if (ending !== undefined || this.#records.isWaiting(id))
        await endsWithin(ending ?? this.#records.settle(id), RECORDED_MS);
      return;
    }
    if (this.#records.isEmpty && this.#following.size === 0 && this.#endings.size === 0) return;
    const rows = Array.from(this.#following, row => row.written().catch(() => false));
    await endsWithin(Promise.all([this.#records.settleAll(), ...rows, ...this.#endings.values()]), RECORDED_MS);
  }

  /**
   * Returns true if the write that this instance runs is pending, and starts that write. Later writes come
   * after it, so a caller that changes the record need not wait for it.
   */
  isBeingRecorded(id: string): boolean {
    if (!this.#records.isWaiting(id)) return false;
    void this.#records.settle(id);
    return true;
  }

  /**
   * Stops searching for recovered instances. Returns how many of this kind were still unanswered; their
   * sandboxes stay.
   */
  async settle(kind: OwnerKind): Promise<number> {
    this.#isStopping = true;
    const [unanswered] = await Promise.all([
      this.#adoptions.abandonAll(kind),
      this.#reconciler.close(),
      this.#records.settleAll(),
    ]);
    return unanswered;
  }

  /** Detaches all instances and keeps their sandboxes. Never rejects. */
  async close(why: string): Promise<void> {
    if (this.#isClosed) return;
    this.#isClosed = true;
    this.#closing.abort(OVER);
    await Promise.all([...this.#owners.keys()].map(kind => this.settle(kind)));
    this.#removals.close();
    for (const kind of this.#owners.keys()) this.detach(kind, why);
  }

  /** Returns the running instances of a kind that take calls. */
  liveOf(kind: OwnerKind): ReadonlyMap<string, LiveInstance> {
    return this.#live[kind];
  }

  /** Returns the record of a live instance without reading storage. */
  recordOf(live: LiveInstance): InstanceRecord | undefined {
    const row = this.#rowsOfLive.get(live);
    return row && { ...row, status: 'RUNNING', handle: live.handle };
  }

  /** See `InstancesOptions.rowsFollow`. */
  get rowsFollow(): InstancesOptions['rowsFollow'] {
    return this.#options.rowsFollow;
  }

  /** Returns true if an agent or an instance of a function takes calls in this process. */
  isLive(id: string): boolean {
    return this.#live.agent.has(id) || this.#live.function.has(id);
  }

  /** Detaches all instances of a kind and keeps their sandboxes; open calls end with `why`. */
  detach(kind: OwnerKind, why: string): void {
    for (const live of this.#live[kind].values()) live.detach(why);
    this.#live[kind].clear();
  }

  /** Locks an instance against other parts of this process until the returned function is called. */
  hold(id: string): () => void {
    this.#held.add(id);
    return () => void this.#held.add(id, -1);
  }

  isHeld(id: string): boolean {
    return this.#held.has(id);
  }

  /** Returns the intent of an instance of this node that has had no sandbox yet. */
  draft(given: Draft): StoredInstance {
    const { owner, tenant, sandbox, sandboxType, concurrency = 0, maxCallMs = 0, spec = '{}' } = given;
    return {
      id: sandbox.instanceId,
      owner,
      tenant,
      status: 'CREATING',
      statusReason: '',
      loadError: '',
      epoch: 1,
      nodeId: this.#options.nodeId,
      sandboxType,
      cpuMillis: sandbox.cpuMillis,
      memoryMb: sandbox.memoryMb,
      concurrency,
      maxCallMs,
      spec,
      sandbox: NO_SANDBOX,
      handle: null,
      secret: sandbox.secret,
      createdAtMs: this.#now(),
      startedAtMs: 0,
      restartsInRow: 0,
      restartAtMs: 0,
    };
  }

  /**
   * Writes the intent of an instance, CREATING. Returns false if its name or its idempotency key is taken.
   */
  intend(instance: StoredInstance, agent?: AgentIdentity): Promise<boolean> {
    return this.rows.insert(instance, agent);
  }

  /**
   * Writes the intent together with the sandbox, or after a short delay without it. Only if no other process
   * writes records (`rowsFollow`), and for an agent whose name is claimed. `over` is called when the claim
   * may end.
   */
  intendLater(instance: StoredInstance, agent?: AgentIdentity, over?: () => void): LateRow {
    const row = new LateRow({
      write: placed => this.rows.insert({ ...instance, ...placed }, agent),
      never: reason => this.rows.neverInserted(instance, agent, reason),
      over: () => {
        this.#following.delete(row);
        over?.();
      },
    });
    this.#following.add(row);
    return row;
  }

  /**
   * Writes the intent for an owner with a lease. Fails with `unavailable` and writes nothing if the lease is
   * lost.
   */
  async intendUnder(lease: Lease, instance: StoredInstance): Promise<void> {
    const { insertUnder } = this.#options;
    if (insertUnder === undefined) await this.rows.insert(instance);
    else {
      await insertUnder(lease, instance);
      this.rows.inserted(instance);
    }
  }

  /**
   * Starts the sandbox of a locked CREATING instance, connects to its runtime and loads its code, within the
   * create budget. The instance is RUNNING afterwards and takes calls. Fails with the cause, with the reason
   * of `signal`, or with `deadline_exceeded`. The sandbox is removed then. The record is deleted, or FAILED
   * if the instance had a sandbox before.
   */
  async launch(record: StoredInstance, start: Start, signal: AbortSignal): Promise<Launched> {
    const { createTimeoutMs, metrics } = this.#options;
    const { driver, sandbox, init, accept, stages, intent, row: following } = start;
    const startedMs = performance.now();
    const budgetMs = driver.startBudgetMs?.(sandbox, createTimeoutMs) ?? createTimeoutMs;
    const late = () => deadlineExceeded(`the instance did not start within ${budgetMs / 1000} s`);
    let outcome: 'created' | 'failed' = 'failed';
    try {
      const discard = (handle: SandboxHandle) => this.#removals.discard(driver, handle);
      const placed = following && ((started: StartedSandbox) => following.begin(this.#placedOf(started)));
      const begin = (budget: AbortSignal) => launch({ driver, spec: sandbox, init, stages, placed }, budget, discard);
      const launched = await withDeadline(budgetMs, begin, signal, late);
      outcome = 'created';
      const { started, channel, loadFailure, loadMs } = launched;
      const live = this.#newLive(record, driver, started.handle, sandbox.secret, channel);
      try {
        accept?.(loadFailure);
        await intent;
        if (following !== undefined) {
          if (!(await following.written())) throw instanceNotFound(record.id);
          signal.throwIfAborted();
        }
        const facts = {
          ...factsOf(started, loadFailure?.message ?? '', this.#now()),
          ...(following?.startedAtMs && { startedAtMs: following.startedAtMs }),
        };
        if (following?.startedAtMs && loadFailure === null) this.#recordLater(record);
        else {
          const row = { ...rowOf(facts, started, sandbox.secret), restartAtMs: 0 };
          if (!(await this.#isRunning(record, row, start.takesName)))
            throw signal.reason ?? instanceNotFound(record.id);
        }
        stages?.end('record');
        this.#add(live, { ...record, startedAtMs: facts.startedAtMs });
        return { live, facts, loadMs };
      } catch (error) {
        live.detach(messageOf(error));
        if (error instanceof OutcomeUnknown) throw error;
        // Without a record the reconciler cannot find this sandbox, so remove it now.
        await this.#removals.discard(driver, started.handle);
        throw error;
      }
    } catch (error) {
      if (error instanceof OutcomeUnknown) {
        // If the write succeeded, the agent has the name: the reconciler adopts the sandbox, or else removes
        // it.
        this.#reconciler.soon();
        throw error;
      }
      const cause = explained(error, start.explain);
      await intent?.catch(() => undefined);
      if ((await following?.cancel(messageOf(cause))) !== false) await this.undo(record, cause);
      throw cause;
    } finally {
      metrics?.created(driver.name, outcome, performance.now() - startedMs);
    }
  }

  /**
   * Makes a RUNNING instance of an earlier server live. Concurrent callers share one search. Resolves with
   * undefined if the instance is dead or being ended. Rejects if the driver does not answer or the runtime is
   * slow; a slow runtime is awaited in the background.
   */
  adopt(record: InstanceRecord): Promise<LiveInstance | undefined> {
    const live = this.#live[record.owner.kind].get(record.id);
    return live ? Promise.resolve(live) : this.#adoptions.adopt(record);
  }

  /**
   * Records a failed start after its sandbox is removed; with `keepsSandbox` the record keeps the sandbox.
   * Returns once that is written, or after 1 s. The write is then retried in the background, up to `UNDO_MS`.
   * Never rejects.
   */
  async undo(record: InstanceRef, error: unknown, keepsSandbox = false): Promise<void> {
    const undone = () =>
      record.epoch === 1
        ? this.#forget(record, messageOf(error))
        : this.rows.move(record, 'startFailed', {
            statusReason: restartFailed(error),
            ...(keepsSandbox ? {} : { handle: null, sandbox: NO_SANDBOX }),
          });
    const release = this.hold(record.id);
    const tried = withDeadline(UNDO_MS, signal => untilWritten(undone, signal, () => undefined), this.#closing.signal);
    const written = this.#unlessWritten(record.id, tried).finally(release);
    const isInTime = await endsWithin(written, RECORDED_MS);
    // The write is late, or the record is RUNNING because of a write whose answer was lost. The reconciler
    // decides.
    if (!isInTime || (record.epoch > 1 && !(await written))) void written.then(() => this.#reconciler.soon());
  }

  /** Deletes the record in either state: RUNNING may be stored although the caller received a failure. */
  async #forget(record: InstanceRef, reason: string): Promise<boolean> {
    return (await this.rows.end(record, 'forgotten', reason)) || (await this.rows.end(record, 'discarded', reason));
  }

  /**
   * Ends and removes the sandbox of an instance, if it has one. Open calls fail with `instance exited:
   * <why>`. The record is not changed. `stopped`, which must not reject, is called before the removal.
   * `stages` measures each step. Rejects if the sandbox was not removed.
   */
  async endSandbox(
    record: InstanceRecord,
    graceMs: number,
    why: string,
    { stopped, cleared, stages }: Ending = {},
  ): Promise<void> {
    const taken = this.take(record);
    const live = taken?.epoch === record.epoch ? taken : undefined;
    // A live sandbox of another epoch is only detached.
    if (live === undefined) taken?.detach(`instance exited: ${why}`);
    // A live instance has its driver at hand, so it can be ended even while the driver source fails.
    const driver = live?.driver ?? (await this.#options.drivers(record.sandboxType));
    const handle = live?.handle ?? record.handle;
    if (handle === null) return;
    try {
      const ended = live ? live.terminate(graceMs, why, stages) : driver.stop(handle, graceMs);
      await stopsInTime(ended, driver, graceMs);
    } catch (error) {
      // Removing kills what still runs; if that fails too, its error is thrown.
      this.#options.log.warn({ instanceId: record.id, err: error }, 'sandbox stop failed');
    }
    stages?.end('end');
    await stopped?.(driver, handle);
    await removeSandbox(driver, handle, cleared);
    stages?.end('remove');
  }

  /** Ends and removes a live instance and deletes its record. Never rejects: retries after a failure. */
  async discard(live: LiveInstance, graceMs: number, why: string): Promise<void> {
    // Otherwise the reconciler would find a running sandbox without an owner and adopt it.
    const release = this.hold(live.id);
    try {
      this.take(live);
      await live.terminate(graceMs, why).catch(() => undefined);
      await this.#removals.discard(live.driver, live.handle);
      // A pending RUNNING write must come first: a CREATING record cannot be discarded.
      await this.#records.settle(live.id);
      await this.#unlessWritten(live.id, this.rows.end(live, 'discarded', why));
    } finally {
      release();
    }
  }

  /** Yields the output of the instance's sandbox; nothing if there is no sandbox. */
  async *logs(id: string, request: LogRequest, signal: AbortSignal): AsyncIterable<Buffer> {
    const record = await this.rows.find(id);
    if (record?.handle == null) return;
    const driver = await this.#options.drivers(record.sandboxType);
    yield* driver.logs(record.handle, request, signal);
  }

  /**
   * Writes RUNNING in the background. The record already names the sandbox, so a server that restarts now
   * adopts it.
   */
  #recordLater(record: InstanceRef): void {
    const release = this.hold(record.id);
    this.#records.later(record.id, async () => {
      try {
        // The result is false if the instance is being deleted.
        await this.#unlessWritten(record.id, this.rows.move(record, 'started'));
      } finally {
        release();
      }
    });
  }

  /** Undoes an interrupted start of an earlier server whose id no client received. */
  async #undoCutOff(record: InstanceRecord): Promise<void> {
    const driver = await this.#options.drivers(record.sandboxType);
    if (record.handle !== null) {
      await removeSandbox(driver, record.handle);
    }
    await this.rows.end(record, 'forgotten');
    this.#owners.get(record.owner.kind)?.ended?.(record, 'the server ended');
  }

  /**
   * Removes an instance from the live ones and cancels its adoption. The caller ends or detaches the result.
   */
  take({ id, owner }: Pick<InstanceRecord, 'id' | 'owner'>): LiveInstance | undefined {
    const map = this.#live[owner.kind];
    const live = map.get(id);
    map.delete(id);
    this.#adoptions.abandon(id);
    return live;
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
    if (takesName !== undefined) return await this.#hasTakenName(record, row, takesName);
    try {
      return await this.rows.move(record, 'started', row);
    } catch (error) {
      const now = await this.rows.find(record.id).catch(() => null);
      if (now?.status === 'RUNNING' && now.epoch === record.epoch) return true;
      throw error;
    }
  }

  /**
   * Writes that an agent runs and has the name. If the outcome is unknown, nothing is undone: the agent that
   * had the name may be STOPPING.
   */
  async #hasTakenName(
    record: InstanceRef,
    row: ReturnType<typeof rowOf>,
    { name, replaced }: NonNullable<Start['takesName']>,
  ): Promise<boolean> {
    try {
      const taken = await this.rows.takeName(record, row, name);
      if (taken.replaced !== null) replaced(taken.replaced);
      return taken.isWritten;
    } catch (error) {
      const now = await this.rows.find(record.id).catch(() => undefined);
      if (now === undefined) throw new OutcomeUnknown('unavailable', messageOf(error), { cause: error });
      if (now?.status !== 'RUNNING' || now.epoch !== record.epoch) throw error;
      this.#reconciler.soon();
      return true;
    }
  }

  async #found(record: InstanceRecord, driver: SandboxDriver, channel: Channel): Promise<LiveInstance | undefined> {
    const { handle, secret } = record;
    if (handle === null) throw new Error('an instance without a sandbox cannot have been found');
    if (isCutOff(record) && !(await this.#hasServed(record, channel))) {
      channel.close();
      await this.#undoCutOff(record);
      return undefined;
    }
    // The watch opens published ports again, so it starts at once if there may be any.
    const live = this.#newLive(record, driver, handle, secret, channel, !mayHavePorts(record));
    this.#add(live, record);
    this.#owners.get(record.owner.kind)?.adopted?.(live, record);
    return live;
  }

  /**
   * Returns true if the interrupted start had finished, and records it as RUNNING. On failure the channel is
   * closed.
   */
  async #hasServed(record: InstanceRecord, channel: Channel): Promise<boolean> {
    try {
      // A client of an instance whose code failed to load gets its response only after RUNNING is written.
      return channel.hello.state === 'ready' && (await this.rows.move(record, 'started'));
    } catch (error) {
      channel.close();
      throw error;
    }
  }

  #newLive(
    record: Pick<StoredInstance, 'id' | 'owner' | 'epoch' | 'tenant' | 'concurrency' | 'maxCallMs'>,
    driver: SandboxDriver,
    handle: SandboxHandle,
    secret: string,
    channel: Channel,
    isWatchedLater = false,
  ): LiveInstance {
    const owner = this.#owners.get(record.owner.kind);
    if (owner === undefined) throw new Error(`nobody owns instances of ${record.owner.kind}s`);
    const { id, epoch, tenant, concurrency, maxCallMs } = record;
    return new LiveInstance({
      id,
      epoch,
      owner: record.owner,
      tenant,
      driver,
      handle,
      secret,
      channel,
      concurrency,
      maxCallMs,
      limiter: owner.limiter,
      silence: this.#options.silence ?? SILENCE_TIMES,
      log: this.#options.log,
      isWatchedLater,
    });
  }

  /** Makes an instance live until it ends by itself. */
  #add(live: LiveInstance, record: Omit<StoredInstance, 'handle'>): void {
    const map = this.#live[live.owner.kind];
    map.set(live.id, live);
    this.#rowsOfLive.set(live, record);
    void live.ended.then(async ({ reason, exitCode }) => {
      if (map.get(live.id) === live) map.delete(live.id);
      await this.#ended({ ...record, handle: live.handle }, reason, exitCode);
    });
  }

  /** Handles a sandbox that ended by itself, was found dead, or was given up. Never rejects. */
  async #ended(record: InstanceRecord, reason: string, exitCode: number | null = null): Promise<void> {
    const { id, owner, sandboxType } = record;
    // Until the record shows the end, a reader of the record would search for the sandbox again.
    const release = this.hold(id);
    const writing = this.#records.settle(id).then(() => this.#writeEnd(record, reason, exitCode));
    this.#endings.set(id, writing);
    let isToTell: boolean;
    try {
      isToTell = await writing;
    } finally {
      this.#endings.delete(id);
      release();
    }
    const told = this.#owners.get(owner.kind);
    told?.ended?.(record, reason);
    // Another operation ends or restarts the instance, or a later reconciler pass finds the end again.
    if (!isToTell) return;
    this.#options.metrics?.exited(sandboxType);
    this.#options.log.warn({ instanceId: id, reason }, 'instance ended by itself');
    told?.exited?.(record);
  }

  /**
   * Writes the end. Returns false if the record has a newer state or the write failed; owners are not
   * notified then. Never rejects.
   */
  async #writeEnd(record: InstanceRecord, reason: string, exitCode: number | null): Promise<boolean> {
    const { id, owner, sandboxType, handle } = record;
    const { drivers, log } = this.#options;
    if (OWNER_RULES[owner.kind].keepsEnded) {
      const more = this.#owners.get(owner.kind)?.exiting?.(record, reason, exitCode);
      return await this.#unlessWritten(id, this.rows.move(record, 'exited', { statusReason: reason, ...more }));
    }
    try {
      if (handle !== null) await this.#removals.discard(await drivers(sandboxType), handle);
    } catch (error) {
      log.warn({ instanceId: id, err: error }, 'removal of ended instance failed; retrying');
      this.#reconciler.soon();
      return true;
    }
    return await this.#unlessWritten(id, this.rows.end(record, 'discarded', reason));
  }

  #placedOf({ facts, handle }: StartedSandbox): Placed {
    return { handle: JSON.stringify(handle), sandbox: facts, startedAtMs: this.#now() };
  }

  /** Returns the result of a write; false if it failed, and the reconciler completes it. */
  async #unlessWritten(id: string, write: Promise<boolean>): Promise<boolean> {
    try {
      return await write;
    } catch (error) {
      this.#options.log.error({ instanceId: id, err: error }, 'cannot write change of instance');
      this.#reconciler.soon();
      return false;
    }
  }
}

/** Thrown when a write may or may not have been executed. */
class OutcomeUnknown extends ServiceError {}

function explained(error: unknown, explain: Start['explain']): unknown {
  if (!(error instanceof ServiceError) || error.code !== 'failed_precondition') return error;
  const message = explain(error.message);
  return message === error.message ? error : failedPrecondition(message, { cause: error });
}
