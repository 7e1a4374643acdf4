import { failedPrecondition, type ServiceError } from '../core/error.ts';
import type { Instance } from '../core/instance.ts';
import { CallLimiter } from '../instances/call-limiter.ts';
import type { Instances } from '../instances/instances.ts';
import { instanceNotFound, openCallsFull, tooManyWaiting } from '../instances/refusals.ts';
import { isAllowed } from '../instances/state.ts';
import type { ServerTiming } from '../lib/server-timing.ts';
import { type Call, waitedSince, withinTimeOf } from '../runtime/call.ts';
import type { SandboxAccess } from '../sandbox/access.ts';
import type { ExecRequest, ExecResult, LogChunks, LogRequest, SandboxStats } from '../sandbox/driver.ts';
import { findAgentIds, listAgentsWithSandbox, listSandboxIds } from '../storage/queries/agents.ts';
import { AgentAlarms } from './agent-alarms.ts';
import { AgentCopies } from './agent-copies.ts';
import { AgentCreates } from './agent-creates.ts';
import { AgentDeletes } from './agent-deletes.ts';
import { AgentExpiries } from './agent-expiries.ts';
import { AgentIdle, sleepsWhenIdle } from './agent-idle.ts';
import { AgentPauses } from './agent-pauses.ts';
import { AgentRecords, isDurable, toInstance } from './agent-records.ts';
import { AgentRestarts, type RestartCause } from './agent-restarts.ts';
import { AgentSleeps } from './agent-sleeps.ts';
import { AgentStarts } from './agent-starts.ts';
import { AgentUpdates } from './agent-updates.ts';
import type {
  AgentChange,
  AgentInstances,
  AgentOutcome,
  CreateInstance,
  ExpiryChange,
  InstanceQuery,
  SleepRequest,
} from './contract.ts';
import type { AgentsOptions } from './options.ts';
import { PolicyRestarts } from './policy-restarts.ts';
import { logOf } from './previous-logs.ts';
import {
  deletedMeanwhile,
  fail,
  instanceFailed,
  isBeing,
  isPaused,
  noPreviousRun,
  noSandbox,
  notRunning,
  serverStopping,
  startsAgain,
} from './refusals.ts';
import { AgentWakes, type Reached, type Use } from './wakes.ts';

/**
 * Agents of this node: their names, the order of their operations, and the access to them. Storage decides
 * which agent has a name and which of two changes wins. `Instances` runs the sandboxes.
 */
export class Agents implements AgentInstances {
  readonly #options: AgentsOptions;
  readonly #instances: Instances;
  readonly #limiter: CallLimiter;
  readonly #records: AgentRecords;
  readonly #deletes: AgentDeletes;
  readonly #starts: AgentStarts;
  readonly #creates: AgentCreates;
  readonly #restarts: AgentRestarts;
  readonly #pauses: AgentPauses;
  readonly #expiries: AgentExpiries;
  readonly #idle: AgentIdle;
  readonly #policy: PolicyRestarts;
  readonly #wakes: AgentWakes;
  readonly #sleeps: AgentSleeps;
  readonly #updates: AgentUpdates;
  readonly alarms: AgentAlarms;
  readonly copies: AgentCopies;

  constructor(options: AgentsOptions) {
    this.#options = options;
    this.#instances = options.instances;
    this.#starts = new AgentStarts(options, () => this.alarms.look());
    this.#records = new AgentRecords(options);
    const makeRoom = () => this.#idle.makeRoom();
    this.#creates = new AgentCreates(options, this.#starts, { endReplaced: id => this.endReplaced(id), makeRoom });
    this.#restarts = new AgentRestarts(options, this.#starts, this.#records, {
      cancelPolicy: id => this.#policy.cancel(id),
      makeRoom,
    });
    this.#pauses = new AgentPauses(options, this.#starts, this.#records);
    this.#deletes = new AgentDeletes({ ...options, release: sandbox => this.#starts.release(sandbox) }, this.#records);
    this.#limiter = new CallLimiter({
      maxWaitingCalls: options.maxWaitingCalls,
      bytes: options.ledger.openCallBytes,
    });
    const live = (id: string) => this.#instances.live('agent', id);
    const common = { ...options, table: this.#starts.table, now: options.now ?? Date.now, live };
    this.#policy = new PolicyRestarts({
      ...common,
      restart: record => this.#restart(record.id, { planned: record }),
      isBusy: id => this.#starts.operations.of(id) !== undefined,
      refusal: () => this.#starts.refusal(),
    });
    this.#expiries = new AgentExpiries({
      ...common,
      expire: agent => this.#expire(agent),
    });
    this.#idle = new AgentIdle({
      ...common,
      expire: async id => {
        const record = await this.#records.find(id);
        if (record === null) return;
        if (sleepsWhenIdle(toInstance(record).spec)) await this.sleep(record.tenant, id);
        else await this.#expire(toInstance(record));
      },
    });
    this.#sleeps = new AgentSleeps(options, {
      starts: this.#starts,
      records: this.#records,
      openAccesses: id => this.#idle.openAccesses(id),
      storeLog: (driver, handle) => this.#restarts.storeLog(driver, handle),
      stopped: id => this.#idle.cancel(id),
    });
    this.#updates = new AgentUpdates(options, { starts: this.#starts, records: this.#records, sleeps: this.#sleeps });
    this.#wakes = new AgentWakes({
      ...common,
      starts: this.#starts,
      records: this.#records,
      restart: (id, reason) => this.#restart(id, { reason }),
    });
    this.copies = new AgentCopies(options, { starts: this.#starts, records: this.#records, agents: this });
    this.alarms = new AgentAlarms({
      ...common,
      records: this.#records,
      start: (tenant, id) => this.#running(tenant, id, { reason: 'alarm' }),
      invoke: (tenant, id, call) => this.invoke(tenant, id, call),
    });
    this.#instances.registerOwner('agent', {
      limiter: this.#limiter,
      saver: (record, version) => this.#starts.states.saverOf(record, version),
      agrees: (record, hello) => this.#starts.states.agrees(record, hello),
      adopted: (_live, record) => {
        this.#starts.reservations.reserve(record);
        this.#idle.watch(toInstance(record));
      },
      ended: sandbox => this.#starts.release(sandbox),
      exiting: (record, reason, exitCode) => {
        this.#wakes.noteEnd(record, reason);
        return this.#policy.planned(record, reason, exitCode);
      },
      exited: sandbox => void this.#policy.ended(sandbox),
      reconciled: async () => {
        await this.#policy.resume();
        await this.#expiries.resume();
        this.alarms.start();
      },
    });
  }

  /**
   * Registers the code of recovered sandboxes. Must precede adoptions and removals, so that the code stays.
   */
  async start(): Promise<void> {
    const { database, nodeId } = this.#options;
    const { previousLogs, files } = this.#options;
    for (const kept of [previousLogs, files]) await kept?.sweep(ids => findAgentIds(database, nodeId, ids));
    for (const stored of await listAgentsWithSandbox(database, nodeId)) {
      this.#starts.code.registerUser(stored, toInstance(stored).spec);
      // No adoption follows that would reserve its capacity.
      if (stored.status === 'PAUSED') this.#starts.reservations.reserve(stored);
    }
    // An end may be due now, so it must not wait for sandboxes that do not answer.
    await this.#expiries.resume();
  }

  get liveInstances(): number {
    return this.#instances.liveCount('agent');
  }

  /** Returns the number of calls that run or wait. */
  get openCalls(): number {
    return this.#limiter.openCalls;
  }

  /**
   * Refuses new work, gives open calls `graceMs` to end, and detaches the agents. Their sandboxes stay; with
   * `stopAgents` durable agents are put to sleep and others deleted instead. Never rejects.
   */
  async close({ stopAgents, graceMs }: { stopAgents: boolean; graceMs: number }): Promise<{ agentsLeft: number }> {
    this.#policy.close();
    this.#expiries.close();
    this.#idle.close();
    this.alarms.close();
    this.#starts.stop();
    const unanswered = await this.#instances.stopAdoptions('agent');
    await Promise.all([this.#starts.operations.allEnded(), this.#limiter.idle(graceMs)]);
    await this.#instances.flushed();
    const agentsLeft = stopAgents
      ? await this.#deletes.all(agent =>
          isDurable(agent) ? this.#sleeps.sleepAtStop(agent.id) : this.delete(agent.tenant, agent.id, null),
        )
      : this.liveInstances + unanswered;
    this.#instances.detach('agent', serverStopping().message);
    return { agentsLeft };
  }

  async create(request: CreateInstance): Promise<Instance> {
    const instance = await this.#creates.create(request);
    this.#expiries.schedule(instance);
    // A repeated create answers with an agent that is watched.
    if (this.#starts.table.get(instance.id)?.use === undefined) this.#idle.watch(instance);
    return instance;
  }

  invoke(tenant: string, id: string, call: Call): Promise<AgentOutcome> {
    const live = this.#instances.live('agent', id);
    if (live?.tenant === tenant && !this.#starts.isStopping && !this.#updates.holdsCalls(id)) return live.call(call);
    return this.#invokeMissing(tenant, id, call);
  }

  refusal(tenant: string, id: string): ServiceError | undefined {
    const live = this.#instances.live('agent', id);
    return live !== undefined && live.tenant === tenant && live.isFull ? tooManyWaiting() : undefined;
  }

  async get(tenant: string, id: string): Promise<Instance> {
    return await this.#records.get(tenant, id);
  }

  async find(id: string): Promise<Instance | null> {
    await this.#instances.flushed(id);
    const record = await this.#records.find(id);
    return record && toInstance(record);
  }

  async sandboxIds(): Promise<readonly string[]> {
    await this.#instances.flushed();
    return await listSandboxIds(this.#options.database);
  }

  liveSandboxes(): readonly { readonly tenant: string; readonly id: string }[] {
    return this.#instances
      .allLive('agent')
      .filter(live => this.#instances.recordOf(live)?.spec.includes('"template":"'));
  }

  async list(query: InstanceQuery): Promise<{ instances: readonly Instance[]; nextCursor: string | null }> {
    return await this.#records.list(query);
  }

  async delete(tenant: string, id: string, graceMs: number | null, stages?: ServerTiming): Promise<void> {
    const live = this.#instances.live('agent', id);
    const record = (live && this.#instances.recordOf(live)) ?? (await this.#records.find(id));
    if (record?.tenant !== tenant) throw instanceNotFound(id);
    const before = this.#starts.operations.of(id);
    if (before?.kind === 'delete' || !isAllowed(record.status, 'end')) throw instanceNotFound(id);
    if (record.nodeId !== this.#options.nodeId) return await this.#deletes.discard(record);
    this.#cancelPlans(id);
    await this.#starts.operations.run(id, 'delete', async () => {
      const ending = await this.#deletes.markStopping(record);
      if (ending === null) throw instanceNotFound(id);
      stages?.end('row');
      if (before !== undefined) {
        before.abort.abort(deletedMeanwhile(before.kind === 'create' ? 'create' : 'restart', id));
        await before.done.catch(() => undefined);
      }
      // An agent that was being started has another sandbox than in the record, or none.
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
    const record = await this.#records.flushedRecord(tenant, id);
    this.#records.assertHere(record);
    const before = this.#starts.operations.of(id);
    if (before !== undefined) throw isBeing(before.kind, id);
    this.#starts.assertMayStart();
    return await this.#restart(id);
  }

  async #restart(id: string, cause?: RestartCause): Promise<Instance> {
    const { operations } = this.#starts;
    const instance = await operations.run(id, 'restart', signal => this.#restarts.restart(id, signal, cause));
    this.#starts.table.set(id, { failedWakes: undefined, ...(cause === undefined && { quickEnds: undefined }) });
    this.#expiries.schedule(instance);
    this.#idle.watch(instance);
    return instance;
  }

  async setExpiry(tenant: string, id: string, change: ExpiryChange): Promise<Instance> {
    return await this.#expiries.set(this.#records, { tenant, id }, change);
  }

  async pause(tenant: string, id: string): Promise<Instance> {
    return await this.#pauses.pause(tenant, id);
  }

  async resume(tenant: string, id: string, change?: ExpiryChange): ReturnType<AgentInstances['resume']> {
    const resumed = await this.#pauses.resume(tenant, id);
    this.alarms.look();
    const instance = await this.#records.get(tenant, id);
    this.#expiries.schedule(instance);
    return { instance: change === undefined ? instance : await this.setExpiry(tenant, id, change), resumed };
  }

  async sleep(tenant: string, id: string, how?: SleepRequest): Promise<Instance> {
    return await this.#sleeps.sleep(tenant, id, how);
  }

  async update(tenant: string, id: string, change: AgentChange): Promise<Instance> {
    return await this.#updates.update(tenant, id, change);
  }

  async wake(tenant: string, id: string): ReturnType<AgentInstances['wake']> {
    const { status } = await this.#records.flushedRecord(tenant, id);
    if (status === 'PAUSED') {
      const { instance, resumed } = await this.resume(tenant, id);
      return { instance, woken: resumed };
    }
    const { woke } = await this.#running(tenant, id, { reason: 'request' });
    return { instance: await this.#records.get(tenant, id), woken: woke !== undefined };
  }

  async exec(tenant: string, id: string, request: ExecRequest, signal: AbortSignal): Promise<ExecResult> {
    const { driver, handle } = (await this.#running(tenant, id, { reason: 'exec' })).live;
    return await this.#idle.during(id, () => driver.exec(handle, request, signal));
  }

  async stats(tenant: string, id: string): Promise<SandboxStats> {
    if (this.#instances.live('agent', id) === undefined) {
      const { status } = await this.#records.flushedRecord(tenant, id);
      if (status === 'SLEEPING') return { memoryBytes: 0, cpuMicros: 0, processes: 0, isAsleep: true };
    }
    const { driver, handle } = (await this.#running(tenant, id, { reason: 'access' })).live;
    return await driver.stats(handle);
  }

  async access(tenant: string, id: string): Promise<SandboxAccess> {
    const { driver, handle } = (await this.#running(tenant, id, { reason: 'access' })).live;
    if (driver.access === undefined)
      throw failedPrecondition(`sandboxes of type ${driver.name} have no files or ports`);
    return this.#idle.counted(id, driver.access(handle));
  }

  async logs(tenant: string, id: string, request: LogRequest, signal: AbortSignal): Promise<LogChunks> {
    const record = await this.#records.flushedRecord(tenant, id);
    const { sandboxType, handle, status } = record;
    if (status === 'SLEEPING') return logOf((await this.#options.previousLogs?.read(id, 1, request.tail)) ?? '');
    if (handle === null) throw noSandbox(id);
    this.#records.assertHere(record);
    return (await this.#options.drivers(sandboxType)).logs(handle, request, signal);
  }

  async previousLog(tenant: string, id: string, run: number, tail: number | null): Promise<string> {
    this.#records.assertHere(await this.#records.flushedRecord(tenant, id));
    return (await this.#options.previousLogs?.read(id, run, tail)) ?? fail(noPreviousRun(id, run));
  }

  /** Cancels what the record of an agent plans, because the agent is being deleted. */
  #cancelPlans(id: string): void {
    this.#policy.cancel(id);
    this.#expiries.cancel(id);
    this.#idle.cancel(id);
    this.#starts.table.set(id, { failedWakes: undefined, quickEnds: undefined });
  }

  /** Ends an agent whose time is over. A FAILED or SLEEPING agent has nothing to pause. */
  async #expire({ id, spec, status, onExpiry }: Instance): Promise<void> {
    if (onExpiry === 'pause' && status === 'SLEEPING') return;
    if (onExpiry === 'pause' && status !== 'FAILED') await this.pause(spec.tenant, id);
    // A sandbox without code has nothing to finish, and its client expects its end at once.
    else await this.delete(spec.tenant, id, spec.template === undefined ? null : 0);
  }

  async #running(tenant: string, id: string, use: Use): Promise<Reached> {
    const live = this.#instances.live('agent', id);
    const reached = live === undefined ? await this.#adoptMissing(tenant, id, use, () => notRunning(id)) : { live };
    return reached.live.tenant === tenant ? reached : fail(instanceNotFound(id));
  }

  /**
   * Removes an agent of this node whose name another agent has taken. Never rejects: the reconciler retries.
   */
  async endReplaced(id: string): Promise<void> {
    try {
      const record = await this.#records.find(id);
      const before = this.#starts.operations.of(id);
      if (record?.status !== 'STOPPING' || record.nodeId !== this.#options.nodeId || before?.kind === 'delete') return;
      this.#cancelPlans(id);
      await this.#starts.operations.run(id, 'delete', async () => {
        if (before !== undefined) {
          before.abort.abort(deletedMeanwhile(before.kind === 'create' ? 'create' : 'restart', id));
          await before.done.catch(() => undefined);
        }
        await this.#deletes.tearDown(id, null);
        return undefined;
      });
    } catch (error) {
      this.#options.log.warn({ instanceId: id, err: error }, 'replaced agent not removed yet; retrying');
      this.#instances.reconcileSoon();
    }
  }

  /** Calls an agent that is not live yet. Time spent adopting counts against the call's timeout. */
  async #invokeMissing(tenant: string, id: string, call: Call): Promise<AgentOutcome> {
    if (this.#starts.isStopping) throw serverStopping();
    const sinceMs = performance.now();
    const { openCallBytes } = this.#options.ledger;
    const bodyBytes = call.body.length;
    if (!openCallBytes.fits(tenant, bodyBytes)) throw openCallsFull();
    const use = { reason: 'call', isBarred: call.mayWake === false } as const;
    const adopted = this.#adoptMissing(tenant, id, use, failedBecause =>
      failedBecause === undefined ? instanceNotFound(id) : instanceFailed(id, failedBecause),
    );
    let reached: Reached;
    openCallBytes.acquire(tenant, bodyBytes);
    try {
      reached = await withinTimeOf(call, adopted);
    } finally {
      openCallBytes.release(tenant, bodyBytes);
    }
    const { live, woke } = reached;
    const outcome = await live.call(waitedSince(sinceMs, call));
    return woke === undefined ? outcome : { ...outcome, woke };
  }

  /** Adopts an agent that is RUNNING in storage and not live in this process yet. */
  async #adoptMissing(
    tenant: string,
    id: string,
    use: Use,
    notThere: (failedBecause?: string) => ServiceError,
  ): Promise<Reached> {
    await this.#wakes.changeEnded(id);
    const record = await this.#records.flushedRecord(tenant, id);
    const { status, statusReason, restartAtMs } = record;
    if (status === 'PAUSED') throw isPaused(id);
    if (this.#wakes.canWake(record)) return (await this.#wakes.wake(record, use)) ?? fail(notThere());
    if (status === 'FAILED') throw notThere(statusReason + startsAgain(restartAtMs));
    if (status !== 'RUNNING') throw notThere();
    this.#records.assertHere(record);
    const live = await this.#instances.adopt(record);
    if (live !== undefined) return { live };
    if (this.#starts.isStopping) throw serverStopping();
    // The sandbox of an earlier server was found dead, or the agent falls asleep.
    const now = await this.#records.find(id);
    return (now !== null && this.#wakes.canWake(now) && (await this.#wakes.wake(now, use))) || fail(notThere());
  }
}
