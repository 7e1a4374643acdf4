import { randomBytes, randomUUID } from 'node:crypto';
import type { DriverSource, SchedulerLog, SchedulerMetrics } from '../agents/options.ts';
import { failedPrecondition, messageOf, ServiceError } from '../core/error.ts';
import type { InstanceSpec, SandboxType } from '../core/instance.ts';
import { ANSWER_MS, reach } from '../instances/adopt.ts';
import { CallRoom } from '../instances/call-room.ts';
import { LiveInstance } from '../instances/live-instance.ts';
import type { OpenCallBytes } from '../instances/open-call-bytes.ts';
import { Removals } from '../instances/removals.ts';
import { type SandboxRules, toSandboxSpec } from '../instances/sandbox-spec.ts';
import { Starter } from '../instances/starter.ts';
import { timeoutSignal } from '../lib/long-timer.ts';
import { forEachOf } from '../lib/parallel.ts';
import type { Call, CallOutcome } from '../runtime/channel.ts';
import type { SandboxAccess } from '../sandbox/access.ts';
import type { LogRequest, SandboxDriver, SandboxHandle } from '../sandbox/driver.ts';
import type { Database } from '../storage/database.ts';
import {
  deleteServiceInstance,
  insertServiceInstance,
  listServiceInstances,
  type ServiceInstanceTable,
} from '../storage/service-instances.ts';
import type { ServedFunction } from './catalog.ts';
import type { CodeStore } from './code/code-store.ts';
import { CodeFailure } from './failure.ts';
import type { ServiceLauncher, ServingInstance, StartTimings } from './launcher.ts';
import type { GroupKey } from './policy.ts';

export interface SandboxLauncherOptions extends SandboxRules {
  readonly database: Database;
  readonly drivers: DriverSource;
  readonly codeStore: CodeStore;
  readonly nodeId: string;
  readonly createTimeoutMs: number;
  /** Starts at the same moment; further ones wait their turn. */
  readonly maxStarting: number;
  /** Shared with everybody else who holds bodies of open calls. */
  readonly openCallBytes: OpenCallBytes;
  readonly log: SchedulerLog;
  readonly metrics?: SchedulerMetrics;
}

/** The least time that an instance's end gets, pre_stop included. */
const STOP_GRACE_MS = 10_000;
/** The same for an instance without pre_stop whose handler should have ended already: others wait for its place. */
const STUCK_GRACE_MS = 2_000;
const PARALLEL_ADOPTIONS = 64;
/** How soon those are asked again whose driver did not answer. */
const ASK_AGAIN_MS = 2_000;
/** The code that a failed load answers with when the runtime did not say one. */
const LOAD_FAILED = 4001;

/**
 * Runs the instances of function services in sandboxes, through the same drivers, starts and connections as agents. A row is written
 * once an instance runs, so that the next server finds it; a sandbox without one is an orphan, which the reconciler removes.
 */
export class SandboxLauncher implements ServiceLauncher {
  readonly #options: SandboxLauncherOptions;
  readonly #room: CallRoom;
  readonly #removals: Removals;
  readonly #starter: Starter;
  readonly #instances = new Map<string, SandboxInstance>();
  /** Ids of instances that are being started: their sandboxes belong to somebody before there is a row. */
  readonly #starting = new Set<string>();
  /** Starts that have their turn, and those that wait for one. */
  #startsNow = 0;
  readonly #turns: (() => void)[] = [];
  #nextAsking: NodeJS.Timeout | undefined;
  #isClosed = false;

  constructor(options: SandboxLauncherOptions) {
    this.#options = options;
    // How many calls an instance takes is the service's rule; here only their bytes are bounded.
    this.#room = new CallRoom({ maxWaitingCalls: Number.MAX_SAFE_INTEGER, bytes: options.openCallBytes });
    this.#removals = new Removals(options.log);
    this.#starter = new Starter(options, this.#room, this.#removals);
  }

  /** Whether a sandbox is one of a service's instances, for the reconciler. */
  owns(instanceId: string): boolean {
    return this.#starting.has(instanceId) || this.#instances.has(instanceId);
  }

  async launch(fn: ServedFunction, key: GroupKey): Promise<ServingInstance> {
    const id = randomUUID();
    await this.#turn();
    this.#starting.add(id);
    try {
      if (this.#isClosed) throw failedPrecondition('the server is stopping');
      return await this.#launch(id, fn, key);
    } catch (error) {
      await this.#options.codeStore.release(id);
      throw error;
    } finally {
      this.#starting.delete(id);
      const next = this.#turns.shift();
      if (next) next();
      else this.#startsNow -= 1;
    }
  }

  async adopt(onLate: (instance: ServingInstance) => void): Promise<readonly ServingInstance[]> {
    const rows = await listServiceInstances(this.#options.database, this.#options.nodeId);
    // All of them first: the code of one that is not known to be dead stays, whatever is found out about others.
    for (const row of rows) this.#options.codeStore.adopt(row.code_source, row.id);
    const adopted: ServingInstance[] = [];
    const unknown: ServiceInstanceTable[] = [];
    await forEachOf(rows, PARALLEL_ADOPTIONS, async row => {
      const found = await this.#adopt(row);
      if (found === 'unknown') unknown.push(row);
      else if (found !== 'dead') adopted.push(found);
    });
    await this.#options.codeStore.sweep(new Set(rows.map(row => row.id)));
    this.#askAgain(unknown, onLate);
    return adopted;
  }

  async close(): Promise<void> {
    this.#isClosed = true;
    clearTimeout(this.#nextAsking);
    for (const turn of this.#turns.splice(0)) turn();
    this.#removals.close();
    for (const instance of this.#instances.values()) instance.live.detach('the server is stopping');
    this.#instances.clear();
  }

  async #launch(id: string, fn: ServedFunction, key: GroupKey): Promise<ServingInstance> {
    const startedMs = performance.now();
    const placed = await this.#place(id, fn);
    const spec = toInstanceSpec(id, fn, key, placed);
    const secret = randomBytes(24).toString('base64url');
    const sandboxSpec = toSandboxSpec(id, secret, spec, this.#options);
    const driver = await this.#options.drivers(fn.sandboxType);
    const { live, loadFailure, loadMs } = await this.#starter.start(
      driver,
      spec,
      sandboxSpec,
      timeoutSignal(this.#options.createTimeoutMs + spec.initTimeoutMs),
    );
    if (loadFailure) {
      live.detach('its code could not be loaded');
      await this.#removals.discard(driver, live.handle);
      throw new CodeFailure(loadFailure);
    }
    const row: ServiceInstanceTable = {
      id,
      node_id: this.#options.nodeId,
      tenant: fn.tenant,
      urn: fn.urn,
      revision_id: fn.revisionId,
      group_key: JSON.stringify(key),
      sandbox_type: fn.sandboxType,
      handle: JSON.stringify(live.handle),
      secret,
      concurrency: spec.concurrency,
      max_call_ms: spec.callTimeoutMs,
      stop_grace_ms: Math.max(STOP_GRACE_MS, fn.preStopTimeoutMs),
      code_source: placed.mount?.source ?? '',
      started_at_ms: Date.now(),
    };
    try {
      await insertServiceInstance(this.#options.database, row);
      const timings = { startMs: performance.now() - startedMs - loadMs, loadMs };
      return this.#serve(live, row, timings, fn.preStop === '' ? STUCK_GRACE_MS : row.stop_grace_ms);
    } catch (error) {
      live.detach('it could not be recorded');
      await this.#removals.discard(driver, live.handle);
      throw error;
    }
  }

  async #place(id: string, fn: ServedFunction) {
    try {
      await this.#options.codeStore.checkMounts(fn.mounts);
      return await this.#options.codeStore.place(fn.code, id);
    } catch (error) {
      // The code folder or object and the mounts are the user's: what is wrong with them is a load failure of every call.
      if (error instanceof ServiceError && error.code === 'failed_precondition') {
        throw new CodeFailure({ code: LOAD_FAILED, message: error.message });
      }
      throw error;
    }
  }

  /** Those of which nothing is known yet, until each is found or known to be dead. */
  #askAgain(rows: readonly ServiceInstanceTable[], onLate: (instance: ServingInstance) => void): void {
    if (rows.length === 0 || this.#isClosed) return;
    this.#nextAsking = setTimeout(async () => {
      const unknown: ServiceInstanceTable[] = [];
      await forEachOf(rows, PARALLEL_ADOPTIONS, async row => {
        const found = this.#isClosed ? 'unknown' : await this.#adopt(row);
        if (found === 'unknown') unknown.push(row);
        else if (found !== 'dead') onLate(found);
      });
      this.#askAgain(unknown, onLate);
    }, ASK_AGAIN_MS).unref();
  }

  /** `unknown`: it could not be asked, and is left as it is. Never rejects. */
  async #adopt(row: ServiceInstanceTable): Promise<ServingInstance | 'dead' | 'unknown'> {
    const { database, drivers, codeStore, log } = this.#options;
    try {
      const handle = JSON.parse(row.handle) as SandboxHandle;
      const driver = await drivers(row.sandbox_type as SandboxType);
      const reached = await reach(driver, handle, row.secret, ANSWER_MS);
      if ('channel' in reached) {
        if (this.#isClosed) {
          reached.channel.close();
          return 'unknown';
        }
        const live = this.#live(driver, handle, row, reached.channel);
        return this.#serve(live, row, NO_TIMINGS, row.stop_grace_ms);
      }
      log.info({ instanceId: row.id, reason: reached.dead }, 'a service instance did not outlive the server');
      await this.#removals.discard(driver, handle);
      await codeStore.release(row.id);
      await deleteServiceInstance(database, row.id);
      return 'dead';
    } catch (error) {
      log.warn({ instanceId: row.id, reason: messageOf(error) }, 'a service instance could not be looked for yet');
      return 'unknown';
    }
  }

  #live(driver: SandboxDriver, handle: SandboxHandle, row: ServiceInstanceTable, channel: LiveChannel): LiveInstance {
    const { id, tenant, secret, concurrency } = row;
    const { log } = this.#options;
    return new LiveInstance({
      instanceId: id,
      tenant,
      driver,
      handle,
      secret,
      channel,
      concurrency,
      maxCallMs: row.max_call_ms,
      room: this.#room,
      log,
    });
  }

  #serve(live: LiveInstance, row: ServiceInstanceTable, timings: StartTimings, stuckGraceMs: number): SandboxInstance {
    const instance = new SandboxInstance(live, row, timings, stuckGraceMs, () => this.#gone(live, row));
    this.#instances.set(row.id, instance);
    return instance;
  }

  /** Removes everything of an instance that ended, whatever ended it. */
  async #gone(live: LiveInstance, row: ServiceInstanceTable): Promise<void> {
    if (!this.#instances.delete(row.id)) return;
    await this.#removals.discard(live.driver, live.handle);
    await this.#options.codeStore.release(row.id);
    await deleteServiceInstance(this.#options.database, row.id);
  }

  /** Waits until fewer than the allowed number of starts run. */
  async #turn(): Promise<void> {
    // Counted before anything is awaited; whoever ends hands its turn on.
    if (this.#startsNow < this.#options.maxStarting) this.#startsNow += 1;
    else await new Promise<void>(resolve => this.#turns.push(resolve));
  }
}

type LiveChannel = ConstructorParameters<typeof LiveInstance>[0]['channel'];
const NO_TIMINGS: StartTimings = { startMs: 0, loadMs: 0 };

class SandboxInstance implements ServingInstance {
  readonly id: string;
  readonly urn: string;
  readonly revisionId: string;
  readonly key: GroupKey;
  readonly startedAtMs: number;
  readonly timings: StartTimings;
  readonly ended: Promise<string>;
  readonly live: LiveInstance;
  readonly #stopGraceMs: number;
  readonly #stuckGraceMs: number;
  readonly #onGone: () => Promise<void>;
  #resolveEnded!: (reason: string) => void;
  #stopping: Promise<void> | undefined;

  constructor(
    live: LiveInstance,
    row: ServiceInstanceTable,
    timings: StartTimings,
    stuckGraceMs: number,
    onGone: () => Promise<void>,
  ) {
    this.live = live;
    this.id = row.id;
    this.urn = row.urn;
    this.revisionId = row.revision_id;
    this.key = JSON.parse(row.group_key) as GroupKey;
    this.startedAtMs = row.started_at_ms;
    this.timings = timings;
    this.#stopGraceMs = row.stop_grace_ms;
    this.#stuckGraceMs = stuckGraceMs;
    this.#onGone = onGone;
    this.ended = new Promise(resolve => {
      this.#resolveEnded = resolve;
    });
    void live.ended.then(async ({ reason }) => {
      // Told first: its place is free for another one while its remains are removed.
      this.#resolveEnded(reason);
      await onGone().catch(() => undefined);
    });
  }

  get isConnected(): boolean {
    return this.live.isConnected;
  }

  call(call: Call): Promise<CallOutcome> {
    return this.live.call(call);
  }

  credit(callId: number, bytes: number): void {
    this.live.credit(callId, bytes);
  }

  logs(request: LogRequest, signal: AbortSignal): AsyncIterable<Buffer> {
    return this.live.driver.logs(this.live.handle, request, signal);
  }

  access(): SandboxAccess | undefined {
    return this.live.driver.access?.(this.live.handle);
  }

  stop(isStuck = false): Promise<void> {
    this.#stopping ??= this.#stop(isStuck ? this.#stuckGraceMs : this.#stopGraceMs);
    return this.#stopping;
  }

  async #stop(graceMs: number): Promise<void> {
    try {
      await this.live.terminate(graceMs, 'it is not needed any more');
    } catch {
      // Its sandbox did not answer: removing it, which is tried again until it succeeds, ends it too.
    }
    await this.#onGone().catch(() => undefined);
    this.#resolveEnded('stopped');
  }
}

function toInstanceSpec(
  id: string,
  fn: ServedFunction,
  key: GroupKey,
  placed: Awaited<ReturnType<CodeStore['place']>>,
): InstanceSpec {
  const code = placed.mount === null ? [] : [placed.mount];
  return {
    tenant: fn.tenant,
    namespace: '',
    name: id,
    sandboxType: fn.sandboxType,
    runtime: fn.runtime,
    codePath: placed.codePath,
    handler: fn.handler,
    initializer: fn.initializer,
    preStop: fn.preStop,
    rootfs: fn.rootfs,
    ports: fn.ports,
    cpuMillis: key.cpuMillis,
    memoryMb: key.memoryMb,
    env: fn.environment,
    workspace: '',
    mounts: placed.ours ? fn.mounts : [...code, ...fn.mounts],
    platformMounts: placed.ours ? code : [],
    sessionContext: key.sessionContext,
    callTimeoutMs: fn.timeoutMs,
    initTimeoutMs: fn.initTimeoutMs,
    preStopTimeoutMs: fn.preStopTimeoutMs,
    concurrency: fn.scaling.concurrency,
    functionName: fn.name,
    functionVersion: fn.version,
    functionUrn: fn.urn,
  };
}
