import { randomUUID } from 'node:crypto';
import { splitMounts } from '../core/code-package.ts';
import { failedPrecondition, messageOf, type ServiceError, unavailable } from '../core/error.ts';
import type { Instance, InstanceSpec } from '../core/instance.ts';
import { LIMITS } from '../core/limits.ts';
import { type SecretSource, secretsOf } from '../core/secret.ts';
import { CallLimiter } from '../instances/call-limiter.ts';
import type { DriverSource, InstanceLog } from '../instances/contract.ts';
import type { Instances, Start } from '../instances/instances.ts';
import type { LayerPlaces } from '../instances/layer.ts';
import type { Ledger } from '../instances/ledger.ts';
import type { LiveInstance } from '../instances/live-instance.ts';
import { instanceNotFound, openCallsFull, tooManyWaiting } from '../instances/refusals.ts';
import { type InstanceRecord, isCutOff, toRecord } from '../instances/rows.ts';
import { type SandboxRules, toStart, withSecrets } from '../instances/sandbox-spec.ts';
import { isAllowed, transitionOf } from '../instances/state.ts';
import { pause } from '../lib/backoff.ts';
import { timeoutSignal } from '../lib/long-timer.ts';
import { newSecret } from '../lib/new-secret.ts';
import type { Stages } from '../lib/stages.ts';
import { type Call, type CallOutcome, waitedSince, withinTimeOf } from '../runtime/call.ts';
import type { SandboxAccess } from '../sandbox/access.ts';
import type {
  ExecRequest,
  ExecResult,
  LogRequest,
  SandboxDriver,
  SandboxHandle,
  SandboxStats,
} from '../sandbox/driver.ts';
import {
  findAgent,
  findAgentByIdempotencyKey,
  findAgentByName,
  forgetIdempotencyKey,
  isAgentTaken,
  listAgentNames,
  listAgentsOfNode,
} from '../storage/agents.ts';
import type { Database } from '../storage/database.ts';
import type { AgentIdentity, InstanceRef, StoredInstance } from '../storage/instances.ts';
import { AgentCode, type PackagePlaces } from './agent-code.ts';
import { AgentDeletes, graceOf } from './agent-deletes.ts';
import { AgentPromises } from './agent-promises.ts';
import { AgentRecords, toInstance } from './agent-records.ts';
import type { AgentInstances, CreateInstance, InstanceQuery } from './contract.ts';
import { NameClaims } from './name-claims.ts';
import { Operations } from './operations.ts';
import { PolicyRestarts } from './policy-restarts.ts';
import type { PreviousLogs } from './previous-logs.ts';
import {
  createUndone,
  deletedMeanwhile,
  instanceFailed,
  isBeing,
  keyUsed,
  nameTaken,
  nodeNotAnswering,
  noPreviousRun,
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
  /** Whether another node is lost for so long that nobody waits for it. Absent: there is no other node. */
  readonly isLost?: (nodeId: string) => boolean;
  /** Bound of a start. */
  readonly createTimeoutMs: number;
  /** Absent: there are no secrets. */
  readonly secrets?: SecretSource;
  /** Absent: no log outlives its sandbox. */
  readonly previousLogs?: PreviousLogs;
  /** Counts restarts by policies. */
  readonly restarted?: (outcome: 'restarted' | 'failed') => void;
  /** Absent: there are no code packages. */
  readonly packages?: PackagePlaces;
  /** Absent: nothing is installed for code. */
  readonly layers?: LayerPlaces;
  readonly log: InstanceLog;
  readonly now?: () => number;
  /** Calls of one agent that wait for their turn. */
  readonly maxWaitingCalls: number;
  /** Creates and restarts at the same moment. */
  readonly maxStarting: number;
}

/** Races for a name that a create enters again when the holder vanished before it could be named. */
const MAX_INSERTS = 5;
/** How often a create that another node does is looked at. */
const ELSEWHERE_LOOK_MS = 100;
/** How long the log of a sandbox that is about to go may take to be read. */
const KEEP_LOG_MS = 5_000;

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
  readonly #records: AgentRecords;
  readonly #deletes: AgentDeletes;
  readonly #code: AgentCode;
  readonly #promises: AgentPromises;
  readonly #claims = new NameClaims();
  readonly #restarts: PolicyRestarts;
  /** A call looks here and nowhere else. */
  readonly #live: ReadonlyMap<string, LiveInstance>;
  #isStopping = false;

  constructor(options: AgentsOptions) {
    this.#options = options;
    this.#now = options.now ?? Date.now;
    this.#instances = options.instances;
    this.#live = this.#instances.liveOf('agent');
    this.#records = new AgentRecords(options);
    this.#deletes = new AgentDeletes({ ...options, give: sandbox => this.#give(sandbox) }, this.#records);
    this.#limiter = new CallLimiter({
      maxWaitingCalls: options.maxWaitingCalls,
      bytes: options.ledger.openCallBytes,
    });
    this.#code = new AgentCode(options.packages ?? null, options.log, options.layers ?? null);
    this.#promises = new AgentPromises(options.ledger, options.maxProcesses);
    this.#operations = new Operations(id => this.#instances.hold(id));
    this.#restarts = new PolicyRestarts({
      ...options,
      now: this.#now,
      restart: record => this.#operations.run(record.id, 'restart', signal => this.#restart(record.id, signal, record)),
      isBusy: id => this.#operations.of(id) !== undefined,
      refusal: () => this.#refusalOfStart(),
    });
    this.#instances.own('agent', {
      limiter: this.#limiter,
      adopted: (_live, record) => this.#promises.take(record),
      ended: sandbox => this.#give(sandbox),
      exiting: (record, reason, exitCode) => this.#restarts.planned(record, reason, exitCode),
      exited: sandbox => void this.#restarts.ended(sandbox),
      looked: async () => {
        await this.#instances.names?.settle(async id => (await this.#records.find(id)) !== null);
        await this.#restarts.resume();
      },
    });
  }

  /** Before anything is adopted or removed: the code that sandboxes of an earlier server have stays. */
  async start(): Promise<void> {
    const { database, nodeId } = this.#options;
    this.#instances.names?.complete(await listAgentNames(database));
    const agents = await listAgentsOfNode(database, nodeId);
    await this.#options.previousLogs?.sweep(new Set(agents.map(({ id }) => id)));
    for (const stored of agents) {
      if (stored.status !== 'FAILED') this.#code.hold(stored, toInstance(stored).spec);
    }
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
    this.#restarts.close();
    this.#operations.abortStarts(serverStopping());
    const unanswered = await this.#instances.settle('agent');
    await Promise.all([this.#operations.settled(), this.#limiter.idle(graceMs)]);
    await this.#instances.recorded();
    const agentsLeft = stopAgents
      ? await this.#deletes.all(({ id, tenant }) => this.delete(tenant, id, null))
      : this.#live.size + unanswered;
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
    return await this.#records.get(tenant, id);
  }

  async list(query: InstanceQuery): Promise<{ instances: readonly Instance[]; nextCursor: string | null }> {
    return await this.#records.list(query);
  }

  async delete(tenant: string, id: string, graceMs: number | null, stages?: Stages): Promise<void> {
    const runs = this.#instances.isBeingRecorded(id);
    const live = this.#live.get(id);
    const found = (live && this.#instances.recordOf(live)) ?? (await this.#records.find(id));
    if (found?.tenant !== tenant) throw instanceNotFound(id);
    const record: InstanceRecord = runs && found.status === 'CREATING' ? { ...found, status: 'RUNNING' } : found;
    const before = this.#operations.of(id);
    if (before?.kind === 'delete' || !isAllowed(record.status, 'end')) throw instanceNotFound(id);
    if (record.nodeId !== this.#options.nodeId) return await this.#deletes.discard(record);
    this.#restarts.cancel(id);
    await this.#operations.run(id, 'delete', async () => {
      const ending = await this.#deletes.begin(record);
      if (ending === null) throw instanceNotFound(id);
      stages?.over('row');
      if (before !== undefined) {
        before.abort.abort(deletedMeanwhile(before.kind === 'create' ? 'create' : 'restart', id));
        await before.done.catch(() => undefined);
      }
      // One that was being started has another sandbox than it had, or none.
      await this.#deletes.tearDown(
        id,
        graceMs,
        before === undefined && record.status === 'RUNNING' ? ending : undefined,
        stages,
      );
      return undefined;
    });
  }

  async restart(tenant: string, id: string): Promise<Instance> {
    const record = await this.#records.settled(tenant, id);
    this.#records.assertHere(record);
    const before = this.#operations.of(id);
    if (before !== undefined) throw isBeing(before.kind, id);
    this.#assertMayStart();
    return await this.#operations.run(id, 'restart', signal => this.#restart(id, signal));
  }

  async exec(tenant: string, id: string, request: ExecRequest, signal: AbortSignal): Promise<ExecResult> {
    const { driver, handle } = await this.#running(tenant, id);
    return await driver.exec(handle, request, signal);
  }

  async stats(tenant: string, id: string): Promise<SandboxStats> {
    const { driver, handle } = await this.#running(tenant, id);
    return await driver.stats(handle);
  }

  async access(tenant: string, id: string): Promise<SandboxAccess> {
    const { driver, handle } = await this.#running(tenant, id);
    if (driver.access === undefined)
      throw failedPrecondition(`sandboxes of type ${driver.name} have no files or ports`);
    return driver.access(handle);
  }

  async logs(tenant: string, id: string, request: LogRequest, signal: AbortSignal): Promise<AsyncIterable<Buffer>> {
    const record = await this.#records.settled(tenant, id);
    const { sandboxType, handle } = record;
    if (handle === null) throw noSandbox(id);
    this.#records.assertHere(record);
    const driver = await this.#options.drivers(sandboxType);
    return driver.logs(handle, request, signal);
  }

  async previousLog(tenant: string, id: string, run: number, tail: number | null): Promise<string> {
    const record = await this.#records.settled(tenant, id);
    this.#records.assertHere(record);
    const text = await this.#options.previousLogs?.read(id, run, tail);
    if (text == null) throw noPreviousRun(id, run);
    return text;
  }

  async #running(tenant: string, id: string): Promise<LiveInstance> {
    const live = this.#live.get(id) ?? (await this.#adoptMissing(tenant, id, () => notRunning(id)));
    if (live.tenant !== tenant) throw instanceNotFound(id);
    return live;
  }

  /** Undefined when the name or the idempotency key is taken. */
  async #tryCreate({ spec, idempotency, stages }: CreateInstance): Promise<Instance | undefined> {
    const id = randomUUID();
    // Fails before anything is written when this installation cannot run it at all.
    const ref = { id, epoch: 1 };
    const start = { ...(await this.#startOf(ref, spec)), ...(stages && { stages }) };
    stages?.over('checks');
    const intent = this.#instances.draft({
      owner: { kind: 'agent', key: id },
      tenant: spec.tenant,
      sandboxType: spec.sandboxType,
      sandbox: start.sandbox,
      concurrency: spec.concurrency,
      maxCallMs: spec.callTimeoutMs,
      spec: JSON.stringify(spec),
    });
    const identity = { namespace: spec.namespace, name: spec.name, idempotency };
    const { rowsFollow } = this.#instances;
    // Where nobody else writes rows, the claim decides who gets the name, and else the insert does.
    const release = rowsFollow && (await this.#claims.claim(spec, idempotency?.key));
    let isTaken = true;
    try {
      this.#assertMayStart();
      return await this.#operations.run(id, 'create', async signal => {
        const secrets = secretsOf(spec.env);
        const refers = secrets.length > 0 || splitMounts(spec.mounts).packages.length > 0;
        // A removal of a secret or a code package finds who refers to it by the rows.
        const follows = !refers && rowsFollow?.includes(spec.sandboxType) === true;
        isTaken = follows ? await this.#isTaken(spec, identity) : !(await this.#intend(intent, identity));
        stages?.over('row');
        if (isTaken) return undefined;
        if (follows) return await this.#bringUpFirst(intent, start, signal, { identity, over: release });
        release?.();
        if (refers) await this.#confirm(intent, spec, secrets);
        return await this.#bringUp(intent, start, signal);
      });
    } finally {
      release?.();
      if (isTaken) this.#code.release(ref);
    }
  }

  async #isTaken(spec: InstanceSpec, identity: AgentIdentity): Promise<boolean> {
    if (identity.idempotency === undefined && this.#instances.names?.isFree(spec)) return false;
    return await isAgentTaken(this.#options.database, spec.tenant, identity);
  }

  /** False: its name or its idempotency key is taken. Nothing stays of a row whose write was not confirmed. */
  async #intend(intent: StoredInstance, identity: AgentIdentity): Promise<boolean> {
    try {
      return await this.#instances.intend(intent, identity);
    } catch (error) {
      // Once: many creates fail together. What is there all the same is forgotten by a look at everything.
      await this.#instances.rows.end(intent, 'forgotten', messageOf(error)).catch(() => undefined);
      this.#instances.reconcileSoon();
      throw error;
    }
  }

  /** What it names may have been removed since it was looked up, and before the row was there. Rejects when nothing is left of it. */
  async #confirm(intent: StoredInstance, spec: InstanceSpec, secrets: readonly string[]): Promise<void> {
    try {
      if (secrets.length > 0) await this.#options.secrets?.check(intent.tenant, secrets);
      await this.#code.confirm(spec);
    } catch (error) {
      this.#code.release(intent);
      await this.#instances.undo(intent, error);
      throw error;
    }
  }

  /** The same of one whose row follows its sandbox. Undefined when its name was taken all the same. */
  async #bringUpFirst(
    intent: StoredInstance,
    start: Start,
    signal: AbortSignal,
    options: { readonly identity: AgentIdentity; readonly over: (() => void) | undefined },
  ): Promise<Instance | undefined> {
    const row = this.#instances.intendLater(intent, options.identity, options.over);
    try {
      return await this.#bringUp(intent, { ...start, row }, signal);
    } catch (error) {
      if (row.isTaken) return undefined;
      throw error;
    }
  }

  /**
   * Why nothing could be inserted: the instance that the idempotency key stands for, or the error that names the holder.
   * Undefined when the holder went away meanwhile.
   */
  async #holderOfKey({ spec, idempotency }: CreateInstance): Promise<Instance | undefined> {
    const { database } = this.#options;
    await this.#instances.recorded();
    if (idempotency) {
      const holder = await findAgentByIdempotencyKey(database, spec.tenant, idempotency.key);
      if (holder && holder.stored.createdAtMs + LIMITS.idempotencyKeepMs <= this.#now()) {
        await forgetIdempotencyKey(database, holder.stored.id);
      } else if (holder) {
        if (holder.requestHash !== idempotency.requestHash) throw keyUsed(idempotency.key);
        const operation = this.#operations.of(holder.stored.id);
        if (operation?.kind === 'create') return await operation.done;
        if (holder.stored.status !== 'CREATING' || holder.stored.epoch > 1) return toInstance(holder.stored);
        if (holder.stored.nodeId !== this.#options.nodeId) return await this.#createdElsewhere(holder.stored);
        const holding = toRecord(holder.stored);
        const live = isCutOff(holding) ? await this.#instances.adopt(holding) : undefined;
        if (live !== undefined) return await this.#records.get(spec.tenant, holding.id);
        // An earlier server was making it: nobody learned of it, and it will go.
        this.#instances.reconcileSoon();
        throw createUndone(idempotency.key);
      }
    }
    const holder = await findAgentByName(database, spec.tenant, spec.namespace, spec.name);
    if (holder) throw nameTaken(toInstance(holder.stored));
    return undefined;
  }

  /** What comes of a create that another node does; undefined when it failed. */
  async #createdElsewhere({ id, nodeId }: StoredInstance): Promise<Instance | undefined> {
    const untilMs = performance.now() + this.#options.createTimeoutMs;
    while (performance.now() < untilMs && this.#options.isLost?.(nodeId) !== true) {
      await pause(ELSEWHERE_LOOK_MS);
      const agent = await findAgent(this.#options.database, id);
      if (agent === null) return undefined;
      if (agent.stored.status !== 'CREATING') return toInstance(agent.stored);
    }
    throw nodeNotAnswering(id);
  }

  /** `planned`: by its policy, if it is still as it was then. */
  async #restart(id: string, signal: AbortSignal, planned?: StoredInstance): Promise<Instance> {
    const record = await this.#records.find(id);
    if (record === null || (planned !== undefined && record.epoch !== planned.epoch)) throw instanceNotFound(id);
    if (!isAllowed(record.status, 'restart')) throw await this.#whyNoRestart(id);
    // By somebody: what its policy counts begins anew.
    const { restartsInRow, restartAtMs } = planned ?? { restartsInRow: 0, restartAtMs: 0 };
    const next = { ...record, epoch: record.epoch + 1, restartsInRow, restartAtMs };
    // Before anything is changed: an agent that could not start again goes on as it is.
    const start = await this.#startOf(next, toInstance(record).spec);
    await this.#beginNext(record, next, signal);
    if (planned === undefined) this.#restarts.cancel(id);
    try {
      // Once it has stopped: until then what it has written may be on its way into the log.
      await this.#instances.endSandbox(record, graceOf(record, null), 'restarted', {
        stopped: (driver, handle) => this.#keepLog(driver, handle),
      });
    } catch (error) {
      await this.#code.undo(next);
      await this.#instances.undo(next, error, true);
      // It takes no calls, and something of it may run still: that is ended by a look at everything, which gives its promise and its code back.
      this.#instances.reconcileSoon();
      throw error;
    }
    this.#code.release(record);
    return await this.#bringUp({ ...next, handle: null }, start, signal);
  }

  /** From here on it has another sandbox, or fails. Rejects when it may not be restarted: what was placed for `next` is given back. */
  async #beginNext(record: InstanceRecord, next: InstanceRecord, signal: AbortSignal): Promise<void> {
    const { epoch, restartsInRow, restartAtMs } = next;
    try {
      signal.throwIfAborted();
      const hasBegun = await this.#instances.rows.move(record, 'restart', { epoch, restartsInRow, restartAtMs });
      if (!hasBegun) throw await this.#whyNoRestart(record.id);
    } catch (error) {
      await this.#code.undo(next);
      // Perhaps it was written: then nobody works on what the row says.
      this.#instances.reconcileSoon();
      throw error;
    }
    this.#promises.passOn(next);
  }

  /** The sandbox is about to go, and its log with it. Never rejects. */
  async #keepLog(driver: SandboxDriver, handle: SandboxHandle): Promise<void> {
    const request = { tail: LIMITS.previousLogs.lines, sinceMs: null, follow: false };
    await this.#options.previousLogs?.keep(handle.instanceId, async () =>
      driver.logs(handle, request, timeoutSignal(KEEP_LOG_MS)),
    );
  }

  /** It was found neither RUNNING nor FAILED: its delete has begun, or an earlier server was in the middle of something. */
  async #whyNoRestart(id: string): Promise<ServiceError> {
    const record = await this.#records.find(id);
    if (record === null) return instanceNotFound(id);
    if (record.status === 'CREATING') return isBeing(record.epoch > 1 ? 'restart' : 'create', id);
    return isBeing(record.status === 'STOPPING' ? 'delete' : 'restart', id);
  }

  /** How it gets its sandbox. Fails when this installation cannot run it at all. */
  async #startOf(ref: InstanceRef, spec: InstanceSpec): Promise<Start> {
    const driver = await this.#options.drivers(spec.sandboxType);
    const identity = { id: ref.id, secret: newSecret() };
    const placed = await this.#code.place(ref, spec);
    try {
      return toStart(driver, identity, await withSecrets(placed, this.#options.secrets), this.#options);
    } catch (error) {
      await this.#code.undo(ref);
      throw error;
    }
  }

  /** Starts the sandbox of an instance that is CREATING, and takes calls for it. */
  async #bringUp(intent: StoredInstance, start: Start, signal: AbortSignal): Promise<Instance> {
    const refusal = this.#promises.refusal(intent);
    if (refusal !== undefined) {
      this.#code.release(intent);
      if ((await start.row?.cancel(refusal.message)) !== false) await this.#instances.undo(intent, refusal);
      throw refusal;
    }
    this.#promises.take(intent);
    try {
      const { facts } = await this.#instances.launch(intent, start, signal);
      return toInstance({ ...intent, ...facts, status: transitionOf('started').to });
    } catch (error) {
      this.#give(intent);
      throw error;
    }
  }

  /** Nothing is left of this sandbox, nor of an earlier one; a later one of the same agent keeps what it has. */
  #give(sandbox: InstanceRef): void {
    this.#code.release(sandbox);
    this.#promises.give(sandbox);
  }

  /** The time in which it is looked for is time of the call. */
  async #invokeMissing(tenant: string, id: string, call: Call): Promise<CallOutcome> {
    if (this.#isStopping) throw serverStopping();
    const sinceMs = performance.now();
    const { openCallBytes } = this.#options.ledger;
    const bodyBytes = call.body.length;
    const share = openCallBytes.shareOf(tenant);
    if (!openCallBytes.fits(bodyBytes, share)) {
      share?.release();
      throw openCallsFull();
    }
    const adopted = this.#adoptMissing(tenant, id, failedBecause =>
      failedBecause === undefined ? instanceNotFound(id) : instanceFailed(id, failedBecause),
    );
    let live: LiveInstance;
    openCallBytes.take(bodyBytes, share);
    try {
      live = await withinTimeOf(call, adopted);
    } finally {
      openCallBytes.give(bodyBytes, share);
      share?.release();
    }
    return await live.call(waitedSince(sinceMs, call));
  }

  /** The instance that storage knows as RUNNING and this process does not know yet. */
  async #adoptMissing(
    tenant: string,
    id: string,
    notThere: (failedBecause?: string) => ServiceError,
  ): Promise<LiveInstance> {
    const record = await this.#records.settled(tenant, id);
    const { status, statusReason, restartAtMs } = record;
    if (status === 'FAILED') throw notThere(statusReason + startsAgain(restartAtMs));
    if (status !== 'RUNNING' && !(isCutOff(record) && this.#operations.of(id) === undefined)) throw notThere();
    this.#records.assertHere(record);
    const live = await this.#instances.adopt(record);
    if (live === undefined) throw this.#isStopping ? serverStopping() : notThere();
    return live;
  }

  #assertMayStart(): void {
    const refusal = this.#refusalOfStart();
    if (refusal !== undefined) throw refusal;
  }

  #refusalOfStart(): ServiceError | undefined {
    if (this.#isStopping) return serverStopping();
    return this.#operations.starts >= this.#options.maxStarting ? tooManyStarting() : undefined;
  }
}

function startsAgain(atMs: number): string {
  return atMs === 0 ? '' : `; its restart policy starts it again at ${new Date(atMs).toISOString()}`;
}
