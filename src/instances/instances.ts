import { NO_SANDBOX, type OwnerKind } from '../core/instance.ts';
import type { Lease } from '../core/lease.ts';
import { OVER, sharedController } from '../lib/linked-signal.ts';
import type { LogRequest, SandboxSpec } from '../sandbox/driver.ts';
import type { Database } from '../storage/database.ts';
import type { AgentIdentity, InstancePatch, InstanceRef, StoredInstance } from '../storage/queries/instances.ts';
import { identityOf, storedIdentityOf } from './changes.ts';
import { Commands } from './commands.ts';
import type { InstanceOwner, InstancesOptions } from './contract.ts';
import type { LiveInstance } from './live-instance.ts';
import { pauseInstance, resumeInstance } from './pausing.ts';
import { Reconciler } from './reconciler.ts';
import type { RecordWriter } from './record-writer.ts';
import { RunnerRegistry } from './registry.ts';
import { Removals } from './removals.ts';
import { type InstanceRecord, InstanceRows } from './rows.ts';
import type { Ending, Launched, RunnerParts } from './runner.ts';
import { putToSleep, type Sleep } from './sleeping.ts';
import type { Start } from './start.ts';
import type { FinalEvent, LastingEvent } from './state.ts';

/** Properties of an instance that an owner requests. */
export interface Draft
  extends Pick<StoredInstance, 'owner' | 'tenant' | 'sandboxType'>,
    Partial<Pick<StoredInstance, 'concurrency' | 'maxCallMs' | 'spec' | 'ttlMs'>> {
  readonly sandbox: SandboxSpec;
}

/**
 * All instances of all owners. Owners request instances and are notified of changes. Each instance has one
 * runner, which starts, adopts, ends and records it. The record is an intent: it is inserted before the
 * sandbox starts, or at the same time if the start is cheap. A start is acknowledged once the record is
 * RUNNING. A sandbox whose record was never inserted is an orphan, and a record whose sandbox never started
 * is undone.
 */
export class Instances {
  readonly rows: InstanceRows;
  readonly commands: Commands;
  readonly #options: InstancesOptions;
  readonly #parts: RunnerParts;
  readonly #registry: RunnerRegistry;
  readonly #reconciler: Reconciler;
  readonly #closing = sharedController();
  #isStarted = false;
  #isStopping = false;
  #isClosed = false;

  constructor(database: Database, options: InstancesOptions) {
    this.#options = options;
    this.rows = new InstanceRows(database, options.nodeId, options.writes);
    this.#parts = {
      ...options,
      rows: this.rows,
      removals: new Removals(options.log),
      owners: {},
      now: options.now ?? Date.now,
      closing: this.#closing.signal,
      isStopping: () => this.#isStopping,
      reconcileSoon: () => this.#reconciler.soon(),
    };
    this.#registry = new RunnerRegistry(this.#parts);
    this.commands = new Commands(this.#parts, this.#registry);
    this.#reconciler = new Reconciler(options, this.#parts, this.#registry);
  }

  /** Registers the owner of the instances of a kind. Must precede `start`. */
  registerOwner(kind: OwnerKind, owner: InstanceOwner): void {
    this.#parts.owners[kind] = owner;
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
   * Waits for pending writes of one instance, or of all. Waits at most 1 s, so that a stalled disk does not
   * block reads.
   */
  async flushed(id?: string): Promise<void> {
    await this.#registry.flushed(id);
  }

  /**
   * Stops searching for recovered instances. Returns how many of this kind were still unanswered; their
   * sandboxes stay.
   */
  async stopAdoptions(kind: OwnerKind): Promise<number> {
    this.#isStopping = true;
    const [unanswered] = await Promise.all([
      this.#registry.abandonAdoptions(kind),
      this.#reconciler.close(),
      this.#registry.flushed(),
    ]);
    return unanswered;
  }

  /** Detaches all instances and keeps their sandboxes. Never rejects. */
  async close(why: string): Promise<void> {
    if (this.#isClosed) return;
    this.#isClosed = true;
    this.#closing.abort(OVER);
    const kinds = Object.keys(this.#parts.owners) as OwnerKind[];
    await Promise.all(kinds.map(kind => this.stopAdoptions(kind)));
    this.#parts.removals.close();
    for (const kind of kinds) this.detach(kind, why);
  }

  /** Returns the live instance with this id and of this kind. */
  live(kind: OwnerKind, id: string): LiveInstance | undefined {
    return this.#registry.live(kind, id);
  }

  /** Returns the live instances of a kind. */
  allLive(kind: OwnerKind): readonly LiveInstance[] {
    return this.#registry.allLive(kind);
  }

  /** Returns the number of live instances of a kind. */
  liveCount(kind: OwnerKind): number {
    return this.#registry.allLive(kind).length;
  }

  /** Returns the record of a live instance without reading storage. */
  recordOf({ id }: LiveInstance): InstanceRecord | undefined {
    return this.#registry.get(id)?.liveRecord;
  }

  /** Returns true if an agent or an instance of a function takes calls in this process. */
  isLive(id: string): boolean {
    return this.#registry.get(id)?.live !== undefined;
  }

  /** Detaches all instances of a kind and keeps their sandboxes; open calls end with `why`. */
  detach(kind: OwnerKind, why: string): void {
    for (const { id } of this.#registry.allLive(kind)) this.#registry.get(id)?.removeLive()?.detach(why);
  }

  /** Locks an instance against other parts of this process until the returned function is called. */
  lock(id: string): () => void {
    return this.#registry.of(id).lock();
  }

  /** Returns the intent of an instance of this node that has had no sandbox yet. */
  draft(given: Draft): StoredInstance {
    const { owner, tenant, sandbox, sandboxType, concurrency = 0, maxCallMs = 0, spec = '{}', ttlMs = 0 } = given;
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
      createdAtMs: this.#parts.now(),
      startedAtMs: 0,
      restartsInRow: 0,
      restartAtMs: 0,
      ttlMs,
      expiresAtMs: 0,
      pausedAtMs: 0,
      wakes: 0,
    };
  }

  /** Returns true if the record may be inserted while the sandbox starts. See `Start.insert`. */
  isCheap({ sandboxType }: Pick<StoredInstance, 'sandboxType'>): boolean {
    return this.#options.cheapDrivers.includes(sandboxType);
  }

  /**
   * Inserts the record of an instance, CREATING. Returns false if its name or its idempotency key is taken.
   */
  intend(instance: StoredInstance, agent?: AgentIdentity): Promise<boolean> {
    return this.#registry.of(instance.id).insert(instance, agent);
  }

  /**
   * Inserts the record for an owner with a lease. Fails with `unavailable` and writes nothing if the lease is
   * lost.
   */
  intendUnder(lease: Lease, instance: StoredInstance): Promise<boolean> {
    const { insertUnder } = this.#options;
    const write =
      insertUnder &&
      (async () => {
        await insertUnder(lease, instance);
        return true;
      });
    return this.#registry.of(instance.id).insert(instance, undefined, write);
  }

  /** Applies an event to the record. See `InstanceRows.move`. */
  move(record: InstanceRecord, event: LastingEvent, patch?: Omit<InstancePatch, 'status'>): Promise<boolean> {
    return this.#writerOf(record).move(record, event, patch);
  }

  /** Applies an event that deletes the record. See `InstanceRows.end`. */
  end(record: InstanceRecord, event: FinalEvent, reason?: string): Promise<boolean> {
    return this.#writerOf(record).end(record, event, reason);
  }

  /** Returns the writer of a record, which may be of an ended agent that has no runner. */
  #writerOf(record: InstanceRecord): RecordWriter {
    const { writer } = this.#registry.of(record.id);
    if (!writer.isPublished) writer.know(storedIdentityOf(record));
    return writer;
  }

  /** Starts a CREATING instance. See `InstanceRunner.start`. */
  launch(record: StoredInstance, start: Start, signal: AbortSignal): Promise<Launched> {
    const { takesName } = start;
    if (takesName === undefined) return this.#registry.of(record.id).start(record, start, signal);
    const replaced: typeof takesName.replaced = agent => {
      if (agent.nodeId === this.#options.nodeId) {
        const { writer } = this.#registry.of(agent.id);
        writer.know(
          identityOf(
            { ...agent, owner: { kind: 'agent', key: agent.id }, tenant: takesName.name.tenant },
            takesName.name,
          ),
        );
        writer.published('end', 'replaced');
      }
      takesName.replaced(agent);
    };
    return this.#registry.of(record.id).start(record, { ...start, takesName: { ...takesName, replaced } }, signal);
  }

  /**
   * Makes a RUNNING instance of an earlier server live. Concurrent callers share one search. Resolves with
   * undefined if the instance is dead or being ended. Rejects if the driver does not answer or the runtime is
   * slow; a slow runtime is awaited in the background.
   */
  adopt(record: InstanceRecord): Promise<LiveInstance | undefined> {
    return this.#registry.of(record.id).adopt(record);
  }

  /** Pauses a RUNNING instance. See `pauseInstance`. */
  pause(record: InstanceRecord): Promise<void> {
    return pauseInstance(this.#registry.of(record.id), record, this.#parts.now(), this.#parts);
  }

  /** Continues a PAUSED instance, which ends at `expiresAtMs` then. See `resumeInstance`. */
  resume(record: InstanceRecord, expiresAtMs: number): Promise<void> {
    return resumeInstance(this.#registry.of(record.id), record, expiresAtMs, this.#parts);
  }

  /** Puts a RUNNING or PAUSED instance to sleep. See `putToSleep`. */
  sleep(record: InstanceRecord, sleep: Sleep): Promise<void> {
    return putToSleep(this.#registry.of(record.id), record, sleep, this.#parts);
  }

  /**
   * Records a failed start after its sandbox is removed; with `keepsSandbox` the record keeps the sandbox.
   * Returns once that is written, or after 1 s. The write is then retried in the background, for a minute.
   * Never rejects.
   */
  undo(record: InstanceRef, error: unknown, keepsSandbox = false): Promise<void> {
    return this.#registry.of(record.id).undo(record, error, keepsSandbox);
  }

  /**
   * Ends and removes the sandbox of an instance, if it has one. Open calls fail with `instance exited:
   * <why>`. The record is not changed. `stopped`, which must not reject, is called before the removal.
   * `stages` measures each step. Rejects if the sandbox was not removed.
   */
  endSandbox(record: InstanceRecord, graceMs: number, why: string, ending?: Ending): Promise<void> {
    return this.#registry.of(record.id).endSandbox(record, graceMs, why, ending);
  }

  /** Ends and removes a live instance and deletes its record. Never rejects: retries after a failure. */
  discard(live: LiveInstance, graceMs: number, why: string): Promise<void> {
    return this.#registry.of(live.id).discard(live, graceMs, why);
  }

  /** Yields the output of the instance's sandbox; nothing if there is no sandbox. */
  async *logs(id: string, request: LogRequest, signal: AbortSignal): AsyncIterable<Buffer> {
    const record = await this.rows.find(id);
    if (record?.handle == null) return;
    const driver = await this.#options.drivers(record.sandboxType);
    yield* driver.logs(record.handle, request, signal);
  }
}
