import { randomBytes, randomUUID } from 'node:crypto';
import { failedPrecondition, messageOf, type ServiceError, unavailable } from '../core/error.ts';
import type { Instance, InstanceSpec } from '../core/instance.ts';
import { LIMITS } from '../core/limits.ts';
import { CallLimiter } from '../instances/call-limiter.ts';
import type { DriverSource, InstanceLog } from '../instances/contract.ts';
import type { Instances, Start } from '../instances/instances.ts';
import type { Ledger } from '../instances/ledger.ts';
import type { LiveInstance } from '../instances/live-instance.ts';
import { instanceNotFound, openCallsFull, tooManyWaiting } from '../instances/refusals.ts';
import { type InstanceRecord, toRecord } from '../instances/rows.ts';
import { type SandboxRules, toStart } from '../instances/sandbox-spec.ts';
import { isAllowed, transitionOf } from '../instances/state.ts';
import { backoffMs, pause } from '../lib/backoff.ts';
import { forEachOf } from '../lib/parallel.ts';
import type { Call, CallOutcome } from '../runtime/channel.ts';
import type { SandboxAccess } from '../sandbox/access.ts';
import type { ExecRequest, ExecResult, LogRequest } from '../sandbox/driver.ts';
import {
  findAgent,
  findAgentByIdempotencyKey,
  findAgentByName,
  forgetIdempotencyKey,
  listAgents,
  listAgentsOfNode,
} from '../storage/agents.ts';
import type { Database } from '../storage/database.ts';
import type { InstanceRef, StoredInstance } from '../storage/instances.ts';
import type { AgentInstances, CreateInstance, InstanceQuery } from './contract.ts';
import { Operations } from './operations.ts';
import {
  createUndone,
  deletedMeanwhile,
  instanceFailed,
  isBeing,
  keyUsed,
  nameTaken,
  noSandbox,
  notRunning,
  serverStopping,
  tooManyStarting,
} from './refusals.ts';

export interface AgentsOptions extends SandboxRules {
  readonly database: Database;
  readonly instances: Instances;
  readonly ledger: Ledger;
  readonly drivers: DriverSource;
  /** Agents are looked after by the node that started them. */
  readonly nodeId: string;
  readonly log: InstanceLog;
  readonly now?: () => number;
  /** Calls of one agent that wait for their turn. */
  readonly maxWaitingCalls: number;
  /** Creates and restarts at the same moment. */
  readonly maxStarting: number;
}

/** Races for a name that a create enters again when the holder vanished before it could be named. */
const MAX_INSERTS = 5;
const PARALLEL_DELETES = 32;
const DELETE_RETRIES = 4;
const DELETE_RETRY = { firstMs: 250, longestMs: 2_000 };

/**
 * The agent instances of this node: their names, their order of events, and who may ask what of them. Storage decides who holds a name and
 * which of two changes wins; the life of their sandboxes is `Instances`'.
 */
export class Agents implements AgentInstances {
  readonly #options: AgentsOptions;
  readonly #now: () => number;
  readonly #instances: Instances;
  readonly #limiter: CallLimiter;
  readonly #operations: Operations;
  /** A call looks here and nowhere else. */
  readonly #live: ReadonlyMap<string, LiveInstance>;
  /** What the machine has promised to the sandbox of each. */
  readonly #promised = new Map<string, Pick<StoredInstance, 'epoch' | 'cpuMillis' | 'memoryMb'>>();
  #isStopping = false;

  constructor(options: AgentsOptions) {
    this.#options = options;
    this.#now = options.now ?? Date.now;
    this.#instances = options.instances;
    this.#limiter = new CallLimiter({
      maxWaitingCalls: options.maxWaitingCalls,
      bytes: options.ledger.openCallBytes,
    });
    this.#operations = new Operations(id => this.#instances.hold(id));
    this.#live = this.#instances.liveOf('agent');
    this.#instances.own('agent', {
      limiter: this.#limiter,
      adopted: (_live, record) => this.#take(record),
      ended: sandbox => this.#give(sandbox),
    });
  }

  get liveInstances(): number {
    return this.#live.size;
  }

  /** Calls that run or wait. */
  get openCalls(): number {
    return this.#limiter.openCalls;
  }

  /**
   * Takes no more work, gives open calls `graceMs` to end, and lets go of the instances, which live on; with
   * `stopAgents` it deletes them instead. Never rejects.
   */
  async close({ stopAgents, graceMs }: { stopAgents: boolean; graceMs: number }): Promise<{ agentsLeft: number }> {
    this.#isStopping = true;
    this.#operations.abortStarts(serverStopping());
    const unanswered = await this.#instances.settle('agent');
    await Promise.all([this.#operations.settled(), this.#limiter.idle(graceMs)]);
    const agentsLeft = stopAgents ? await this.#deleteAll() : this.#live.size + unanswered;
    this.#instances.detach('agent', serverStopping().message);
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
    return toInstance(await this.#record(tenant, id));
  }

  async list(query: InstanceQuery): Promise<{ instances: readonly Instance[]; nextCursor: string | null }> {
    const { limit, cursor, ...filter } = query;
    const { database } = this.#options;
    // One more than asked for tells whether there is a next page.
    const found = await listAgents(database, { ...filter, limit: limit + 1, afterId: cursor });
    const instances = found.slice(0, limit).map(toInstance);
    return { instances, nextCursor: found.length > limit ? (instances.at(-1)?.id ?? null) : null };
  }

  async delete(tenant: string, id: string, graceMs: number | null): Promise<void> {
    const record = await this.#record(tenant, id);
    const before = this.#operations.of(id);
    if (before?.kind === 'delete' || !isAllowed(record.status, 'end')) throw instanceNotFound(id);
    await this.#operations.run(id, 'delete', async () => {
      if (!(await this.#endAnyEpoch(record))) throw instanceNotFound(id);
      if (before !== undefined) {
        before.abort.abort(deletedMeanwhile(before.kind === 'create' ? 'create' : 'restart', id));
        await before.done.catch(() => undefined);
      }
      await this.#tearDown(id, graceMs);
      return undefined;
    });
  }

  async restart(tenant: string, id: string): Promise<Instance> {
    const record = await this.#record(tenant, id);
    if (record.nodeId !== this.#options.nodeId) throw instanceNotFound(id);
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
    const { sandboxType, handle } = await this.#record(tenant, id);
    if (handle === null) throw noSandbox(id);
    const driver = await this.#options.drivers(sandboxType);
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
    // Fails before anything is written when this installation cannot run it at all.
    const start = await this.#startOf(id, spec);
    const intent = this.#instances.draft({
      owner: { kind: 'agent', key: id },
      tenant: spec.tenant,
      sandboxType: spec.sandboxType,
      sandbox: start.sandbox,
      concurrency: spec.concurrency,
      maxCallMs: spec.callTimeoutMs,
      spec: JSON.stringify(spec),
    });
    const { namespace, name } = spec;
    this.#assertMayStart();
    return await this.#operations.run(id, 'create', async signal => {
      if (!(await this.#instances.intend(intent, { namespace, name, idempotency }))) return undefined;
      return await this.#bringUp(intent, start, signal);
    });
  }

  /**
   * Why nothing could be inserted: the instance that the idempotency key stands for, or the error that names the holder.
   * Undefined when the holder went away meanwhile.
   */
  async #holderOfKey({ spec, idempotency }: CreateInstance): Promise<Instance | undefined> {
    const { database } = this.#options;
    if (idempotency) {
      const holder = await findAgentByIdempotencyKey(database, spec.tenant, idempotency.key);
      if (holder && holder.stored.createdAtMs + LIMITS.idempotencyKeepMs <= this.#now()) {
        await forgetIdempotencyKey(database, holder.stored.id);
      } else if (holder) {
        if (holder.requestHash !== idempotency.requestHash) throw keyUsed(idempotency.key);
        const operation = this.#operations.of(holder.stored.id);
        if (operation?.kind === 'create') return await operation.done;
        if (holder.stored.status !== 'CREATING' || holder.stored.epoch > 1) return toInstance(holder.stored);
        // An earlier server was making it: nobody learned of it, and it will go.
        this.#instances.reconcileSoon();
        throw createUndone(idempotency.key);
      }
    }
    const holder = await findAgentByName(database, spec.tenant, spec.namespace, spec.name);
    if (holder) throw nameTaken(toInstance(holder.stored));
    return undefined;
  }

  async #restart(id: string, signal: AbortSignal): Promise<Instance> {
    const record = await this.#find(id);
    if (record === null) throw instanceNotFound(id);
    const next = { ...record, epoch: record.epoch + 1 };
    if (!(await this.#instances.rows.move(record, 'restart', { epoch: next.epoch })))
      throw await this.#whyNoRestart(id);
    let isOldGone = false;
    let start: Start;
    try {
      start = await this.#startOf(id, toInstance(record).spec);
      await this.#instances.endSandbox(record, this.#graceOf(record, null), 'restarted');
      isOldGone = true;
    } catch (error) {
      await this.#instances.undo(next, error, !isOldGone);
      throw error;
    } finally {
      if (isOldGone) this.#give(record);
    }
    return await this.#bringUp({ ...next, handle: null }, start, signal);
  }

  /** It was found neither RUNNING nor FAILED: its delete has begun, or an earlier server was in the middle of something. */
  async #whyNoRestart(id: string): Promise<ServiceError> {
    const record = await this.#find(id);
    if (record === null) return instanceNotFound(id);
    if (record.status === 'CREATING') return isBeing(record.epoch > 1 ? 'restart' : 'create', id);
    return isBeing(record.status === 'STOPPING' ? 'delete' : 'restart', id);
  }

  /** How it gets its sandbox. Fails when this installation cannot run it at all. */
  async #startOf(id: string, spec: InstanceSpec): Promise<Start> {
    return toStart(
      await this.#options.drivers(spec.sandboxType),
      { id, secret: randomBytes(24).toString('base64url') },
      spec,
      this.#options,
    );
  }

  /** Starts the sandbox of an instance that is CREATING, and takes calls for it. */
  async #bringUp(intent: StoredInstance, start: Start, signal: AbortSignal): Promise<Instance> {
    const refusal = this.#options.ledger.refusal({ ...intent, processes: this.#options.maxProcesses });
    if (refusal !== undefined) {
      await this.#instances.undo(intent, refusal);
      throw refusal;
    }
    this.#take(intent);
    try {
      const { facts } = await this.#instances.launch(intent, start, signal);
      return toInstance({ ...intent, ...facts, status: transitionOf('started').to });
    } catch (error) {
      this.#give(intent);
      throw error;
    }
  }

  #take({ id, epoch, cpuMillis, memoryMb }: Pick<StoredInstance, 'id' | 'epoch' | 'cpuMillis' | 'memoryMb'>): void {
    const isCounted = this.#promised.has(id);
    this.#promised.set(id, { epoch, cpuMillis, memoryMb });
    if (isCounted) return;
    this.#options.ledger.take('agent', { cpuMillis, memoryMb, processes: this.#options.maxProcesses });
  }

  /** Nothing is left of this sandbox, nor of an earlier one; a later one of the same agent keeps what it has. */
  #give({ id, epoch }: InstanceRef): void {
    const promised = this.#promised.get(id);
    if (promised === undefined || promised.epoch > epoch) return;
    this.#promised.delete(id);
    const { cpuMillis, memoryMb } = promised;
    this.#options.ledger.give('agent', { cpuMillis, memoryMb, processes: this.#options.maxProcesses });
  }

  /** The instance as a whole ends, whichever of its sandboxes it has: a restart may have begun since it was read. False: it is going. */
  async #endAnyEpoch({ id, epoch }: InstanceRecord): Promise<boolean> {
    if (await this.#instances.rows.move({ id, epoch }, 'end')) return true;
    const now = await this.#find(id);
    return now !== null && now.epoch !== epoch && (await this.#endAnyEpoch(now));
  }

  #graceOf(record: InstanceRecord, graceMs: number | null): number {
    return graceMs ?? Math.max(LIMITS.deleteGraceMs, toInstance(record).spec.preStopTimeoutMs);
  }

  async #tearDown(id: string, graceMs: number | null): Promise<void> {
    try {
      const record = await this.#find(id);
      if (record === null) return;
      await this.#instances.endSandbox(record, this.#graceOf(record, graceMs), 'deleted');
      await this.#instances.rows.end(record, 'removed');
      this.#give(record);
    } catch (error) {
      this.#instances.reconcileSoon();
      const text = `instance ${id} could not be removed yet, and is tried again: ${messageOf(error)}`;
      throw unavailable(text, { cause: error });
    }
  }

  /**
   * Deletes every agent. What a driver does not remove at once is tried again a few times: no look at everything comes after a stop. Returns
   * how many are left; the next start removes them. Never rejects.
   */
  async #deleteAll(): Promise<number> {
    const { database, nodeId, log } = this.#options;
    let left: readonly StoredInstance[] = [];
    try {
      for (let failures = 0; failures <= DELETE_RETRIES; failures++) {
        if (failures > 0) await pause(backoffMs(DELETE_RETRY, failures));
        left = await listAgentsOfNode(database, nodeId);
        await forEachOf(left, PARALLEL_DELETES, async ({ id, tenant, status }) => {
          await (status === 'STOPPING' ? this.#tearDown(id, 0) : this.delete(tenant, id, null)).catch(error => {
            log.warn({ instanceId: id, err: error }, 'an instance could not be deleted');
          });
        });
        left = await listAgentsOfNode(database, nodeId);
        if (left.length === 0) return 0;
      }
    } catch (error) {
      log.error({ err: error }, 'the instances could not be deleted');
    }
    return left.length;
  }

  async #invokeMissing(tenant: string, id: string, call: Call): Promise<CallOutcome> {
    if (this.#isStopping) throw serverStopping();
    const { openCallBytes } = this.#options.ledger;
    const bodyBytes = call.body.length;
    const share = openCallBytes.shareOf(tenant);
    if (!openCallBytes.fits(bodyBytes, share)) {
      share?.release();
      throw openCallsFull();
    }
    let live: LiveInstance;
    openCallBytes.take(bodyBytes, share);
    try {
      live = await this.#adoptMissing(tenant, id, failedBecause =>
        failedBecause === undefined ? instanceNotFound(id) : instanceFailed(id, failedBecause),
      );
    } finally {
      openCallBytes.give(bodyBytes, share);
      share?.release();
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
    const { status, statusReason, nodeId } = record;
    if (status === 'FAILED' && nodeId === this.#options.nodeId) throw notThere(statusReason);
    if (status !== 'RUNNING' || nodeId !== this.#options.nodeId) throw notThere();
    const live = await this.#instances.adopt(record);
    if (live === undefined) throw this.#isStopping ? serverStopping() : notThere();
    return live;
  }

  /** Fails with `not_found` when it does not exist or is another tenant's. */
  async #record(tenant: string, id: string): Promise<InstanceRecord> {
    const record = await this.#find(id);
    if (record === null || record.tenant !== tenant) throw instanceNotFound(id);
    return record;
  }

  async #find(id: string): Promise<InstanceRecord | null> {
    const agent = await findAgent(this.#options.database, id);
    return agent && toRecord(agent.stored);
  }

  #assertMayStart(): void {
    if (this.#isStopping) throw serverStopping();
    if (this.#operations.starts >= this.#options.maxStarting) throw tooManyStarting();
  }
}

/** An agent as everybody but its driver sees it. */
function toInstance(stored: Omit<StoredInstance, 'handle' | 'secret'>): Instance {
  return {
    id: stored.id,
    spec: JSON.parse(stored.spec) as InstanceSpec,
    status: stored.status,
    statusReason: stored.statusReason,
    loadError: stored.loadError,
    restarts: stored.epoch - 1,
    createdAtMs: stored.createdAtMs,
    startedAtMs: stored.startedAtMs,
    nodeId: stored.nodeId,
    sandbox: stored.sandbox,
  };
}
