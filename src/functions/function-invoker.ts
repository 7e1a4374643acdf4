import type { Expose } from '../core/address.ts';
import { SERVICE_CODES, USER_CODES } from '../core/codes.ts';
import { type ErrorCode, failedPrecondition, messageOf, notFound, ServiceError, unavailable } from '../core/error.ts';
import type { CallOrigin, CallSink, CallStages } from '../core/finished-call.ts';
import { type FunctionCallHeaders, PLAIN_CALL } from '../core/function-call.ts';
import { parseUrn } from '../core/urn.ts';
import type { Log } from '../lib/log.ts';
import type { Call, CallOutcome } from '../runtime/call.ts';
import type { SandboxAccess } from '../sandbox/access.ts';
import type { LogChunks, LogRequest, SandboxStats } from '../sandbox/driver.ts';
import {
  type ActiveVersion,
  ActiveVersions,
  ALL_SHARDS,
  type FunctionShards,
  unknownFunction,
} from './active-versions.ts';
import {
  AbandonedCall,
  CallSlots,
  type CallSlotsOptions,
  groupKeyOf,
  type PlacedCall,
  type WaitingCall,
} from './call-slots.ts';
import { Capacity, type CapacityOptions } from './capacity.ts';
import type { FunctionCatalog, FunctionDefinition } from './catalog.ts';
import { checkEvent } from './event-check.ts';
import { offerCall } from './finished-calls.ts';
import { CodeFailure, type FunctionInstance, type InstanceLauncher } from './function-instance.ts';
import { followedLogs, joinedLogs } from './log-merge.ts';
import type { GroupKey } from './policy.ts';
import type { VersionReplica } from './replica.ts';
import { type SessionCall, SessionCalls, withProfileSession } from './session-calls.ts';

export interface FunctionInvokerOptions extends CallSlotsOptions {
  readonly catalog: FunctionCatalog;
  readonly launcher: InstanceLauncher;
  readonly capacity: CapacityOptions;
  /** Absent: this process serves all functions. */
  readonly shards?: FunctionShards;
  /** Called for each call of an existing version. `timings` are null when the call got no slot. */
  readonly observe?: (tenant: string, name: string, code: string, seconds: number, timings: CallTimings | null) => void;
  /** The history of calls. */
  readonly callSink: CallSink;
  /** Versions in memory above which unused ones are dropped. Default 10 000. */
  readonly maxRemembered?: number;
  readonly log: Log;
}

/** Durations of a call's stages, milliseconds. */
export type CallTimings = CallStages;

export interface FunctionInvocation {
  /** A functionVersionUrn. */
  readonly urn: string;
  /** Null: functions of any tenant may be called, because authentication is off. */
  readonly tenant: string | null;
  readonly headers: FunctionCallHeaders;
  /** `waitedMs` counts as waiting for an instance. */
  readonly call: Omit<Call, 'timeoutMs' | 'onChunk' | 'onLateEnd'>;
  /** Awaited once the call has its slot, before it is sent. Its error fails the call. */
  readonly beforeRun?: () => Promise<void>;
  /** Called once the call has its slot, before the handler runs. */
  readonly onPlaced?: (instanceId: string) => void;
  /**
   * Makes the call a stream. The reader calls `grant` with the bytes that it has consumed, and the handler
   * may send as many more.
   */
  readonly onEvent?: (event: Buffer, grant: (bytes: number) => void) => void;
  /** For the history of calls. Absent: a synchronous call without a token. */
  readonly origin?: CallOrigin;
}

export interface FunctionResult {
  readonly outcome: CallOutcome;
  /** `''` when the call got no instance. */
  readonly instanceId: string;
  readonly timings: CallTimings;
}

/**
 * Runs calls of functions: finds the version, acquires a slot on an instance, and sends the call.
 */
export class FunctionInvoker {
  readonly #options: FunctionInvokerOptions;
  readonly #versions: ActiveVersions;
  readonly #slots: CallSlots;
  readonly #sessionCalls = new SessionCalls();

  constructor(options: FunctionInvokerOptions) {
    this.#options = options;
    this.#slots = new CallSlots(options);
    this.#versions = new ActiveVersions({
      ...options,
      capacity: new Capacity(options.capacity),
      shards: options.shards ?? ALL_SHARDS,
    });
  }

  /** Adopts running instances, and starts those that must be kept warm. Never rejects. */
  start(): Promise<void> {
    return this.#versions.start();
  }

  /** Begins to serve the functions of these shards. Never rejects. */
  acquired(shards: readonly string[]): Promise<void> {
    return this.#versions.acquired(shards);
  }

  /** Lets the calls of these shards end for at most `graceMs`, then ends their instances. Never rejects. */
  release(shards: readonly string[], graceMs: number): Promise<void> {
    return this.#versions.release(shards, graceMs);
  }

  /**
   * Ends the instances of these shards at once, because another replica already serves them. Their calls
   * fail.
   */
  lost(shards: readonly string[]): void {
    this.#versions.lost(shards);
  }

  /** Lets running calls end for at most `graceMs`, then ends every instance. */
  async close(graceMs: number): Promise<void> {
    await this.#versions.close(graceMs);
    await this.#options.launcher.close();
  }

  /** Runs one call. User code fails as an outcome, all else as a `ServiceError` with the code to answer. */
  async invoke(sent: FunctionInvocation): Promise<FunctionResult> {
    const version = this.#versions.find(sent.urn) ?? (await this.#find(sent.urn, sent.tenant));
    const { fn } = version;
    const invocation = fn.httpProfile === undefined ? sent : withProfileSession(sent, fn.httpProfile);
    if (invocation.tenant !== null && invocation.tenant !== fn.tenant) throw unknownFunction();
    if (fn.inputSchema !== undefined) checkEvent(fn.inputSchema, invocation.call.body);
    const { observe } = this.#options;
    const startMs = performance.now();
    let result: FunctionResult;
    try {
      result = await this.#run(version, groupKeyOf(version, invocation.headers), invocation);
    } catch (error) {
      if (!(error instanceof CodeFailure)) {
        const code = invocation.call.signal?.aborted ? 'cancelled' : codeOf(error);
        const elapsedMs = performance.now() - startMs;
        observe?.(fn.tenant, fn.name, code, elapsedMs / 1000, null);
        offerCall(this.#options.callSink, fn, invocation, { code, elapsedMs, result: null, error: messageOf(error) });
        throw error;
      }
      result = loadFailed(error);
    }
    const { outcome, timings } = result;
    const elapsedMs = performance.now() - startMs;
    const code = outcome.ok ? 'ok' : String(outcome.code);
    observe?.(fn.tenant, fn.name, code, elapsedMs / 1000, timings);
    const error = outcome.ok ? '' : outcome.text;
    offerCall(this.#options.callSink, fn, invocation, { code, elapsedMs, result, error });
    return result;
  }

  /**
   * Returns a function that makes the refusal of a plain call now because too many calls wait, and counts it.
   * The caller must call it when it refuses. Undefined when a call would not be refused, or when the version
   * is not in memory.
   */
  refusal(urn: string, tenant: string | null): (() => ServiceError) | undefined {
    const version = this.#versions.find(urn);
    if (!version || (tenant !== null && tenant !== version.fn.tenant)) return undefined;
    const refusal = version.scaler.refusal();
    if (refusal === undefined) return undefined;
    return () => {
      this.#options.observe?.(version.fn.tenant, version.fn.name, codeOf(refusal), 0, null);
      return refusal;
    };
  }

  /** Ends a session of a function version. Returns false for an unknown session. */
  async endSession(urn: string, tenant: string | null, id: string): Promise<boolean> {
    const version = await this.#find(urn, tenant);
    return version.scaler.endSession(id);
  }

  /** Raises an exception in the running calls of a session. Returns false for an unknown session. */
  async interruptSession(urn: string, tenant: string | null, id: string): Promise<boolean> {
    const version = await this.#find(urn, tenant);
    // Draining unbinds the sessions of an instance at once, but their running calls continue.
    return this.#sessionCalls.interrupt(version.fn.urn, id) || version.scaler.hasSession(id);
  }

  /** Returns the version if `tenant` may call it with these headers and event. Fails as `invoke` does. */
  async check(
    urn: string,
    tenant: string | null,
    headers: FunctionCallHeaders = PLAIN_CALL,
    event?: Buffer,
  ): Promise<FunctionDefinition> {
    const version = await this.#find(urn, tenant);
    groupKeyOf(version, headers);
    if (event && version.fn.inputSchema) checkEvent(version.fn.inputSchema, event);
    return version.fn;
  }

  /** Returns the current instances of a version; null: of all versions that this process serves. */
  instances(
    urn: string | null,
  ): { readonly instance: FunctionInstance; readonly state: string; readonly inFlight: number }[] {
    const found = [];
    for (const { fn, scaler } of this.#versions.all) {
      if (urn !== null && fn.urn !== urn) continue;
      for (const group of scaler.groups) {
        for (const replica of group.replicas) {
          if (!replica.instance) continue;
          found.push({
            instance: replica.instance,
            state: replica.state,
            inFlight: replica.inFlight,
          });
        }
      }
    }
    return found;
  }

  /**
   * Returns the current resource usage of a version's instances. Omits instances that cannot report it
   * because they are ending. Fails as `check` does.
   */
  async stats(urn: string, tenant: string | null): Promise<readonly ({ readonly id: string } & SandboxStats)[]> {
    const { fn } = await this.#find(urn, tenant);
    const found = await Promise.allSettled(
      this.instances(fn.urn).map(async ({ instance }) => ({ id: instance.id, stats: await instance.stats?.() })),
    );
    return found.flatMap(one =>
      one.status === 'fulfilled' && one.value.stats ? [{ id: one.value.id, ...one.value.stats }] : [],
    );
  }

  /** Returns the waiting calls of a version, and the last failure of each group without a ready instance. */
  shortage(urn: string): { readonly waitingCalls: number; readonly startFailures: readonly string[] } {
    const failures = new Set<string>();
    let waitingCalls = 0;
    for (const { fn, scaler } of this.#versions.all) {
      if (fn.urn !== urn) continue;
      waitingCalls += scaler.waiting;
      for (const group of scaler.groups) {
        if (group.failures === 0 || group.count('ready') > 0 || group.lastFailure === undefined) continue;
        failures.add(`the last start of an instance failed: ${group.lastFailure.message}`);
      }
    }
    return { waitingCalls, startFailures: [...failures] };
  }

  /**
   * Returns the output of a version's code: that of a single instance unchanged, or that of all. Lines of all
   * instances begin with the first 8 characters of the instance's id. `tail` counts for each instance. With
   * `follow` the output continues until `signal` aborts, and has the whole output of instances that start
   * later. Fails as `check` does, and with `not_found` (200404) for an unknown instance.
   */
  async logs(
    urn: string,
    tenant: string | null,
    request: LogRequest & { readonly instanceId: string | null },
    signal: AbortSignal,
  ): Promise<LogChunks> {
    const { fn } = await this.#find(urn, tenant);
    const instances = () => this.instances(fn.urn).map(({ instance }) => instance);
    if (request.instanceId !== null) {
      const one = instances().find(({ id }) => id === request.instanceId);
      if (!one)
        throw notFound(`no instance of this version has the id ${request.instanceId}`, {
          number: SERVICE_CODES.unknownId.code,
        });
      return one.logs(request, signal);
    }
    if (!request.follow) return joinedLogs(instances(), request, signal);
    return followedLogs(instances, request, signal, add => {
      return this.#versions.onStarted(instance => {
        if (instance.urn === fn.urn) add(instance);
      });
    });
  }

  /**
   * Returns the access to the sandbox of an instance. Null for an unknown id, or an instance of another
   * tenant than `tenant` (null: any tenant). Fails with `failed_precondition` when the driver does not
   * support access.
   */
  access(tenant: string | null, id: string): SandboxAccess | null {
    const found = this.instances(null).find(({ instance }) => instance.id === id)?.instance;
    if (!found || (tenant !== null && parseUrn(found.urn)?.tenant !== tenant)) return null;
    const access = found.access?.();
    if (!access) throw failedPrecondition('sandboxes of this type do not support commands, files and ports');
    return access;
  }

  /**
   * Returns the port of a version that has an address; null for none, or for an unknown version. Fails as the
   * catalog does.
   */
  async exposed(urn: string): Promise<Expose | null> {
    const fn = this.#versions.find(urn)?.fn ?? (await this.#options.catalog.find(urn));
    return fn?.expose ?? null;
  }

  /**
   * Returns the access to an instance of a version, and holds a slot of it until `signal` aborts. A
   * connection to a port thus counts as a call. Fails as `invoke` does, and with `failed_precondition` when
   * the driver does not support access.
   */
  async open(urn: string, signal: AbortSignal): Promise<SandboxAccess> {
    const version = await this.#find(urn, null);
    const { scaler } = version;
    const key = scaler.homeKey;
    const call = { body: NO_BODY, signal };
    const placed = this.#slots.tryAcquire(scaler, key, PLAIN_CALL) ?? (await this.#place(version, key, call));
    placed.releaseBody();
    const { instance } = placed.lease;
    const release = () => placed.lease.release(instance.isConnected ? 'done' : 'failed');
    signal.addEventListener('abort', release, { once: true });
    if (signal.aborted) release();
    const access = instance.access?.();
    if (!access) throw failedPrecondition('sandboxes of this type do not support commands, files and ports');
    return access;
  }

  async #place(version: ActiveVersion, key: GroupKey, call: WaitingCall): Promise<PlacedCall> {
    try {
      return await this.#slots.acquire(version, key, PLAIN_CALL, call);
    } catch (error) {
      if (error instanceof CodeFailure) throw unavailable(`its code could not be loaded: ${error.message}`);
      throw error;
    }
  }

  /** Counts the instances by state, over all versions. Starting instances count before they take calls. */
  countInstances(): ReadonlyMap<VersionReplica['state'], number> {
    const counts = new Map<VersionReplica['state'], number>();
    for (const { scaler } of this.#versions.all) {
      for (const { replicas } of scaler.groups) {
        for (const { state } of replicas) counts.set(state, (counts.get(state) ?? 0) + 1);
      }
    }
    return counts;
  }

  async #run(
    version: ActiveVersion,
    key: GroupKey,
    { headers, call, onPlaced, beforeRun, onEvent }: FunctionInvocation,
  ): Promise<FunctionResult> {
    // A free slot is returned without awaiting a promise.
    const { fn, scaler } = version;
    const slots = this.#slots;
    const placed = slots.tryAcquire(scaler, key, headers) ?? (await slots.acquire(version, key, headers, call));
    const { lease, placeMs, releaseBody } = placed;
    const { instance } = lease;
    const abandoned = new AbandonedCall(lease, this.#options.clock);
    let isSent = false;
    let sessionCall: SessionCall | undefined;
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
      // Interrupts reach running calls only, so the call becomes interruptible here.
      if (headers.session) sessionCall = this.#sessionCalls.startCall(fn.urn, headers.session.id, call.signal);
      isSent = call.signal?.aborted !== true;
      // The instance counts the body in this same turn of the event loop. No other call can take its bytes in
      // between.
      releaseBody();
      // Copies fields one by one, here and below: spreading costs more than the rest of this function.
      const outcome = await instance.call({
        header: call.header,
        body: call.body,
        timeoutMs: fn.timeoutMs,
        signal: sessionCall?.signal ?? call.signal,
        onChunk,
        onLateEnd: abandoned.onEnd,
      });
      lease.release('done');
      const runMs = outcome.runMicros / 1000;
      const start = lease.cold ? instance.timings : NO_START;
      // The duration of the start is reported separately, so it is subtracted from the wait.
      const { startMs, loadMs } = start;
      const queueMs = (call.waitedMs ?? 0) + Math.max(0, lease.queueMs - startMs - loadMs);
      return { outcome, instanceId: instance.id, timings: { queueMs, placeMs, startMs, loadMs, runMs } };
    } catch (error) {
      if (isDeadline(error)) lease.release('replace');
      else if (isSent && call.signal?.aborted && instance.isConnected) abandoned.releaseAtEnd();
      // The call may have killed its instance, and the exit may already be counted as a failure. `done` would
      // reset that count.
      else lease.release('failed');
      throw withNumber(error, call.signal?.aborted ?? false);
    } finally {
      releaseBody();
      sessionCall?.end();
    }
  }

  async #find(urn: string, tenant: string | null): Promise<ActiveVersion> {
    // Checked before the first read: a refusal must not reveal the functions of another tenant.
    if (tenant !== null && parseUrn(urn)?.tenant !== tenant) throw unknownFunction();
    return this.#versions.find(urn) ?? (await this.#versions.load(urn));
  }
}

const NO_BODY = Buffer.alloc(0);
const NO_START = { startMs: 0, loadMs: 0 };

function loadFailed({ error: { code, message, runMicros } }: CodeFailure): FunctionResult {
  return {
    outcome: { ok: false, code, text: message, runMicros: runMicros ?? 0 },
    instanceId: '',
    timings: { queueMs: 0, placeMs: 0, ...NO_START, runMs: 0 },
  };
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

/** Adds the code of the answer to an error of a call that had an instance. */
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
