import {
  failedPrecondition,
  messageOf,
  notFound,
  resourceExhausted,
  ServiceError,
  unavailable,
} from '../core/error.ts';
import { type FunctionCallHeaders, readSessionContext } from '../core/function-call.ts';
import { formatUrn, parseUrn } from '../core/urn.ts';
import type { Call, CallOutcome } from '../runtime/channel.ts';
import { Capacity, type CapacityOptions } from './capacity.ts';
import type { FunctionCatalog, ServedFunction } from './catalog.ts';
import { CodeFailure } from './failure.ts';
import type { Lease } from './group.ts';
import type { ServiceLauncher, ServingInstance } from './launcher.ts';
import type { GroupKey, ServiceClock } from './policy.ts';
import { Service } from './service.ts';

export interface FunctionServiceLog {
  info(fields: object, message: string): void;
  warn(fields: object, message: string): void;
}

export interface FunctionServiceOptions {
  readonly catalog: FunctionCatalog;
  readonly launcher: ServiceLauncher;
  readonly clock: ServiceClock;
  readonly capacity: CapacityOptions;
  /** The longest that a call waits for a place; the function's timeout when that is shorter. */
  readonly maxWaitMs: number;
  /** Waiting calls of one tenant over all its functions. */
  readonly maxWaitingPerTenant: number;
  readonly log: FunctionServiceLog;
}

export interface FunctionInvocation {
  /** A functionVersionUrn. */
  readonly urn: string;
  /** Null: any tenant's functions may be called (authentication is off). */
  readonly tenant: string | null;
  readonly headers: FunctionCallHeaders;
  readonly call: Omit<Call, 'timeoutMs' | 'onChunk'>;
  /** Told once the call has its place, before the handler runs. */
  readonly onPlaced?: (instanceId: string) => void;
  /** Makes it a stream. `taken` says that the reader took the event, so the handler may send as much again. */
  readonly onEvent?: (event: Buffer, taken: () => void) => void;
}

export interface FunctionResult {
  readonly outcome: CallOutcome;
  /** `''` when no instance could be had. */
  readonly instanceId: string;
  readonly timings: {
    readonly queueMs: number;
    readonly placeMs: number;
    readonly startMs: number;
    readonly loadMs: number;
    readonly runMs: number;
  };
}

interface Served {
  readonly fn: ServedFunction;
  readonly service: Service;
  readonly labels: ReadonlySet<string>;
}

/** Versions that are kept in memory before unused ones are forgotten. */
const MAX_REMEMBERED = 10_000;
/** A place that turned out to be on a broken instance before the call was sent is given up this often. */
const MAX_PLACES = 8;

/**
 * Invokes versions of functions as services: finds the version, groups its instances, and places each call.
 *
 * The versions that were called are kept in memory until the catalog says that they changed, so a warm call asks no store. A
 * changed function gets a new `Service`; the old one drains, so no call is lost.
 */
export class FunctionService {
  readonly #options: FunctionServiceOptions;
  readonly #capacity: Capacity;
  /** By URN as it was sent: other spellings of a version share what serves it. */
  readonly #served = new Map<string, Served>();
  /** URNs of `#served` by their functionUrn. */
  readonly #spellings = new Map<string, Set<string>>();
  readonly #loading = new Map<string, Promise<Served>>();
  readonly #draining = new Set<Service>();
  readonly #waitingPerTenant = new Map<string, number>();
  readonly #interrupts = new Map<string, Set<AbortController>>();
  #stopListening: (() => void) | undefined;
  #isStopping = false;

  constructor(options: FunctionServiceOptions) {
    this.#options = options;
    this.#capacity = new Capacity(options.capacity);
  }

  /** Takes over the instances of an earlier server and starts what is to be warm. Never rejects. */
  async start(): Promise<void> {
    this.#stopListening = this.#options.catalog.onChange(functionUrn => {
      this.#changed(functionUrn).catch((error: unknown) => {
        this.#options.log.warn({ functionUrn, reason: messageOf(error) }, 'a change of a function was not followed');
      });
    });
    for (const instance of await this.#options.launcher.adopt()) await this.#adopt(instance);
    await this.#warmUp(null);
  }

  /** Lets running calls end (the entry waits for them), then ends every instance. */
  async close(): Promise<void> {
    this.#isStopping = true;
    this.#stopListening?.();
    for (const { service } of this.#served.values()) this.#drain(service);
    await Promise.all([...this.#draining].map(service => service.drained));
    await this.#options.launcher.close();
  }

  /**
   * One call. The user's code failing is an outcome; everything else is a `ServiceError` whose `number` is the code of the answer.
   */
  async invoke(invocation: FunctionInvocation): Promise<FunctionResult> {
    const served = this.#served.get(invocation.urn) ?? (await this.#load(invocation.urn));
    const { fn, service } = served;
    if (invocation.tenant !== null && invocation.tenant !== fn.tenant) throw unknownFunction();
    const { headers } = invocation;
    if (headers.label !== '' && !served.labels.has(headers.label)) {
      throw failedPrecondition(`no instances are reserved for the label ${headers.label}`, { number: 150444 });
    }
    const { concurrency } = fn.scaling;
    if (headers.session && headers.session.concurrency > concurrency) {
      throw failedPrecondition(
        `X-Instance-Session: concurrency ${headers.session.concurrency} is above the function's ${concurrency}`,
        { number: 4037 },
      );
    }
    const key: GroupKey = {
      cpuMillis: headers.cpuMillis ?? fn.cpuMillis,
      memoryMb: headers.memoryMb ?? fn.memoryMb,
      customResources: headers.customResources === '' ? fn.customResources : headers.customResources,
      label: headers.label,
      sessionContext: fn.usesSessionContext ? readSessionContext(headers.sessionContext) : '',
    };
    try {
      return await this.#run(served, service, key, invocation);
    } catch (error) {
      if (!(error instanceof CodeFailure)) throw error;
      const { code, message, runMicros } = error.error;
      return {
        outcome: { ok: false, code, text: message, runMicros: runMicros ?? 0 },
        instanceId: '',
        timings: { queueMs: 0, placeMs: 0, startMs: 0, loadMs: 0, runMs: 0 },
      };
    }
  }

  /** Ends a session of a function version; false when it is not known. */
  async endSession(urn: string, tenant: string | null, id: string): Promise<boolean> {
    const served = await this.#known(urn, tenant);
    return served?.service.endSession(id) ?? false;
  }

  /** Raises an exception in the running calls of a session; false when it is not known. */
  async interruptSession(urn: string, tenant: string | null, id: string): Promise<boolean> {
    const served = await this.#known(urn, tenant);
    if (!served?.service.hasSession(id)) return false;
    for (const interrupt of this.#interrupts.get(interruptKey(served.fn.urn, id)) ?? []) interrupt.abort('interrupt');
    return true;
  }

  /** Whether a version is there and may be called by `tenant`. Fails as `invoke` does. */
  async check(urn: string, tenant: string | null): Promise<ServedFunction> {
    const { fn } = this.#served.get(urn) ?? (await this.#load(urn));
    if (tenant !== null && tenant !== fn.tenant) throw unknownFunction();
    return fn;
  }

  /** The instances of a version (null: of all that this process serves) now. */
  instances(
    urn: string | null,
  ): { readonly instance: ServingInstance; readonly state: string; readonly inFlight: number }[] {
    const found = [];
    for (const { fn, service } of this.#served.values()) {
      if (urn !== null && fn.urn !== urn) continue;
      for (const group of service.groups) {
        for (const member of group.members) {
          if (!member.instance) continue;
          found.push({ instance: member.instance as ServingInstance, state: member.state, inFlight: member.inFlight });
        }
      }
    }
    return found;
  }

  /** Instances by state, over all versions. */
  countInstances(): ReadonlyMap<string, number> {
    const counts = new Map<string, number>();
    for (const { state } of this.instances(null)) counts.set(state, (counts.get(state) ?? 0) + 1);
    return counts;
  }

  async #run(
    served: Served,
    service: Service,
    key: GroupKey,
    { headers, call, onPlaced, onEvent }: FunctionInvocation,
  ): Promise<FunctionResult> {
    const { fn } = served;
    const sinceMs = this.#options.clock.now();
    const { lease, placeMs } = await this.#place(fn, service, key, headers, call.signal);
    const instance = lease.instance as ServingInstance;
    const release = this.#interruptible(fn.urn, headers.session?.id, call.signal);
    onPlaced?.(instance.id);
    const onChunk = onEvent && {
      onChunk: (event: Buffer, callId: number) => onEvent(event, () => instance.credit(callId, event.length)),
    };
    try {
      const outcome = await instance.call({ ...call, ...release.signal, ...onChunk, timeoutMs: fn.timeoutMs });
      lease.release('done');
      const runMs = outcome.runMicros / 1000;
      const cold = lease.cold ? instance.timings : NO_START;
      const queueMs = this.#options.clock.now() - sinceMs - runMs;
      return {
        outcome,
        instanceId: instance.id,
        timings: { queueMs: lease.cold ? 0 : Math.max(0, Math.min(queueMs, lease.queueMs)), placeMs, ...cold, runMs },
      };
    } catch (error) {
      lease.release(isDeadline(error) ? 'replace' : 'done');
      throw withNumber(error, call.signal?.aborted ?? false);
    } finally {
      release.end();
    }
  }

  /** A place on an instance whose connection stands. */
  async #place(
    fn: ServedFunction,
    service: Service,
    key: GroupKey,
    headers: FunctionCallHeaders,
    signal: AbortSignal | undefined,
  ) {
    const startedMs = this.#options.clock.now();
    const maxWaitMs = Math.min(this.#options.maxWaitMs, fn.timeoutMs);
    for (let attempt = 0; ; attempt++) {
      const lease = await this.#acquire(fn, service, key, { session: headers.session, signal, maxWaitMs });
      if ((lease.instance as ServingInstance).isConnected || attempt === MAX_PLACES) {
        return { lease, placeMs: this.#options.clock.now() - startedMs - lease.queueMs };
      }
      // It died and the news has not come round yet: the call has not been sent, so it may go elsewhere.
      lease.release('replace');
    }
  }

  async #acquire(
    fn: ServedFunction,
    service: Service,
    key: GroupKey,
    options: Parameters<Service['acquire']>[1],
  ): Promise<Lease> {
    const now = service.tryAcquire(key, options.session);
    if (now) return now;
    const waiting = this.#waitingPerTenant.get(fn.tenant) ?? 0;
    if (waiting >= this.#options.maxWaitingPerTenant) {
      throw resourceExhausted(`${waiting} calls of this tenant are waiting already`, {
        number: 150510,
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

  /** The call's signal, and for calls of a session one that `interruptSession` aborts too. */
  #interruptible(urn: string, sessionId: string | undefined, signal: AbortSignal | undefined) {
    if (sessionId === undefined) return { signal: signal ? { signal } : {}, end: () => undefined };
    const key = interruptKey(urn, sessionId);
    const interrupt = new AbortController();
    const onAbort = () => interrupt.abort(signal?.reason);
    signal?.addEventListener('abort', onAbort, { once: true });
    const running = this.#interrupts.get(key) ?? new Set();
    running.add(interrupt);
    this.#interrupts.set(key, running);
    return {
      signal: { signal: interrupt.signal },
      end: () => {
        signal?.removeEventListener('abort', onAbort);
        running.delete(interrupt);
        if (running.size === 0) this.#interrupts.delete(key);
      },
    };
  }

  async #known(urn: string, tenant: string | null): Promise<Served | undefined> {
    const served = this.#served.get(urn) ?? (await this.#load(urn));
    if (tenant !== null && tenant !== served.fn.tenant) throw unknownFunction();
    return served;
  }

  #load(urn: string): Promise<Served> {
    if (this.#isStopping) return Promise.reject(unavailable('the service is stopping', { number: 150431 }));
    let loading = this.#loading.get(urn);
    if (!loading) {
      loading = this.#loadOnce(urn).finally(() => this.#loading.delete(urn));
      this.#loading.set(urn, loading);
    }
    return loading;
  }

  async #loadOnce(urn: string): Promise<Served> {
    const fn = await this.#options.catalog.find(urn);
    if (!fn) throw unknownFunction();
    const labels = await this.#options.catalog.labels(fn.urn);
    // Other spellings of one version (`latest`) share what serves it.
    const served = this.#served.get(fn.urn) ?? this.#serve(fn, labels);
    this.#remember(urn, served);
    return served;
  }

  #remember(urn: string, served: Served): void {
    this.#served.set(urn, served);
    const functionUrn = functionUrnOf(urn);
    const spellings = this.#spellings.get(functionUrn) ?? new Set();
    spellings.add(urn);
    this.#spellings.set(functionUrn, spellings);
    if (this.#served.size > MAX_REMEMBERED) this.#forgetUnused();
  }

  #forget(urn: string): void {
    this.#served.delete(urn);
    const functionUrn = functionUrnOf(urn);
    const spellings = this.#spellings.get(functionUrn);
    spellings?.delete(urn);
    if (spellings?.size === 0) this.#spellings.delete(functionUrn);
  }

  /** Versions without instances and waiting calls cost nothing but the memory of them. */
  #forgetUnused(): void {
    for (const [urn, { service }] of this.#served) {
      if (service.isEmpty) {
        this.#forget(urn);
        this.#drain(service);
      }
    }
  }

  #serve(fn: ServedFunction, labels: Awaited<ReturnType<FunctionCatalog['labels']>>): Served {
    const home: GroupKey = {
      cpuMillis: fn.cpuMillis,
      memoryMb: fn.memoryMb,
      customResources: fn.customResources,
      label: '',
      sessionContext: '',
    };
    const service = new Service({ ...fn.scaling, labels }, home, {
      tenant: fn.tenant,
      clock: this.#options.clock,
      capacity: this.#capacity,
      start: key => this.#options.launcher.launch(fn, key),
    });
    const served = { fn, service, labels: new Set(labels.keys()) };
    this.#remember(fn.urn, served);
    service.start();
    return served;
  }

  async #adopt(instance: ServingInstance): Promise<void> {
    const served = await this.#load(instance.urn).catch(() => undefined);
    if (served && served.fn.revisionId === instance.revisionId) served.service.adopt(instance.key, instance);
    else void instance.stop();
  }

  async #warmUp(functionUrn: string | null): Promise<void> {
    for (const urn of await this.#options.catalog.warm(functionUrn)) {
      await this.#load(urn).catch((error: unknown) => {
        this.#options.log.warn({ urn, reason: messageOf(error) }, 'a function could not be kept warm');
      });
    }
  }

  /** Brings what is served of a function to what the catalog says now. */
  async #changed(functionUrn: string): Promise<void> {
    for (const urn of [...(this.#spellings.get(functionUrn) ?? [])]) {
      const served = this.#served.get(urn);
      if (!served) continue;
      const fn = await this.#options.catalog.find(served.fn.urn).catch(() => null);
      if (this.#served.get(urn) !== served) continue;
      if (fn && fn.revisionId === served.fn.revisionId) {
        const labels = await this.#options.catalog.labels(fn.urn);
        served.service.setPolicy({ ...fn.scaling, labels });
        this.#served.set(urn, { ...served, labels: new Set(labels.keys()) });
      } else {
        this.#forget(urn);
        this.#drain(served.service);
      }
    }
    if (!this.#isStopping) await this.#warmUp(functionUrn);
  }

  #drain(service: Service): void {
    if (this.#draining.has(service)) return;
    this.#draining.add(service);
    void service.drain().then(() => this.#draining.delete(service));
  }
}

const NO_START = { startMs: 0, loadMs: 0 };

export function unknownFunction(): ServiceError {
  return notFound('function metadata not found', { number: 150424 });
}

function functionUrnOf(urn: string): string {
  const parsed = parseUrn(urn);
  return parsed ? formatUrn({ ...parsed, version: null }) : urn;
}

function interruptKey(urn: string, sessionId: string): string {
  return `${urn}\n${sessionId}`;
}

function isDeadline(error: unknown): boolean {
  return error instanceof ServiceError && error.code === 'deadline_exceeded';
}

/** The code that a failed call answers with: timed out 4010, the instance ended 150427. */
function withNumber(error: unknown, callerLeft: boolean): unknown {
  if (!(error instanceof ServiceError) || error.number !== undefined || callerLeft) return error;
  const number = { deadline_exceeded: 4010, unavailable: 150427, resource_exhausted: 150429 }[error.code as string];
  if (number === undefined) return error;
  return new ServiceError(error.code, error.message, {
    cause: error,
    number,
    ...(error.retryAfterSeconds === undefined ? {} : { retryAfterSeconds: error.retryAfterSeconds }),
  });
}
