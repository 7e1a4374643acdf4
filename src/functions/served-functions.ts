import { SERVICE_CODES } from '../core/codes.ts';
import { messageOf, notFound, PartAway, ServiceError, unavailable } from '../core/error.ts';
import type { Lease } from '../core/lease.ts';
import { formatUrn, functionUrnOf, parseUrn } from '../core/urn.ts';
import { endsWithin } from '../lib/deadline.ts';
import type { Log } from '../lib/log.ts';
import type { Capacity } from './capacity.ts';
import type { FunctionCatalog, ServedFunction } from './catalog.ts';
import type { GroupKey, ServiceClock } from './policy.ts';
import { Service } from './service.ts';
import { type FunctionShards, shardOfUrn } from './shards.ts';
import type { InstanceStarter, ServingInstance } from './starter.ts';

export interface ServedFunctionsOptions {
  readonly catalog: FunctionCatalog;
  readonly starter: InstanceStarter;
  readonly clock: ServiceClock;
  readonly capacity: Capacity;
  readonly shards: FunctionShards;
  readonly log: Log;
  /** Versions in memory above which unused ones are dropped. Default 10 000. */
  readonly maxRemembered?: number;
}

/** Current version of a function, and the service that runs it. */
export interface Served {
  readonly fn: ServedFunction;
  readonly service: Service;
  readonly labels: ReadonlySet<string>;
  /** Lease under which this replica serves the function. */
  readonly lease: Lease;
}

interface Loading {
  /** True if a change was reported during the read, so that the result may be old. */
  isStale: boolean;
  promise: Promise<Served>;
}

const MAX_REMEMBERED = 10_000;
/** Maximum number of consecutive reads of a version that changes during each read. */
const MAX_READS = 100;
/** Time that the forced end of instances may take when the server closes. */
const FORCED_END_MS = 12_000;

/**
 * Versions that were called, kept in memory until the catalog reports a change. A warm call thus reads no
 * storage.
 * After a change no call is placed by the old state. A version of a new revision gets a new `Service`. The
 * old one drains, so no call is lost.
 */
export class ServedFunctions {
  readonly #options: ServedFunctionsOptions;
  readonly #maxRemembered: number;
  /** Versions by their URNs as calls sent them. Every change removes those of its function. */
  readonly #cache = new Map<string, Served>();
  /** Service of each version, by its functionVersionUrn. */
  readonly #current = new Map<string, Served>();
  readonly #loading = new Map<string, Loading>();
  /** URNs of `#cache`, `#current` and `#loading` by their functionUrn. */
  readonly #urnsOf = new Map<string, Set<string>>();
  /** Services that take no new calls, with the shards of their functions. */
  readonly #draining = new Map<Service, string>();
  /** Recovered instances that no version has adopted yet, by their functionVersionUrn. */
  readonly #inherited = new Map<string, ServingInstance[]>();
  readonly #onStarted = new Set<(instance: ServingInstance) => void>();
  #stopListening: (() => void) | undefined;
  #isStarted = false;
  #isStopping = false;

  constructor(options: ServedFunctionsOptions) {
    this.#options = options;
    this.#maxRemembered = options.maxRemembered ?? MAX_REMEMBERED;
  }

  /** Adopts running instances, and starts those that must be kept warm. Never rejects. */
  async start(): Promise<void> {
    const { catalog, starter } = this.#options;
    this.#stopListening = catalog.onChange((functionUrn, mayBeWarm) => this.#changed(functionUrn, mayBeWarm));
    for (const instance of await starter.adopt(late => void this.#inheritLate(late))) this.#inherit(instance);
    // A version adopts its instances before it starts missing ones.
    for (const urn of [...this.#inherited.keys()]) await this.#settle(urn);
    this.#isStarted = true;
    await this.#warmUp(null);
  }

  /** Begins to serve the functions of these shards. */
  async acquired(shards: readonly string[]): Promise<void> {
    // `start` includes all shards.
    if (this.#isStarted && !this.#isStopping) await this.#warmUp(null, new Set(shards));
  }

  /**
   * Lets the calls of these shards end for at most `graceMs`, then ends their instances. New calls are
   * already refused.
   */
  async release(shards: readonly string[], graceMs: number): Promise<void> {
    const services = this.#retireAll(new Set(shards));
    await this.#ended(services, graceMs);
  }

  /**
   * Ends the services of these shards at once, because another replica already serves them. Their calls fail.
   */
  lost(shards: readonly string[]): void {
    for (const service of this.#retireAll(new Set(shards))) service.endAll();
  }

  /** Drains the services of these shards and returns them. */
  #retireAll(shards: ReadonlySet<string>): readonly Service[] {
    for (const urn of [...this.#current.keys()]) if (shards.has(shardOfUrn(urn))) this.#retire(urn);
    return [...this.#draining].filter(([, shard]) => shards.has(shard)).map(([service]) => service);
  }

  /** Lets calls end for at most `graceMs`, then ends every instance. */
  async close(graceMs: number): Promise<void> {
    this.#isStopping = true;
    this.#stopListening?.();
    for (const { fn, service } of this.#current.values()) this.#drain(service, fn.urn);
    await this.#ended([...this.#draining.keys()], graceMs);
  }

  /** Waits for draining services, and ends those that have not ended within `graceMs`. Never rejects. */
  async #ended(services: readonly Service[], graceMs: number): Promise<void> {
    const drained = Promise.all(services.map(service => service.drained));
    if (!(await endsWithin(drained, graceMs))) {
      for (const service of services) service.endAll();
      if (!(await endsWithin(drained, FORCED_END_MS))) {
        this.#options.log.warn({}, 'instances of functions did not end in time; the next start ends them');
      }
    }
  }

  /** Returns a version that was loaded before and has not changed since. */
  find(urn: string): Served | undefined {
    const served = this.#cache.get(urn);
    // A suspended replica may have lost the lease without being notified.
    return served?.lease.isHeld() ? served : undefined;
  }

  /**
   * Loads a version. Fails with `not_found` (150424), `unavailable` (another replica serves it), or as the
   * catalog does.
   */
  load(urn: string): Promise<Served> {
    if (this.#isStopping)
      return Promise.reject(unavailable('the service is stopping', { number: SERVICE_CODES.waitedTooLong.code }));
    if (!this.#options.shards.held(shardOfUrn(urn))?.isHeld()) return Promise.reject(servedElsewhere());
    const known = this.#loading.get(urn);
    if (known) return known.promise;
    const loading: Loading = { isStale: false, promise: undefined as unknown as Promise<Served> };
    this.#loading.set(urn, loading);
    this.#index(urn);
    loading.promise = this.#read(urn, loading).finally(() => {
      this.#loading.delete(urn);
      this.#unindex(urn);
    });
    return loading.promise;
  }

  /** Returns every version that has a service. */
  get all(): Iterable<Served> {
    return this.#current.values();
  }

  /**
   * Calls `listener` for every instance that starts, before it takes calls. The returned function
   * unsubscribes.
   */
  onStarted(listener: (instance: ServingInstance) => void): () => void {
    this.#onStarted.add(listener);
    return () => void this.#onStarted.delete(listener);
  }

  async #read(urn: string, loading: Loading): Promise<Served> {
    const { catalog } = this.#options;
    for (let reads = 0; reads < MAX_READS; reads++) {
      loading.isStale = false;
      const fn = await catalog.find(urn);
      const labels = fn ? await catalog.labels(fn.urn) : new Map();
      if (loading.isStale) continue;
      if (fn) return this.#apply(urn, fn, labels);
      this.#retire(canonical(urn));
      throw unknownFunction();
    }
    throw unavailable('the function changes faster than it can be read', {
      number: SERVICE_CODES.waitedTooLong.code,
      retryAfterSeconds: 1,
    });
  }

  /** Makes the version that was read the current one. */
  #apply(urn: string, fn: ServedFunction, labels: Awaited<ReturnType<FunctionCatalog['labels']>>): Served {
    const lease = this.#options.shards.held(shardOfUrn(fn.urn));
    // The lease may have been lost during the read.
    if (!lease?.isHeld()) throw servedElsewhere();
    const before = this.#current.get(fn.urn);
    const names = new Set(labels.keys());
    let served: Served;
    if (before && before.fn.revisionId === fn.revisionId) {
      served = { fn, service: before.service, labels: names, lease };
      before.service.setPolicy({ ...fn.scaling, labels });
    } else {
      this.#retire(fn.urn);
      served = { fn, service: this.#newService(fn, labels, lease), labels: names, lease };
    }
    this.#current.set(fn.urn, served);
    this.#index(fn.urn);
    for (const key of [urn, fn.urn]) {
      this.#cache.set(key, served);
      this.#index(key);
    }
    if (served.service !== before?.service) {
      const inherited = this.#inherited.get(fn.urn) ?? [];
      this.#inherited.delete(fn.urn);
      for (const instance of inherited) this.#adopt(served, instance);
      served.service.start();
    }
    if (this.#current.size > this.#maxRemembered) this.#forgetUnused(served);
    return served;
  }

  #newService(fn: ServedFunction, labels: Awaited<ReturnType<FunctionCatalog['labels']>>, lease: Lease): Service {
    const { clock, capacity, starter, log } = this.#options;
    const home: GroupKey = {
      cpuMillis: fn.cpuMillis,
      memoryMb: fn.memoryMb,
      customResources: fn.customResources,
      label: '',
      sessionContext: '',
    };
    return new Service({ ...fn.scaling, labels }, home, {
      tenant: fn.tenant,
      clock,
      capacity,
      start: async key => {
        const instance = await starter.launch(fn, key, lease).catch((error: unknown) => {
          // Logged here, because instances that are kept warm have no caller to receive the error.
          log.warn({ urn: fn.urn, reason: messageOf(error) }, 'start of function instance failed');
          throw asStartFailure(error);
        });
        for (const listener of this.#onStarted) listener(instance);
        return instance;
      },
    });
  }

  /** Drains the service of this version. */
  #retire(urn: string): void {
    const served = this.#current.get(urn);
    if (!served) return;
    this.#current.delete(urn);
    this.#drain(served.service, urn);
    for (const [key, value] of this.#cache) if (value === served) this.#uncache(key);
    this.#unindex(urn);
  }

  #changed(functionUrn: string | null, mayBeWarm: boolean): void {
    if (functionUrn === null) {
      for (const known of [...this.#urnsOf.keys()]) this.#changed(known, false);
      if (!this.#isStopping && mayBeWarm) void this.#warmUp(null);
      return;
    }
    const urns = [...(this.#urnsOf.get(functionUrn) ?? [])];
    for (const urn of urns) {
      const loading = this.#loading.get(urn);
      if (loading) loading.isStale = true;
      this.#uncache(urn);
    }
    if (!this.#isStopping && (urns.length > 0 || mayBeWarm)) void this.#follow(functionUrn, urns, mayBeWarm);
  }

  /** Applies the catalog's changes to the running services. Calls that arrive meanwhile wait for it. */
  async #follow(functionUrn: string, urns: readonly string[], mayBeWarm: boolean): Promise<void> {
    for (const urn of urns) {
      await this.load(urn).catch((error: unknown) => {
        if ((error as Partial<ServiceError>).number === SERVICE_CODES.unknownFunction.code) return;
        if (error instanceof ServedElsewhere) return;
        this.#options.log.warn({ urn, reason: messageOf(error) }, 'change of function was not applied');
      });
    }
    if (mayBeWarm) await this.#warmUp(functionUrn);
  }

  async #warmUp(functionUrn: string | null, among?: ReadonlySet<string>): Promise<void> {
    const { catalog, shards } = this.#options;
    try {
      for (const urn of await catalog.warm(functionUrn)) {
        if (this.#isStopping) return;
        const shard = shardOfUrn(urn);
        if (shards.held(shard) === null || among?.has(shard) === false) continue;
        await this.load(urn).catch((error: unknown) => {
          this.#options.log.warn({ urn, reason: messageOf(error) }, 'cannot keep function warm');
        });
      }
    } catch (error) {
      this.#options.log.warn({ functionUrn, reason: messageOf(error) }, 'functions to keep warm could not be listed');
    }
  }

  #inherit(instance: ServingInstance): void {
    const { urn } = instance;
    const served = this.#current.get(urn);
    if (served) {
      this.#adopt(served, instance);
      served.service.start();
    } else this.#inherited.set(urn, [...(this.#inherited.get(urn) ?? []), instance]);
  }

  async #inheritLate(instance: ServingInstance): Promise<void> {
    this.#inherit(instance);
    await this.#settle(instance.urn);
  }

  /** Ends the recovered instances that no version adopts. */
  async #settle(urn: string): Promise<void> {
    if (!this.#inherited.has(urn)) return;
    await this.load(urn).catch(() => undefined);
    for (const instance of this.#inherited.get(urn) ?? []) void instance.stop();
    this.#inherited.delete(urn);
  }

  #adopt({ fn, service }: Served, instance: ServingInstance): void {
    if (fn.revisionId === instance.revisionId) service.adopt(instance.key, instance);
    else void instance.stop();
  }

  /** Drops versions without instances and waiting calls. They cost nothing but memory. */
  #forgetUnused(except: Served): void {
    for (const [urn, served] of this.#current) {
      if (served.service.isEmpty && served.service !== except.service) this.#retire(urn);
    }
  }

  #drain(service: Service, urn: string): void {
    if (this.#draining.has(service)) return;
    this.#draining.set(service, shardOfUrn(urn));
    void service.drain().then(() => this.#draining.delete(service));
  }

  #uncache(urn: string): void {
    this.#cache.delete(urn);
    this.#unindex(urn);
  }

  #index(urn: string): void {
    const functionUrn = functionUrnOf(urn);
    const urns = this.#urnsOf.get(functionUrn);
    if (urns) urns.add(urn);
    else this.#urnsOf.set(functionUrn, new Set([urn]));
  }

  #unindex(urn: string): void {
    if (this.#cache.has(urn) || this.#current.has(urn) || this.#loading.has(urn)) return;
    const functionUrn = functionUrnOf(urn);
    const urns = this.#urnsOf.get(functionUrn);
    urns?.delete(urn);
    if (urns?.size === 0) this.#urnsOf.delete(functionUrn);
  }
}

/** Gives a failed start its own code, unless the error already has one from the user's code. */
function asStartFailure(error: unknown): unknown {
  if (!(error instanceof ServiceError) || error.number !== undefined) return error;
  const { code, message, cause, retryAfterSeconds } = error;
  const retry = retryAfterSeconds === undefined ? {} : { retryAfterSeconds };
  const details = { cause, number: SERVICE_CODES.startFailed.code, ...retry };
  return error instanceof PartAway ? new PartAway(message, details) : new ServiceError(code, message, details);
}

/** Refusal of a call whose function another replica serves. */
export class ServedElsewhere extends ServiceError {}

export function servedElsewhere(): ServedElsewhere {
  return new ServedElsewhere('unavailable', 'another replica is taking over the function; try again', {
    number: SERVICE_CODES.waitedTooLong.code,
    retryAfterSeconds: 1,
  });
}

export function unknownFunction(): ServiceError {
  return notFound(SERVICE_CODES.unknownFunction.text, { number: SERVICE_CODES.unknownFunction.code });
}

function canonical(urn: string): string {
  const parsed = parseUrn(urn);
  return parsed ? formatUrn(parsed) : urn;
}
