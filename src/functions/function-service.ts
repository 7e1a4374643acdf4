import type { Expose } from '../core/address.ts';
import { SERVICE_CODES, USER_CODES } from '../core/codes.ts';
import {
  type ErrorCode,
  failedPrecondition,
  notFound,
  resourceExhausted,
  ServiceError,
  unavailable,
} from '../core/error.ts';
import { type FunctionCallHeaders, PLAIN_CALL, readSessionContext } from '../core/function-call.ts';
import { runsInCluster } from '../core/sandbox-types.ts';
import { parseUrn } from '../core/urn.ts';
import type { OpenCallBytes } from '../instances/open-call-bytes.ts';
import { openCallsFull } from '../instances/refusals.ts';
import type { Call, CallOutcome, CallSignal } from '../runtime/call.ts';
import type { SandboxAccess } from '../sandbox/access.ts';
import type { LogRequest, SandboxStats } from '../sandbox/driver.ts';
import { Capacity, type CapacityOptions } from './capacity.ts';
import type { FunctionCatalog, ServedFunction } from './catalog.ts';
import { CodeFailure } from './failure.ts';
import type { Lease } from './group.ts';
import { LeftBehind } from './left-behind.ts';
import { LogMerge, prefixed } from './log-merge.ts';
import type { GroupKey, ServiceClock } from './policy.ts';
import type { Replica } from './replica.ts';
import { type FunctionServiceLog, type Served, ServedFunctions, unknownFunction } from './served-functions.ts';
import type { Service } from './service.ts';
import { SessionSignal } from './session-signal.ts';
import { ALL_SHARDS, type FunctionShards } from './shards.ts';
import type { InstanceStarter, ServingInstance } from './starter.ts';

export interface FunctionServiceOptions {
  readonly catalog: FunctionCatalog;
  readonly starter: InstanceStarter;
  readonly clock: ServiceClock;
  readonly capacity: CapacityOptions;
  /** Absent: all functions are served here. */
  readonly shards?: FunctionShards;
  /** The longest that a call waits for a slot; the function's timeout when that is shorter. */
  readonly maxWaitMs: number;
  /** Waiting calls of one tenant over all its functions. */
  readonly maxWaitingPerTenant: number;
  /** Shared with everybody else who holds bodies of open calls. */
  readonly openCallBytes: OpenCallBytes;
  /** Told of every call of a version that is there. `timings` are null when it got no slot. */
  readonly observe?: (tenant: string, name: string, code: string, seconds: number, timings: CallTimings | null) => void;
  /** Versions that are kept in memory before unused ones are forgotten. Default 10 000. */
  readonly maxRemembered?: number;
  readonly log: FunctionServiceLog;
}

/** Stages of one call, milliseconds. */
export interface CallTimings {
  readonly queueMs: number;
  readonly placeMs: number;
  readonly startMs: number;
  readonly loadMs: number;
  readonly runMs: number;
}

export interface FunctionInvocation {
  /** A functionVersionUrn. */
  readonly urn: string;
  /** Null: any tenant's functions may be called (authentication is off). */
  readonly tenant: string | null;
  readonly headers: FunctionCallHeaders;
  /** `waitedMs` counts as waiting for an instance. */
  readonly call: Omit<Call, 'timeoutMs' | 'onChunk' | 'onLateEnd'>;
  /** Awaited once the call has its slot, before it is sent; what it fails with is what the call fails with. */
  readonly beforeRun?: () => Promise<void>;
  /** Told once the call has its slot, before the handler runs. */
  readonly onPlaced?: (instanceId: string) => void;
  /** Makes it a stream. `grant` says how much of it the reader has taken, so the handler may send as much again. */
  readonly onEvent?: (event: Buffer, grant: (bytes: number) => void) => void;
}

export interface FunctionResult {
  readonly outcome: CallOutcome;
  /** `''` when no instance could be had. */
  readonly instanceId: string;
  readonly timings: CallTimings;
}

type WaitingCall = Pick<FunctionInvocation['call'], 'body' | 'signal' | 'waitedMs'>;

/** A slot that turned out to be on a broken instance before the call was sent is given up this often. */
const MAX_SLOTS_TRIED = 8;

/** Invokes versions of functions as services: finds the version, groups its instances, and places each call. */
export class FunctionService {
  readonly #options: FunctionServiceOptions;
  readonly #versions: ServedFunctions;
  readonly #waitingPerTenant = new Map<string, number>();
  /** The running calls of each session. */
  readonly #interruptible = new Map<string, Set<SessionSignal>>();

  constructor(options: FunctionServiceOptions) {
    this.#options = options;
    this.#versions = new ServedFunctions({
      ...options,
      capacity: new Capacity(options.capacity),
      shards: options.shards ?? ALL_SHARDS,
    });
  }

  /** Takes over the instances of an earlier server and starts what is to be warm. Never rejects. */
  start(): Promise<void> {
    return this.#versions.start();
  }

  /** Functions of these shards are served here from now on. Never rejects. */
  acquired(shards: readonly string[]): Promise<void> {
    return this.#versions.acquired(shards);
  }

  /** Lets the calls of these shards end for at most `graceMs`, then ends their instances. Never rejects. */
  release(shards: readonly string[], graceMs: number): Promise<void> {
    return this.#versions.release(shards, graceMs);
  }

  /** Another replica serves these shards already: what serves them here ends now, and its calls fail. */
  lost(shards: readonly string[]): void {
    this.#versions.lost(shards);
  }

  /** Lets calls that still run end for at most `graceMs`, then ends every instance. */
  async close(graceMs: number): Promise<void> {
    await this.#versions.close(graceMs);
    await this.#options.starter.close();
  }

  /**
   * One call. The user's code failing is an outcome; everything else is a `ServiceError` whose `number` is the code of the answer.
   */
  async invoke(invocation: FunctionInvocation): Promise<FunctionResult> {
    const served = this.#versions.find(invocation.urn) ?? (await this.#find(invocation.urn, invocation.tenant));
    const { fn } = served;
    if (invocation.tenant !== null && invocation.tenant !== fn.tenant) throw unknownFunction();
    const { observe } = this.#options;
    const startMs = performance.now();
    let result: FunctionResult;
    try {
      result = await this.#run(served, groupFor(served, invocation.headers), invocation);
    } catch (error) {
      if (!(error instanceof CodeFailure)) {
        const code = invocation.call.signal?.aborted ? 'cancelled' : codeOf(error);
        observe?.(fn.tenant, fn.name, code, (performance.now() - startMs) / 1000, null);
        throw error;
      }
      result = loadFailed(error);
    }
    const { outcome, timings } = result;
    observe?.(
      fn.tenant,
      fn.name,
      outcome.ok ? 'ok' : String(outcome.code),
      (performance.now() - startMs) / 1000,
      timings,
    );
    return result;
  }

  /**
   * The refusal that a call without special demands would get now, because too many wait, to be called by who refuses it: that counts it.
   * Undefined when such a call would not be refused, or when that cannot be known at once.
   */
  refusal(urn: string, tenant: string | null): (() => ServiceError) | undefined {
    const served = this.#versions.find(urn);
    if (!served || (tenant !== null && tenant !== served.fn.tenant)) return undefined;
    const refusal = served.service.refusal();
    if (refusal === undefined) return undefined;
    return () => {
      this.#options.observe?.(served.fn.tenant, served.fn.name, codeOf(refusal), 0, null);
      return refusal;
    };
  }

  /** Ends a session of a function version; false when it is not known. */
  async endSession(urn: string, tenant: string | null, id: string): Promise<boolean> {
    const served = await this.#find(urn, tenant);
    return served.service.endSession(id);
  }

  /** Raises an exception in the running calls of a session; false when it is not known. */
  async interruptSession(urn: string, tenant: string | null, id: string): Promise<boolean> {
    const served = await this.#find(urn, tenant);
    const running = this.#interruptible.get(interruptKey(served.fn.urn, id));
    // Calls go on when their instance drains, which its sessions leave at once.
    if (running === undefined) return served.service.hasSession(id);
    for (const signal of running) signal.interrupt();
    return true;
  }

  /** Whether a version is there and may be called by `tenant`, with these headers. Fails as `invoke` does. */
  async check(urn: string, tenant: string | null, headers: FunctionCallHeaders = PLAIN_CALL): Promise<ServedFunction> {
    const served = await this.#find(urn, tenant);
    groupFor(served, headers);
    return served.fn;
  }

  /** The instances of a version (null: of all that this process serves) now. */
  instances(
    urn: string | null,
  ): { readonly instance: ServingInstance; readonly state: string; readonly inFlight: number }[] {
    const found = [];
    for (const { fn, service } of this.#versions.all) {
      if (urn !== null && fn.urn !== urn) continue;
      for (const group of service.groups) {
        for (const replica of group.replicas) {
          if (!replica.instance) continue;
          found.push({
            instance: replica.instance as ServingInstance,
            state: replica.state,
            inFlight: replica.inFlight,
          });
        }
      }
    }
    return found;
  }

  /** What the instances of a version use now; one that cannot tell, because it is ending, is left out. Fails as `check` does. */
  async stats(urn: string, tenant: string | null): Promise<readonly ({ readonly id: string } & SandboxStats)[]> {
    const { fn } = await this.#find(urn, tenant);
    const found = await Promise.allSettled(
      this.instances(fn.urn).map(async ({ instance }) => ({ id: instance.id, stats: await instance.stats?.() })),
    );
    return found.flatMap(one =>
      one.status === 'fulfilled' && one.value.stats ? [{ id: one.value.id, ...one.value.stats }] : [],
    );
  }

  /** Why instances of a version that should be there are not: the last start of each group that has none failed. */
  startFailures(urn: string): readonly string[] {
    const failures = new Set<string>();
    for (const { fn, service } of this.#versions.all) {
      if (fn.urn !== urn) continue;
      for (const group of service.groups) {
        if (group.failures === 0 || group.count('ready') > 0 || group.lastFailure === undefined) continue;
        failures.add(`the last start of an instance failed: ${group.lastFailure.message}`);
      }
    }
    return [...failures];
  }

  /**
   * The output of the code of a version's instances: of one instance as it is, of all with the beginning of each one's id before its lines.
   * `tail` counts for each. With `follow` it goes on until `signal` aborts, and instances that start later join. Fails as `check` does, and
   * with `not_found` (200404) for an instance that is not there.
   */
  async logs(
    urn: string,
    tenant: string | null,
    request: LogRequest & { readonly instanceId: string | null },
    signal: AbortSignal,
  ): Promise<AsyncIterable<Buffer>> {
    const { fn } = await this.#find(urn, tenant);
    const instances = this.instances(fn.urn).map(({ instance }) => instance);
    if (request.instanceId !== null) {
      const one = instances.find(({ id }) => id === request.instanceId);
      if (!one)
        throw notFound(`no instance of this version has the id ${request.instanceId}`, {
          number: SERVICE_CODES.unknownId.code,
        });
      return one.logs(request, signal);
    }
    const linesOf = (instance: ServingInstance) =>
      prefixed(instance.logs(request, signal), `[${instance.id.slice(0, 8)}] `);
    return request.follow ? this.#follow(fn, linesOf, signal) : inTurn(instances.map(linesOf));
  }

  /** What it listens to it lets go of when its reader ends; who never reads listens to nothing. */
  async *#follow(
    fn: ServedFunction,
    linesOf: (instance: ServingInstance) => AsyncIterable<Buffer>,
    signal: AbortSignal,
  ): AsyncGenerator<Buffer> {
    if (signal.aborted) return;
    const merge = new LogMerge(signal);
    for (const { instance } of this.instances(fn.urn)) merge.add(linesOf(instance));
    const stop = this.#versions.onStarted(instance => {
      if (instance.urn === fn.urn) merge.add(linesOf(instance));
    });
    try {
      yield* merge.read();
    } finally {
      stop();
    }
  }

  /**
   * Ways into the sandbox of the instance with this id. Null when there is none, or one of another tenant than `tenant` (null: any).
   * Fails with `failed_precondition` when its driver has none.
   */
  access(tenant: string | null, id: string): SandboxAccess | null {
    const found = this.instances(null).find(({ instance }) => instance.id === id)?.instance;
    if (!found || (tenant !== null && parseUrn(found.urn)?.tenant !== tenant)) return null;
    const access = found.access?.();
    if (!access) throw failedPrecondition('the sandboxes of this kind have no ways in');
    return access;
  }

  /** The port of a version that has an address; null: none, or there is no such version. Fails as the catalog does. */
  async exposed(urn: string): Promise<Expose | null> {
    const fn = this.#versions.find(urn)?.fn ?? (await this.#options.catalog.find(urn));
    return fn?.expose ?? null;
  }

  /**
   * Ways into an instance of a version, with a slot of it until `signal` aborts: whoever speaks to a port of it counts as a call. Fails as
   * `invoke` does, and with `failed_precondition` when its driver has no ways in.
   */
  async open(urn: string, signal: AbortSignal): Promise<SandboxAccess> {
    const { fn, service } = await this.#find(urn, null);
    const key = service.homeKey;
    const call = { body: NO_BODY, signal };
    const placed = this.#slotNow(service, key, PLAIN_CALL) ?? (await this.#placed(fn, service, key, call));
    placed.held();
    const instance = placed.lease.instance as ServingInstance;
    const give = () => placed.lease.release(instance.isConnected ? 'done' : 'failed');
    signal.addEventListener('abort', give, { once: true });
    if (signal.aborted) give();
    const access = instance.access?.();
    if (!access) throw failedPrecondition('the sandboxes of this kind have no ways in');
    return access;
  }

  async #placed(fn: ServedFunction, service: Service, key: GroupKey, call: WaitingCall) {
    try {
      return await this.#slot(fn, service, key, PLAIN_CALL, call);
    } catch (error) {
      if (error instanceof CodeFailure) throw unavailable(`its code could not be loaded: ${error.message}`);
      throw error;
    }
  }

  /** Instances by state, over all versions; those that start are there before anybody can call them. */
  countInstances(): ReadonlyMap<Replica['state'], number> {
    const counts = new Map<Replica['state'], number>();
    for (const { service } of this.#versions.all) {
      for (const { replicas } of service.groups) {
        for (const { state } of replicas) counts.set(state, (counts.get(state) ?? 0) + 1);
      }
    }
    return counts;
  }

  async #run(
    { fn, service }: Served,
    key: GroupKey,
    { headers, call, onPlaced, beforeRun, onEvent }: FunctionInvocation,
  ): Promise<FunctionResult> {
    // Without a wait, and without a promise, when a slot is free.
    const placed = this.#slotNow(service, key, headers) ?? (await this.#slot(fn, service, key, headers, call));
    const { lease, placeMs, held } = placed;
    const instance = lease.instance as ServingInstance;
    const leftBehind = new LeftBehind(lease, this.#options.clock);
    let isSent = false;
    let interruptible: SessionSignal | undefined;
    let grant: ((bytes: number) => void) | undefined;
    const onChunk =
      onEvent &&
      ((event: Buffer, callId: number) => {
        grant ??= bytes => instance.credit(callId, bytes);
        onEvent(event, grant);
      });
    try {
      if (beforeRun) await beforeRun();
      onPlaced?.(instance.id);
      // Not before: what is interrupted is a call that runs.
      if (headers.session) interruptible = this.#interruptibly(fn.urn, headers.session.id, call.signal);
      isSent = call.signal?.aborted !== true;
      // The instance counts the body in this same turn: nobody gets its bytes in between.
      held();
      // Field by field, here and below: spreading costs more than the rest of this function.
      const outcome = await instance.call({
        header: call.header,
        body: call.body,
        timeoutMs: fn.timeoutMs,
        signal: interruptible ?? call.signal,
        onChunk,
        onLateEnd: leftBehind.onEnd,
      });
      lease.release('done');
      const runMs = outcome.runMicros / 1000;
      const start = lease.cold ? instance.timings : NO_START;
      // Of a start only what it took is no waiting; a call may have waited before it.
      const { startMs, loadMs } = start;
      const queueMs = (call.waitedMs ?? 0) + Math.max(0, lease.queueMs - startMs - loadMs);
      return { outcome, instanceId: instance.id, timings: { queueMs, placeMs, startMs, loadMs, runMs } };
    } catch (error) {
      if (isDeadline(error)) lease.release('replace');
      else if (isSent && call.signal?.aborted && instance.isConnected) leftBehind.wait();
      // Its instance may have died of it, and the news of that may be here already: that it ended well would take the failure back.
      else lease.release('failed');
      throw withNumber(error, call.signal?.aborted ?? false);
    } finally {
      held();
      if (headers.session && interruptible) this.#letGo(fn.urn, headers.session.id, interruptible);
    }
  }

  #slotNow(service: Service, key: GroupKey, headers: FunctionCallHeaders) {
    const lease = service.tryAcquire(key, headers.session);
    if (!lease || (lease.instance as ServingInstance).isConnected)
      return lease && { lease, placeMs: 0, held: NOTHING_HELD };
    lease.release('replace');
    return undefined;
  }

  /** A slot on an instance whose connection stands. The body counts while it is waited for, and on until the caller calls `held`. */
  async #slot(
    fn: ServedFunction,
    service: Service,
    key: GroupKey,
    headers: FunctionCallHeaders,
    { body, signal, waitedMs = 0 }: WaitingCall,
  ) {
    const held = this.#hold(fn.tenant, body.length);
    const startedMs = this.#options.clock.now();
    const maxWaitMs = Math.max(0, Math.min(this.#options.maxWaitMs, fn.timeoutMs) - waitedMs);
    const asked = { session: headers.session, signal, maxWaitMs };
    try {
      for (let attempt = 0; ; attempt++) {
        const lease = service.tryAcquire(key, headers.session) ?? (await this.#wait(fn, service, key, asked));
        if ((lease.instance as ServingInstance).isConnected || attempt === MAX_SLOTS_TRIED) {
          return { lease, placeMs: this.#options.clock.now() - startedMs - lease.queueMs, held };
        }
        // It died and the news has not come round yet: the call has not been sent, so it may go elsewhere.
        lease.release('replace');
      }
    } catch (error) {
      held();
      throw error;
    }
  }

  /** Counts a body that waits. Fails with `resource_exhausted`; what it returns gives it back, once. */
  #hold(tenant: string, bytes: number): () => void {
    const { openCallBytes } = this.#options;
    const share = openCallBytes.shareOf(tenant);
    if (!openCallBytes.fits(bytes, share)) {
      share?.release();
      throw openCallsFull();
    }
    openCallBytes.take(bytes, share);
    let isHeld = true;
    return () => {
      if (!isHeld) return;
      isHeld = false;
      openCallBytes.give(bytes, share);
      share?.release();
    };
  }

  async #wait(
    fn: ServedFunction,
    service: Service,
    key: GroupKey,
    options: Parameters<Service['acquire']>[1],
  ): Promise<Lease> {
    const waiting = this.#waitingPerTenant.get(fn.tenant) ?? 0;
    if (waiting >= this.#options.maxWaitingPerTenant) {
      throw resourceExhausted(`${waiting} calls of this tenant are waiting already`, {
        number: SERVICE_CODES.machineFull.code,
        retryAfterSeconds: 1,
      });
    }
    this.#waitingPerTenant.set(fn.tenant, waiting + 1);
    try {
      return await service.acquire(key, options);
    } finally {
      const left = (this.#waitingPerTenant.get(fn.tenant) ?? 1) - 1;
      if (left > 0) this.#waitingPerTenant.set(fn.tenant, left);
      else this.#waitingPerTenant.delete(fn.tenant);
    }
  }

  /** The signal of a call of a session, which `interruptSession` finds until `#letGo`. */
  #interruptibly(urn: string, sessionId: string, caller: CallSignal | undefined): SessionSignal {
    const key = interruptKey(urn, sessionId);
    const signal = new SessionSignal(caller);
    const running = this.#interruptible.get(key);
    if (running) running.add(signal);
    else this.#interruptible.set(key, new Set([signal]));
    return signal;
  }

  #letGo(urn: string, sessionId: string, signal: SessionSignal): void {
    signal.end();
    const key = interruptKey(urn, sessionId);
    const running = this.#interruptible.get(key);
    running?.delete(signal);
    if (running?.size === 0) this.#interruptible.delete(key);
  }

  async #find(urn: string, tenant: string | null): Promise<Served> {
    // Before anything is read: what another tenant has may not show in how it is refused.
    if (tenant !== null && parseUrn(urn)?.tenant !== tenant) throw unknownFunction();
    return this.#versions.find(urn) ?? (await this.#versions.load(urn));
  }
}

async function* inTurn(sources: readonly AsyncIterable<Buffer>[]): AsyncGenerator<Buffer> {
  for (const source of sources) yield* source;
}

const NO_BODY = Buffer.alloc(0);
const NOTHING_HELD = () => undefined;
const NO_START = { startMs: 0, loadMs: 0 };

/** The group that a call belongs to. Fails with `failed_precondition` (150444, 4037) when there can be none. */
function groupFor(served: Served, headers: FunctionCallHeaders): GroupKey {
  if (headers === PLAIN_CALL) return served.service.homeKey;
  const { fn, labels } = served;
  if (headers.label !== '' && !labels.has(headers.label)) {
    throw failedPrecondition(`no instances are reserved for the label ${headers.label}`, {
      number: SERVICE_CODES.unknownLabel.code,
    });
  }
  const { concurrency } = fn.scaling;
  if (headers.session && headers.session.concurrency > concurrency) {
    throw failedPrecondition(
      `X-Instance-Session: concurrency ${headers.session.concurrency} is above the function's ${concurrency}`,
      { number: SERVICE_CODES.badSession.code },
    );
  }
  return groupKeyOf(served, headers);
}

function loadFailed({ error: { code, message, runMicros } }: CodeFailure): FunctionResult {
  return {
    outcome: { ok: false, code, text: message, runMicros: runMicros ?? 0 },
    instanceId: '',
    timings: { queueMs: 0, placeMs: 0, ...NO_START, runMs: 0 },
  };
}

function groupKeyOf({ fn }: Served, headers: FunctionCallHeaders): GroupKey {
  return {
    cpuMillis: headers.cpuMillis ?? fn.cpuMillis,
    memoryMb: headers.memoryMb ?? fn.memoryMb,
    customResources: headers.customResources === '' ? fn.customResources : headers.customResources,
    label: headers.label,
    sessionContext: fn.usesSessionContext ? readSessionContext(headers.sessionContext) : '',
    ...(headers.poolLabels.length > 0 && runsInCluster(fn.sandboxType) && { poolLabels: headers.poolLabels }),
  };
}

function interruptKey(urn: string, sessionId: string): string {
  return `${urn}\n${sessionId}`;
}

function isDeadline(error: unknown): boolean {
  return error instanceof ServiceError && error.code === 'deadline_exceeded';
}

function codeOf(error: unknown): string {
  if (!(error instanceof ServiceError)) return 'internal';
  return error.number === undefined ? error.code : String(error.number);
}

const NUMBER_OF_RUN: Readonly<Partial<Record<ErrorCode, number>>> = {
  deadline_exceeded: USER_CODES.timedOut.code,
  unavailable: SERVICE_CODES.instanceEnded.code,
  resource_exhausted: SERVICE_CODES.queueFull.code,
};

/** The code that a call answers with that failed while it had an instance. */
function withNumber(error: unknown, callerLeft: boolean): unknown {
  if (!(error instanceof ServiceError) || error.number !== undefined || callerLeft) return error;
  const number = NUMBER_OF_RUN[error.code];
  if (number === undefined) return error;
  return new ServiceError(error.code, error.message, {
    cause: error,
    number,
    ...(error.retryAfterSeconds === undefined ? {} : { retryAfterSeconds: error.retryAfterSeconds }),
  });
}
