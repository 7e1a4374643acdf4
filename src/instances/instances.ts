import { deadlineExceeded, failedPrecondition, messageOf, ServiceError } from '../core/error.ts';
import { NO_SANDBOX, type OwnerKind, type SandboxFacts } from '../core/instance.ts';
import type { Lease } from '../core/lease.ts';
import { backoffMs, pause } from '../lib/backoff.ts';
import { endsWithin, withDeadline, within } from '../lib/deadline.ts';
import { OVER, sharedController } from '../lib/linked-signal.ts';
import type { Stages } from '../lib/stages.ts';
import type { Channel } from '../runtime/channel.ts';
import type { CallError, Init } from '../runtime/protocol.ts';
import type { LogRequest, SandboxDriver, SandboxHandle, SandboxSpec, StartedSandbox } from '../sandbox/driver.ts';
import type { Database } from '../storage/database.ts';
import type { AgentIdentity, InstanceRef, StoredInstance } from '../storage/instances.ts';
import { untilWritten } from '../storage/until-written.ts';
import { Adoptions } from './adoptions.ts';
import { InstanceChanges } from './changes.ts';
import { Command, neverBegan } from './command.ts';
import { type InstanceOwner, type InstancesOptions, OWNER_RULES } from './contract.ts';
import { HeldNames } from './held-names.ts';
import { LateRow, type Placed } from './late-row.ts';
import { launch } from './launch.ts';
import { LiveInstance } from './live-instance.ts';
import { Reconciler } from './reconciler.ts';
import { Records } from './records.ts';
import { instanceNotFound, restartFailed } from './refusals.ts';
import { Removals } from './removals.ts';
import { type InstanceRecord, InstanceRows, isCutOff, mayHavePorts } from './rows.ts';

/** What a driver may take beyond the grace to kill a sandbox, and to remove it. */
const STOP_MS = 15_000;
const REMOVE_MS = 30_000;
const LIST_MS = 5_000;
const RECORDED_MS = 1_000;
/** How long it is tried to write that a start has failed; after that a look at everything makes up for it. */
const UNDO_MS = 60_000;
const RETRY = { firstMs: 500, longestMs: 30_000 };

/** How an instance gets its sandbox. */
export interface Start {
  readonly driver: SandboxDriver;
  readonly sandbox: SandboxSpec;
  readonly init: Init;
  /** What a refusal of the driver is followed by; `''`: nothing. */
  readonly hint: string;
  /** Told where the time of the start goes. */
  readonly stages?: Stages;
  /** The write of its intent that is still under way. */
  readonly intent?: Promise<void>;
  /** Its row, when it is to follow the sandbox; that it runs is then written after `launch` has returned. */
  readonly row?: LateRow;
  /** Looks at the result of loading the code before the instance takes calls; when it throws, the start has failed. */
  readonly accept?: (loadFailure: CallError | null) => void;
}

/** What an owner says of an instance that it wants. */
export interface Draft
  extends Pick<StoredInstance, 'owner' | 'tenant' | 'sandboxType'>,
    Partial<Pick<StoredInstance, 'concurrency' | 'maxCallMs' | 'spec'>> {
  readonly sandbox: SandboxSpec;
}

/** Who takes part in the end of a sandbox. */
export interface Ending {
  readonly stopped?: (driver: SandboxDriver, handle: SandboxHandle) => Promise<void>;
  /** As of `SandboxDriver.remove`. */
  readonly cleared?: () => void;
  readonly stages?: Stages | undefined;
}

export interface Launched {
  readonly live: LiveInstance;
  /** As they were written with it. */
  readonly facts: Pick<StoredInstance, 'statusReason' | 'loadError' | 'startedAtMs' | 'sandbox'>;
  /** Loading the code and running its initializer, milliseconds. */
  readonly loadMs: number;
}

/**
 * The life of every instance, whoever owns it: its row is written first, as an intent, then its sandbox starts, or with it where nobody else writes
 * rows; it is watched, adopted after a restart, ended and removed here and nowhere else. Owners ask for instances and hear what became of them.
 * Each change is a compare-and-set on the row's state and epoch, so that a late exit or a slow probe never undoes what came after.
 */
export class Instances {
  readonly rows: InstanceRows;
  /** Null where others write rows too. */
  readonly names: HeldNames | null;
  readonly #options: InstancesOptions;
  readonly #now: () => number;
  readonly #owners = new Map<OwnerKind, InstanceOwner>();
  /** By kind: a call looks in the map of its kind and nowhere else. */
  readonly #live: Readonly<Record<OwnerKind, Map<string, LiveInstance>>> = {
    agent: new Map(),
    function: new Map(),
    job: new Map(),
    build: new Map(),
  };
  /** Another part of this process works on them: leave them alone while they are half-made. */
  readonly #held = new Map<string, number>();
  readonly #adoptions: Adoptions;
  readonly #removals: Removals;
  readonly #reconciler: Reconciler;
  readonly #records = new Records();
  readonly #following = new Set<LateRow>();
  readonly #rowsOfLive = new WeakMap<LiveInstance, Omit<StoredInstance, 'handle'>>();
  /** Instances that have ended, which is being written: never rejects. */
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
    this.rows = new InstanceRows(database, nodeId, changes, this.names);
    this.#removals = new Removals(options.log);
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

  /** Registers who owns the instances of a kind; before `start`. */
  own(kind: OwnerKind, owner: InstanceOwner): void {
    this.#owners.set(kind, owner);
  }

  /** Adopts living instances and finishes the work that an earlier server began. Never rejects: tries again after a failure. */
  async start(): Promise<void> {
    await this.#reconciler.run();
    this.#isStarted = true;
  }

  /** What is not ready, and why. */
  readiness(): Readonly<Record<string, string>> {
    const missing: Record<string, string> = {};
    if (!this.#isStarted) missing.scheduler = 'looking for instances of an earlier server';
    if (this.#isStopping) missing.scheduler = 'stopping';
    for (const [name, reason] of this.#reconciler.away) missing[`sandbox.${name}`] = reason;
    return missing;
  }

  /** One look at everything, now; the same that runs by itself every few minutes. */
  async reconcile(): Promise<void> {
    await this.#reconciler.run();
  }

  /** Something could not be written or finished: look at everything soon. */
  reconcileSoon(): void {
    this.#reconciler.soon();
  }

  /**
   * What was put off for an instance, or for all, is written now, and that it has ended: who reads rows after that sees what everybody was told. Bounded: a disk that
   * stands still does not hold up who reads.
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
   * Whether it is about to be written that this instance runs. That write has begun then, and what is written from now on comes behind it: who
   * changes the row need not wait for it.
   */
  isBeingRecorded(id: string): boolean {
    if (!this.#records.isWaiting(id)) return false;
    void this.#records.settle(id);
    return true;
  }

  /** Stops looking for instances of an earlier server. Returns how many of this kind were still looked for; they live on. */
  async settle(kind: OwnerKind): Promise<number> {
    this.#isStopping = true;
    const [unanswered] = await Promise.all([
      this.#adoptions.abandonAll(kind),
      this.#reconciler.close(),
      this.#records.settleAll(),
    ]);
    return unanswered;
  }

  /** Lets go of everything that is left; it lives on. Never rejects. */
  async close(why: string): Promise<void> {
    if (this.#isClosed) return;
    this.#isClosed = true;
    this.#closing.abort(OVER);
    await Promise.all([...this.#owners.keys()].map(kind => this.settle(kind)));
    this.#removals.close();
    for (const kind of this.#owners.keys()) this.detach(kind, why);
  }

  /** The instances of a kind that run and take calls. */
  liveOf(kind: OwnerKind): ReadonlyMap<string, LiveInstance> {
    return this.#live[kind];
  }

  /** What is on record of one that takes calls, without asking storage. */
  recordOf(live: LiveInstance): InstanceRecord | undefined {
    const row = this.#rowsOfLive.get(live);
    return row && { ...row, status: 'RUNNING', handle: live.handle };
  }

  /** As in the options. */
  get rowsFollow(): InstancesOptions['rowsFollow'] {
    return this.#options.rowsFollow;
  }

  /** Whether an agent, or an instance of a function, takes calls in this process. */
  isLive(id: string): boolean {
    return this.#live.agent.has(id) || this.#live.function.has(id);
  }

  /** Lets go of all of a kind; they live on, and open calls end with `why`. */
  detach(kind: OwnerKind, why: string): void {
    for (const live of this.#live[kind].values()) live.detach(why);
    this.#live[kind].clear();
  }

  /** Keeps everybody else from it until the returned function is called. */
  hold(id: string): () => void {
    this.#held.set(id, (this.#held.get(id) ?? 0) + 1);
    return () => {
      const left = (this.#held.get(id) ?? 1) - 1;
      if (left > 0) this.#held.set(id, left);
      else this.#held.delete(id);
    };
  }

  isHeld(id: string): boolean {
    return this.#held.has(id);
  }

  /** The intent of an instance of this node that has had no sandbox yet. */
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

  /** Writes the intent of an instance, CREATING. False when its name or its idempotency key is taken. */
  intend(instance: StoredInstance, agent?: AgentIdentity): Promise<boolean> {
    return this.rows.insert(instance, agent);
  }

  /**
   * The same once the sandbox is there, or in a moment when it is not. Only where nobody else writes rows (`rowsFollow`), and of an agent for who has
   * claimed its name; `over` is called when the claim may end.
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

  /** The same for an owner that acts under a lease. Fails with `unavailable`, and nothing is written, when the lease is lost. */
  async intendUnder(lease: Lease, instance: StoredInstance): Promise<void> {
    const { insertUnder } = this.#options;
    if (insertUnder === undefined) await this.rows.insert(instance);
    else {
      await insertUnder(lease, instance);
      this.rows.inserted(instance);
    }
  }

  /**
   * Starts the sandbox of an instance that is CREATING and held, connects to its runtime and has its code loaded, within the create budget;
   * it is RUNNING then and takes calls. Fails with the cause, with the reason of `signal`, or with `deadline_exceeded`. Nothing of the
   * sandbox is left then, and the row is gone, or FAILED when it had a sandbox before.
   */
  async launch(record: StoredInstance, start: Start, signal: AbortSignal): Promise<Launched> {
    const { createTimeoutMs, metrics, cpuLatency } = this.#options;
    const { driver, sandbox, init, accept, stages, intent, row: following } = start;
    const startedMs = performance.now();
    // The create of an agent has done so since its request.
    cpuLatency?.lower();
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
          ...this.#factsOf(started, loadFailure?.message ?? ''),
          ...(following?.startedAtMs && { startedAtMs: following.startedAtMs }),
        };
        if (following?.startedAtMs && loadFailure === null) this.#recordLater(record);
        else {
          const row = { ...rowOf(facts, started, sandbox.secret), restartAtMs: 0 };
          if (!(await this.#isRunning(record, row))) throw signal.reason ?? instanceNotFound(record.id);
        }
        stages?.over('record');
        this.#add(live, { ...record, startedAtMs: facts.startedAtMs });
        return { live, facts, loadMs };
      } catch (error) {
        // Nobody would ever find this sandbox.
        live.detach(messageOf(error));
        await this.#removals.discard(driver, started.handle);
        throw error;
      }
    } catch (error) {
      const cause = withHint(error, start.hint);
      await intent?.catch(() => undefined);
      if ((await following?.cancel(messageOf(cause))) !== false) await this.undo(record, cause);
      throw cause;
    } finally {
      metrics?.created(driver.name, outcome, performance.now() - startedMs);
    }
  }

  /**
   * Starts the sandbox of an instance that is CREATING and held, and in which nothing takes calls. Repeats the write that it runs until it
   * succeeds or `closing` aborts: a full disk must not end an instance that may not begin twice. Fails as `launch` does. null: another
   * server has decided its fate meanwhile, and nothing is left here.
   */
  async run(
    record: StoredInstance,
    { driver, sandbox }: Pick<Start, 'driver' | 'sandbox'>,
    signal: AbortSignal,
    closing: AbortSignal,
  ): Promise<Command | null> {
    let started: StartedSandbox;
    try {
      started = await driver.start(sandbox, signal);
    } catch (error) {
      await this.undo(record, error);
      throw error;
    }
    const row = rowOf(this.#factsOf(started, ''), started, sandbox.secret);
    let isOurs: boolean;
    try {
      isOurs = await untilWritten(
        () => this.#hasStarted(record, row),
        closing,
        error =>
          this.#options.log.warn(
            { instanceId: record.id, err: error },
            'the record that an instance runs could not be written yet',
          ),
      );
    } catch (error) {
      if (closing.aborted) throw error;
      // It will never be on record: nobody could find it.
      await this.#removals.discard(driver, started.handle);
      await this.undo(record, error);
      throw error;
    }
    if (isOurs) return this.#command(record, driver, started.handle);
    await this.#removals.discard(driver, started.handle);
    return null;
  }

  /**
   * Finds out how an instance of an earlier server fared that may not begin twice: `never` when nothing of it has run (its row is gone
   * then). Asks again until its driver answers; rejects when `signal` aborts.
   */
  async recover(id: string, signal: AbortSignal): Promise<Command | 'never' | 'gone'> {
    for (let failures = 1; ; failures++) {
      try {
        return await this.#recover(id, signal);
      } catch (error) {
        signal.throwIfAborted();
        this.#options.log.warn({ instanceId: id, err: error }, 'an instance could not be looked for yet');
        await pause(backoffMs(RETRY, failures), signal);
        signal.throwIfAborted();
      }
    }
  }

  /**
   * Makes a RUNNING instance live that an earlier server started, once for all who ask; undefined when it is dead or going. Rejects when
   * its driver does not answer, and when its runtime does not answer soon: then it is waited for in the background.
   */
  adopt(record: InstanceRecord): Promise<LiveInstance | undefined> {
    const live = this.#live[record.owner.kind].get(record.id);
    return live ? Promise.resolve(live) : this.#adoptions.adopt(record);
  }

  /**
   * A start failed, and nothing of its sandbox is left. Returns once that is written, or after a moment: then it is tried on for a while. Never
   * rejects.
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
    // Nobody waits for it any more; or it runs, by a write whose answer was lost: a look at everything finds out what follows.
    if (!isInTime || (record.epoch > 1 && !(await written))) void written.then(() => this.#reconciler.soon());
  }

  /** That it runs may be written although nobody heard so: its caller was told that it does not. */
  async #forget(record: InstanceRef, reason: string): Promise<boolean> {
    return (await this.rows.end(record, 'forgotten', reason)) || (await this.rows.end(record, 'discarded', reason));
  }

  /**
   * Ends and removes the sandbox of an instance, if it has one; open calls fail with `instance exited: <why>`. Its row stays as it is.
   * `stopped`, which never rejects, sees what is left of it before that is removed; `stages` is told where the time goes. Rejects when it
   * could not be removed.
   */
  async endSandbox(
    record: InstanceRecord,
    graceMs: number,
    why: string,
    { stopped, cleared, stages }: Ending = {},
  ): Promise<void> {
    const taken = this.take(record);
    const live = taken?.epoch === record.epoch ? taken : undefined;
    // Of an earlier sandbox: somebody else began the next epoch.
    if (live === undefined) taken?.detach(`instance exited: ${why}`);
    // One that takes calls ends also while its driver cannot be had.
    const driver = live?.driver ?? (await this.#options.drivers(record.sandboxType));
    const handle = live?.handle ?? record.handle;
    if (handle === null) return;
    try {
      const ended = live ? live.terminate(graceMs, why, stages) : driver.stop(handle, graceMs);
      await within(ended, graceMs + STOP_MS, `${driver.name} did not stop the sandbox in time`);
    } catch (error) {
      // Removing kills what still runs; if that fails too, it is the error.
      this.#options.log.warn({ instanceId: record.id, err: error }, 'a sandbox could not be stopped');
    }
    stages?.over('end');
    await stopped?.(driver, handle);
    await within(driver.remove(handle, cleared), REMOVE_MS, `${driver.name} did not remove the sandbox in time`);
    stages?.over('remove');
  }

  /** Ends, removes and forgets a live instance that its owner needs no longer. Never rejects: tries again after a failure. */
  async discard(live: LiveInstance, graceMs: number, why: string): Promise<void> {
    // Else the next look at everything would find one that runs and that nobody has, and adopt it.
    const release = this.hold(live.id);
    try {
      this.take(live);
      await live.terminate(graceMs, why).catch(() => undefined);
      await this.#removals.discard(live.driver, live.handle);
      // It may be about to be written that it runs: until then its row cannot be discarded.
      await this.#records.settle(live.id);
      await this.#unlessWritten(live.id, this.rows.end(live, 'discarded', why));
    } finally {
      release();
    }
  }

  /** Removes what is left of an instance that is over, and its row, which is STOPPING. Never rejects. */
  async remove(command: Command): Promise<void> {
    await this.#removals.discard(command.driver, command.handle);
    await this.#unlessWritten(command.id, this.rows.end(command, 'discarded'));
  }

  /** What its sandbox has written, nothing when there is none. */
  async *logs(id: string, request: LogRequest, signal: AbortSignal): AsyncIterable<Buffer> {
    const record = await this.rows.find(id);
    if (record?.handle == null) return;
    const driver = await this.#options.drivers(record.sandboxType);
    yield* driver.logs(record.handle, request, signal);
  }

  /** Its row has its sandbox, and everybody may learn that it runs: a server that is killed now is followed by one that adopts it. */
  #recordLater(record: InstanceRef): void {
    const release = this.hold(record.id);
    this.#records.later(record.id, async () => {
      try {
        // False: it is being deleted.
        await this.#unlessWritten(record.id, this.rows.move(record, 'started'));
      } finally {
        release();
      }
    });
  }

  /** The start of an earlier server that nobody can have learned of. */
  async #undoCutOff(record: InstanceRecord): Promise<void> {
    const driver = await this.#options.drivers(record.sandboxType);
    if (record.handle !== null) {
      await within(driver.remove(record.handle), REMOVE_MS, `${driver.name} did not remove the sandbox in time`);
    }
    await this.rows.end(record, 'forgotten');
    this.#owners.get(record.owner.kind)?.ended?.(record, 'the server ended');
  }

  /** Takes no more calls for it, and looks for it no longer: its end is the caller's. */
  take({ id, owner }: Pick<InstanceRecord, 'id' | 'owner'>): LiveInstance | undefined {
    const map = this.#live[owner.kind];
    const live = map.get(id);
    map.delete(id);
    this.#adoptions.abandon(id);
    return live;
  }

  async #recover(id: string, signal: AbortSignal): Promise<Command | 'never' | 'gone'> {
    const record = await this.rows.find(id);
    if (record === null || record.status === 'STOPPING') return 'gone';
    const driver = await this.#options.drivers(record.sandboxType);
    if (record.handle !== null) return this.#command(record, driver, record.handle);
    const listed = await within(driver.list(), LIST_MS, `${driver.name} did not answer in time`);
    const found = listed.find(({ instanceId }) => instanceId === id);
    if (found === undefined || (await neverBegan(driver, found.handle, signal))) {
      if (found !== undefined) await this.#removals.discard(driver, found.handle);
      await this.rows.end(record, 'forgotten');
      return 'never';
    }
    await this.rows.move(record, 'started', {
      handle: JSON.stringify(found.handle),
      startedAtMs: this.#now(),
    });
    return this.#command(record, driver, found.handle);
  }

  /** Writes that it runs; true also when it was written before, and the answer was lost. */
  async #hasStarted(record: InstanceRef, row: ReturnType<typeof rowOf>): Promise<boolean> {
    if (await this.rows.move(record, 'started', row)) return true;
    const now = await this.rows.find(record.id);
    return now !== null && now.epoch === record.epoch && JSON.stringify(now.handle) === row.handle;
  }

  /** The same of one whose caller waits: what failed is not written again, but it may be there. */
  async #isRunning(record: InstanceRef, row: ReturnType<typeof rowOf>): Promise<boolean> {
    try {
      return await this.rows.move(record, 'started', row);
    } catch (error) {
      const now = await this.rows.find(record.id).catch(() => null);
      if (now?.status === 'RUNNING' && now.epoch === record.epoch) return true;
      throw error;
    }
  }

  #command({ id, epoch }: InstanceRef, driver: SandboxDriver, handle: SandboxHandle): Command {
    return new Command({ id, epoch }, driver, handle, this.#options.log);
  }

  async #found(record: InstanceRecord, driver: SandboxDriver, channel: Channel): Promise<LiveInstance | undefined> {
    const { handle, secret } = record;
    if (handle === null) throw new Error('an instance without a sandbox cannot have been found');
    if (isCutOff(record) && !(await this.#hasServed(record, channel))) {
      channel.close();
      await this.#undoCutOff(record);
      return undefined;
    }
    // The watch opens published ports again.
    const live = this.#newLive(record, driver, handle, secret, channel, !mayHavePorts(record));
    this.#add(live, record);
    this.#owners.get(record.owner.kind)?.adopted?.(live, record);
    return live;
  }

  /** Whether the start of an earlier server that was cut off had come to its end, which is written now. Nothing is left open when that fails. */
  async #hasServed(record: InstanceRecord, channel: Channel): Promise<boolean> {
    try {
      // One whose code did not load is answered once that is written.
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
      log: this.#options.log,
      isWatchedLater,
    });
  }

  /** Takes calls for it from now on, until it ends by itself. */
  #add(live: LiveInstance, record: Omit<StoredInstance, 'handle'>): void {
    const map = this.#live[live.owner.kind];
    map.set(live.id, live);
    this.#rowsOfLive.set(live, record);
    void live.ended.then(async ({ reason, exitCode }) => {
      if (map.get(live.id) === live) map.delete(live.id);
      await this.#ended({ ...record, handle: live.handle }, reason, exitCode);
    });
  }

  /** A sandbox ended by itself, was found dead, or was given up. Never rejects. */
  async #ended(record: InstanceRecord, reason: string, exitCode: number | null = null): Promise<void> {
    const { id, owner, sandboxType } = record;
    // Until its row says that it has ended, who reads it would look for the sandbox once more.
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
    // It is being ended or restarted by somebody, or a later look at everything finds it again.
    if (!isToTell) return;
    this.#options.metrics?.exited(sandboxType);
    this.#options.log.warn({ instanceId: id, reason }, 'an instance ended by itself');
    told?.exited?.(record);
  }

  /** Whether that is an end to tell of: false when its row says something newer, or could not be written. Never rejects. */
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
      log.warn({ instanceId: id, err: error }, 'the rest of an instance could not be removed yet');
      this.#reconciler.soon();
      return true;
    }
    return await this.#unlessWritten(id, this.rows.end(record, 'discarded', reason));
  }

  #placedOf({ facts, handle }: StartedSandbox): Placed {
    return { handle: JSON.stringify(handle), sandbox: facts, startedAtMs: this.#now() };
  }

  #factsOf({ facts }: StartedSandbox, loadError: string): Launched['facts'] {
    return { statusReason: '', loadError, startedAtMs: this.#now(), sandbox: facts };
  }

  /** What comes of a write that a later look at everything makes up for when it fails: false then, too. */
  async #unlessWritten(id: string, write: Promise<boolean>): Promise<boolean> {
    try {
      return await write;
    } catch (error) {
      this.#options.log.error({ instanceId: id, err: error }, 'a change of an instance could not be written');
      this.#reconciler.soon();
      return false;
    }
  }
}

function withHint(error: unknown, hint: string): unknown {
  if (hint === '' || !(error instanceof ServiceError) || error.code !== 'failed_precondition') return error;
  return failedPrecondition(error.message + hint, { cause: error });
}

function rowOf(facts: { readonly sandbox: SandboxFacts } & object, { handle }: StartedSandbox, secret: string) {
  return { ...facts, handle: JSON.stringify(handle), secret };
}
