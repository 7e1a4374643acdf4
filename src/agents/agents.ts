import { randomBytes, randomUUID } from 'node:crypto';
import { failedPrecondition, messageOf, type ServiceError, unavailable } from '../core/error.ts';
import { type Instance, NO_SANDBOX } from '../core/instance.ts';
import { LIMITS } from '../core/limits.ts';
import { CallRoom } from '../instances/call-room.ts';
import type { LiveInstance } from '../instances/live-instance.ts';
import { LiveInstances } from '../instances/live-instances.ts';
import { Reconciler } from '../instances/reconciler.ts';
import { Removals } from '../instances/removals.ts';
import { toSandboxSpec } from '../instances/sandbox-spec.ts';
import { Starter } from '../instances/starter.ts';
import { within } from '../lib/deadline.ts';
import { forEachOf } from '../lib/parallel.ts';
import type { Call, CallOutcome } from '../runtime/channel.ts';
import type { SandboxAccess } from '../sandbox/access.ts';
import type { ExecRequest, ExecResult, LogRequest, SandboxDriver, SandboxSpec } from '../sandbox/driver.ts';
import type { CreateInstance, InstanceQuery, Instances } from './contract.ts';
import { isAllowed, transitionOf } from './instance.ts';
import { Operations } from './operations.ts';
import type { SchedulerOptions } from './options.ts';
import { type InstanceRecord, InstanceRecords } from './records.ts';
import {
  createUndone,
  deletedMeanwhile,
  instanceFailed,
  instanceNotFound,
  isBeing,
  keyUsed,
  nameTaken,
  noSandbox,
  notRunning,
  openCallsFull,
  serverStopping,
  tooManyStarting,
  tooManyWaiting,
} from './refusals.ts';

/** Races for a name that a create enters again when the holder vanished before it could be named. */
const MAX_INSERTS = 5;
const PARALLEL_DELETES = 32;
/** What a driver may take beyond the grace to kill a sandbox, and to remove it. */
const STOP_MS = 15_000;
const REMOVE_MS = 30_000;

/**
 * The agent instances of this node: the only way in to them. Storage decides who holds a name and which of two changes
 * wins; the map of live instances is what calls need, and nothing else.
 */
export class Scheduler implements Instances {
  readonly #options: SchedulerOptions;
  readonly #now: () => number;
  readonly #records: InstanceRecords;
  readonly #room: CallRoom;
  readonly #removals: Removals;
  readonly #starter: Starter;
  readonly #reconciler: Reconciler;
  readonly #operations = new Operations();
  readonly #lives: LiveInstances;
  /** The map of `#lives`: a call looks here and nowhere else. */
  readonly #live: ReadonlyMap<string, LiveInstance>;
  #isStarted = false;
  #isStopping = false;

  constructor(options: SchedulerOptions) {
    this.#options = options;
    this.#now = options.now ?? Date.now;
    this.#records = new InstanceRecords(options.database);
    this.#room = new CallRoom({ maxWaitingCalls: options.maxWaitingCalls, bytes: options.openCallBytes });
    this.#removals = new Removals(options.log);
    this.#starter = new Starter(options, this.#room, this.#removals);
    this.#reconciler = new Reconciler({ ...options, now: this.#now }, this.#records, this.#removals, {
      isBusy: id => this.#operations.of(id) !== undefined || this.#lives.isAdopting(id),
      isLive: id => this.#live.has(id),
      watchAgain: id => this.#live.get(id)?.watchSandbox(),
      adopt: record => this.#lives.adopt(record),
    });
    this.#lives = new LiveInstances({
      ...options,
      records: this.#records,
      room: this.#room,
      isTaken: id => this.#isStopping || this.#operations.of(id) !== undefined,
      onUnwritten: () => this.#reconciler.soon(),
    });
    this.#live = this.#lives.byId;
  }

  /** Adopts what lives and finishes what an earlier server began. Never rejects: what fails is tried again. */
  async start(): Promise<void> {
    await this.#reconciler.run();
    this.#isStarted = true;
  }

  /** One look at everything, now; the same that runs by itself every few minutes. */
  async reconcile(): Promise<void> {
    await this.#reconciler.run();
  }

  /** What is not ready, and why. */
  readiness(): Readonly<Record<string, string>> {
    const missing: Record<string, string> = {};
    if (!this.#isStarted) missing.scheduler = 'looking for instances of an earlier server';
    if (this.#isStopping) missing.scheduler = 'stopping';
    for (const [name, reason] of this.#reconciler.away) missing[`sandbox.${name}`] = reason;
    return missing;
  }

  get liveInstances(): number {
    return this.#live.size;
  }

  /** Calls that run or wait. */
  get openCalls(): number {
    return this.#room.openCalls;
  }

  /**
   * Takes no more work, gives open calls `graceMs` to end, and lets go of the instances, which live on; with
   * `stopAgents` it deletes them instead. Never rejects.
   */
  async close({ stopAgents, graceMs }: { stopAgents: boolean; graceMs: number }): Promise<{ agentsLeft: number }> {
    this.#isStopping = true;
    this.#operations.abortStarts(serverStopping());
    const [unanswered] = await Promise.all([this.#lives.abandonAdoptions(), this.#reconciler.close()]);
    await Promise.all([this.#operations.settled(), this.#room.idle(graceMs)]);
    if (stopAgents) await this.#deleteAll();
    this.#removals.close();
    const agentsLeft = this.#live.size + (stopAgents ? 0 : unanswered);
    this.#lives.detachAll(serverStopping().message);
    return { agentsLeft };
  }

  async create(request: CreateInstance): Promise<Instance> {
    for (let attempt = 0; attempt < MAX_INSERTS; attempt++) {
      const instance = (await this.#tryCreate(request)) ?? (await this.#holderOfKey(request));
      if (instance) return instance;
    }
    const { namespace, name } = request.spec;
    throw unavailable(`agent ${namespace}/${name} is created and deleted all the time`);
  }

  invoke(tenant: string, id: string, call: Call): Promise<CallOutcome> {
    const live = this.#live.get(id);
    if (live !== undefined && live.tenant === tenant && !this.#isStopping) return live.call(call);
    return this.#invokeMissing(tenant, id, call);
  }

  refusal(tenant: string, id: string): ServiceError | undefined {
    const live = this.#live.get(id);
    return live !== undefined && live.tenant === tenant && live.isFull ? tooManyWaiting() : undefined;
  }

  async get(tenant: string, id: string): Promise<Instance> {
    return (await this.#record(tenant, id)).instance;
  }

  async list(query: InstanceQuery): Promise<{ instances: readonly Instance[]; nextCursor: string | null }> {
    const { limit, cursor, ...filter } = query;
    // One more than asked for tells whether there is a next page.
    const found = await this.#records.list({ ...filter, limit: limit + 1, afterId: cursor });
    const instances = found.slice(0, limit);
    return { instances, nextCursor: found.length > limit ? (instances.at(-1)?.id ?? null) : null };
  }

  async delete(tenant: string, id: string, graceMs: number | null): Promise<void> {
    const { instance } = await this.#record(tenant, id);
    const before = this.#operations.of(id);
    if (before?.kind === 'delete' || !isAllowed(instance.status, 'delete')) throw instanceNotFound(id);
    await this.#operations.run(id, 'delete', async () => {
      if (!(await this.#records.move(id, 'delete'))) throw instanceNotFound(id);
      if (before !== undefined) {
        before.abort.abort(deletedMeanwhile(before.kind === 'create' ? 'create' : 'restart', id));
        await before.done.catch(() => undefined);
      }
      await this.#tearDown(id, graceMs);
      return undefined;
    });
  }

  async restart(tenant: string, id: string): Promise<Instance> {
    const { instance } = await this.#record(tenant, id);
    if (instance.nodeId !== this.#options.nodeId) throw instanceNotFound(id);
    const before = this.#operations.of(id);
    if (before !== undefined) throw isBeing(before.kind, id);
    this.#assertMayStart();
    return await this.#operations.run(id, 'restart', signal => this.#restart(id, signal));
  }

  async exec(tenant: string, id: string, request: ExecRequest, signal: AbortSignal): Promise<ExecResult> {
    const { driver, handle } = await this.#running(tenant, id);
    return await driver.exec(handle, request, signal);
  }

  async access(tenant: string, id: string): Promise<SandboxAccess> {
    const { driver, handle } = await this.#running(tenant, id);
    if (driver.access === undefined)
      throw failedPrecondition(`sandboxes of type ${driver.name} have no files or ports`);
    return driver.access(handle);
  }

  async logs(tenant: string, id: string, request: LogRequest, signal: AbortSignal): Promise<AsyncIterable<Buffer>> {
    const { instance, handle } = await this.#record(tenant, id);
    if (handle === null) throw noSandbox(id);
    const driver = await this.#options.drivers(instance.spec.sandboxType);
    return driver.logs(handle, request, signal);
  }

  async #running(tenant: string, id: string): Promise<LiveInstance> {
    const live = this.#live.get(id) ?? (await this.#adoptMissing(tenant, id, () => notRunning(id)));
    if (live.tenant !== tenant) throw instanceNotFound(id);
    return live;
  }

  /** Undefined when the name or the idempotency key is taken. */
  async #tryCreate({ spec, idempotency }: CreateInstance): Promise<Instance | undefined> {
    const id = randomUUID();
    const secret = newSecret();
    // Both fail before anything is written when this installation cannot run it at all.
    const sandboxSpec = toSandboxSpec(id, secret, spec, this.#options);
    const driver = await this.#options.drivers(spec.sandboxType);
    const instance: Instance = {
      id,
      spec,
      status: 'CREATING',
      statusReason: '',
      loadError: '',
      restarts: 0,
      createdAtMs: this.#now(),
      startedAtMs: 0,
      nodeId: this.#options.nodeId,
      sandbox: NO_SANDBOX,
    };
    this.#assertMayStart();
    return await this.#operations.run(id, 'create', async signal => {
      if (!(await this.#records.insert({ instance, secret, idempotency }))) return undefined;
      try {
        return await this.#bringUp(driver, instance, sandboxSpec, signal);
      } catch (error) {
        await this.#unlessWritten(id, this.#records.end(id, 'createFailed'));
        throw error;
      }
    });
  }

  /**
   * Why nothing could be inserted: the instance that the idempotency key stands for, or the error that names the holder.
   * Undefined when the holder went away meanwhile.
   */
  async #holderOfKey({ spec, idempotency }: CreateInstance): Promise<Instance | undefined> {
    if (idempotency) {
      const holder = await this.#records.findByIdempotencyKey(spec.tenant, idempotency.key);
      if (holder && holder.instance.createdAtMs + LIMITS.idempotencyKeepMs <= this.#now()) {
        await this.#records.forgetIdempotencyKey(holder.instance.id);
      } else if (holder) {
        if (holder.requestHash !== idempotency.requestHash) throw keyUsed(idempotency.key);
        const operation = this.#operations.of(holder.instance.id);
        if (operation?.kind === 'create') return await operation.done;
        if (holder.instance.status !== 'CREATING' || holder.instance.restarts > 0) return holder.instance;
        // An earlier server was making it: nobody was told of it, and it will go.
        this.#reconciler.soon();
        throw createUndone(idempotency.key);
      }
    }
    const holder = await this.#records.findByName(spec.tenant, spec.namespace, spec.name);
    if (holder) throw nameTaken(holder.instance);
    return undefined;
  }

  async #restart(id: string, signal: AbortSignal): Promise<Instance> {
    const record = await this.#records.find(id);
    const restarts = (record?.instance.restarts ?? 0) + 1;
    if (record === null || !(await this.#records.move(id, 'restart', { restarts }))) throw await this.#whyNoRestart(id);
    let isOldGone = false;
    try {
      const { spec } = record.instance;
      const sandboxSpec = toSandboxSpec(id, newSecret(), spec, this.#options);
      const driver = await this.#options.drivers(spec.sandboxType);
      await this.#endSandbox(driver, record, null, 'restarted');
      isOldGone = true;
      return await this.#bringUp(driver, { ...record.instance, restarts }, sandboxSpec, signal);
    } catch (error) {
      const statusReason = `the restart failed: ${messageOf(error)}`;
      const sandbox = isOldGone ? { handle: null, sandbox: NO_SANDBOX } : {};
      await this.#unlessWritten(id, this.#records.move(id, 'restartFailed', { statusReason, ...sandbox }));
      throw error;
    }
  }

  /** It was found neither RUNNING nor FAILED: its delete has begun, or an earlier server was in the middle of something. */
  async #whyNoRestart(id: string): Promise<ServiceError> {
    const record = await this.#records.find(id);
    if (record === null) return instanceNotFound(id);
    const { status, restarts } = record.instance;
    if (status === 'CREATING') return isBeing(restarts > 0 ? 'restart' : 'create', id);
    return isBeing(status === 'STOPPING' ? 'delete' : 'restart', id);
  }

  /** Starts a sandbox for an instance that is CREATING, writes that it runs, and takes calls for it. */
  async #bringUp(
    driver: SandboxDriver,
    instance: Instance,
    sandboxSpec: SandboxSpec,
    signal: AbortSignal,
  ): Promise<Instance> {
    const { live, started, loadFailure } = await this.#starter.start(driver, instance.spec, sandboxSpec, signal);
    const facts = {
      statusReason: '',
      loadError: loadFailure?.message ?? '',
      startedAtMs: this.#now(),
      sandbox: started.facts,
    };
    try {
      const row = { ...facts, handle: JSON.stringify(started.handle), secret: sandboxSpec.secret };
      // False: deleted meanwhile.
      if (!(await this.#records.move(instance.id, 'started', row)))
        throw signal.reason ?? instanceNotFound(instance.id);
    } catch (error) {
      // Nobody would ever find this sandbox.
      live.detach(messageOf(error));
      await this.#removals.discard(driver, live.handle);
      throw error;
    }
    this.#lives.add(live);
    return { ...instance, ...facts, status: transitionOf('started').to };
  }

  /** Waits for a write that a later look at everything makes up for when it fails. */
  async #unlessWritten(id: string, write: Promise<boolean>): Promise<void> {
    try {
      await write;
    } catch (error) {
      this.#options.log.error({ instanceId: id, err: error }, 'a change of an instance could not be written');
      this.#reconciler.soon();
    }
  }

  /** Ends and removes the sandbox of an instance, if it has one; open calls fail with `instance exited: <why>`. */
  async #endSandbox(driver: SandboxDriver, record: InstanceRecord, graceMs: number | null, why: string): Promise<void> {
    const { id, spec } = record.instance;
    const grace = graceMs ?? Math.max(LIMITS.deleteGraceMs, spec.preStopTimeoutMs);
    const live = this.#lives.take(id);
    const handle = live?.handle ?? record.handle;
    if (handle === null) return;
    try {
      const ended = live ? live.terminate(grace, why) : driver.stop(handle, grace);
      await within(ended, grace + STOP_MS, `${driver.name} did not stop the sandbox in time`);
    } catch (error) {
      // Removing kills what still runs; if that fails too, it is the error.
      this.#options.log.warn({ instanceId: id, err: error }, 'a sandbox could not be stopped');
    }
    await within(driver.remove(handle), REMOVE_MS, `${driver.name} did not remove the sandbox in time`);
  }

  async #tearDown(id: string, graceMs: number | null): Promise<void> {
    try {
      const record = await this.#records.find(id);
      if (record === null) return;
      const driver = await this.#options.drivers(record.instance.spec.sandboxType);
      await this.#endSandbox(driver, record, graceMs, 'deleted');
      await this.#records.end(id, 'removed');
    } catch (error) {
      this.#reconciler.soon();
      const text = `instance ${id} could not be removed yet, and is tried again: ${messageOf(error)}`;
      throw unavailable(text, { cause: error });
    }
  }

  async #deleteAll(): Promise<void> {
    try {
      const rows = await this.#records.listOfNode(this.#options.nodeId);
      await forEachOf(rows, PARALLEL_DELETES, async ({ instance: { id, spec } }) => {
        await this.delete(spec.tenant, id, null).catch(error => {
          this.#options.log.warn({ instanceId: id, err: error }, 'an instance could not be deleted');
        });
      });
    } catch (error) {
      this.#options.log.error({ err: error }, 'the instances could not be deleted');
    }
  }

  async #invokeMissing(tenant: string, id: string, call: Call): Promise<CallOutcome> {
    if (this.#isStopping) throw serverStopping();
    const { openCallBytes } = this.#options;
    const bodyBytes = call.body.length;
    if (!openCallBytes.fits(bodyBytes)) throw openCallsFull();
    let live: LiveInstance;
    openCallBytes.take(bodyBytes);
    try {
      live = await this.#adoptMissing(tenant, id, failedBecause =>
        failedBecause === undefined ? instanceNotFound(id) : instanceFailed(id, failedBecause),
      );
    } finally {
      openCallBytes.give(bodyBytes);
    }
    return await live.call(call);
  }

  /** The instance that storage knows as RUNNING and this process does not know yet. */
  async #adoptMissing(
    tenant: string,
    id: string,
    notThere: (failedBecause?: string) => ServiceError,
  ): Promise<LiveInstance> {
    const record = await this.#record(tenant, id);
    const { status, statusReason, nodeId } = record.instance;
    if (status === 'FAILED' && nodeId === this.#options.nodeId) throw notThere(statusReason);
    if (status !== 'RUNNING' || nodeId !== this.#options.nodeId) throw notThere();
    const live = await this.#lives.adopt(record);
    if (live === undefined) throw this.#isStopping ? serverStopping() : notThere();
    return live;
  }

  /** Fails with `not_found` when it does not exist or is another tenant's. */
  async #record(tenant: string, id: string): Promise<InstanceRecord> {
    const record = await this.#records.find(id);
    if (record === null || record.instance.spec.tenant !== tenant) throw instanceNotFound(id);
    return record;
  }

  #assertMayStart(): void {
    if (this.#isStopping) throw serverStopping();
    if (this.#operations.starts >= this.#options.maxStarting) throw tooManyStarting();
  }
}

function newSecret(): string {
  return randomBytes(24).toString('base64url');
}
