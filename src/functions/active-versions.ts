import { SERVICE_CODES } from '../core/codes.ts';
import { messageOf, notFound, PartAway, ServiceError, unavailable } from '../core/error.ts';
import { HELD_FOR_GOOD, type Lease, shardOf } from '../core/lease.ts';
import { formatUrn, functionUrnOf, parseUrn } from '../core/urn.ts';
import { endsWithin } from '../lib/deadline.ts';
import type { Log } from '../lib/log.ts';
import type { Capacity } from './capacity.ts';
import type { FunctionCatalog, FunctionDefinition } from './catalog.ts';
import type { FunctionInstance, InstanceLauncher } from './function-instance.ts';
import type { Clock, GroupKey } from './policy.ts';
import { VersionScaler } from './version-scaler.ts';

/**
 * Ownership of functions by replicas. A shard has one owner at a time, which scales, keeps the
 * sessions and applies the maximum.
 */
export interface FunctionShards {
  /**
   * Returns the lease under which this replica serves the functions of a shard. Null when another replica or
   * none has the shard, or while it is being transferred.
   */
  held(shard: string): Lease | null;
}

/** Ownership of all functions, for a process without other replicas. */
export const ALL_SHARDS: FunctionShards = { held: () => HELD_FOR_GOOD };

/** Returns the shard of a function, from its URN or from the URN of a version. */
export function shardOfUrn(urn: string): string {
  return shardOf(functionUrnOf(urn));
}

export interface ActiveVersionsOptions {
  readonly catalog: FunctionCatalog;
  readonly launcher: InstanceLauncher;
  readonly clock: Clock;
  readonly capacity: Capacity;
  readonly shards: FunctionShards;
  readonly log: Log;
  /** Versions in memory above which unused ones are dropped. Default 10 000. */
  readonly maxRemembered?: number;
}

/** Version that takes calls, and the scaler of its instances. */
export interface ActiveVersion {
  readonly fn: FunctionDefinition;
  readonly scaler: VersionScaler;
  readonly labels: ReadonlySet<string>;
  /** Lease under which this replica serves the function. */
  readonly lease: Lease;
}

interface Loading {
  /** True if a change was reported during the read, so that the result may be old. */
  isStale: boolean;
  promise: Promise<ActiveVersion>;
}

const MAX_REMEMBERED = 10_000;
/** Maximum number of consecutive reads of a version that changes during each read. */
const MAX_READS = 100;
/** Time that the forced end of instances may take when the server closes. */
const FORCED_END_MS = 12_000;

/**
 * Versions that were called, kept in memory until the catalog reports a change. A warm call thus reads no
 * storage.
 * After a change no call is placed by the old state. A version of a new revision gets a new scaler. The old
 * one drains, so no call is lost.
 */
export class ActiveVersions {
  readonly #options: ActiveVersionsOptions;
  readonly #maxRemembered: number;
  /** Versions by their URNs as calls sent them. Every change removes those of its function. */
  readonly #cache = new Map<string, ActiveVersion>();
  /** Scaler of each version, by its functionVersionUrn. */
  readonly #current = new Map<string, ActiveVersion>();
  readonly #loading = new Map<string, Loading>();
  /** URNs of `#cache`, `#current` and `#loading` by their functionUrn. */
  readonly #urnsOf = new Map<string, Set<string>>();
  /** Scalers that take no new calls, with the shards of their functions. */
  readonly #draining = new Map<VersionScaler, string>();
  /** Recovered instances that no version has adopted yet, by their functionVersionUrn. */
  readonly #inherited = new Map<string, FunctionInstance[]>();
  readonly #onStarted = new Set<(instance: FunctionInstance) => void>();
  #stopListening: (() => void) | undefined;
  #isStarted = false;
  #isStopping = false;

  constructor(options: ActiveVersionsOptions) {
    this.#options = options;
    this.#maxRemembered = options.maxRemembered ?? MAX_REMEMBERED;
  }

  /** Adopts running instances, and starts those that must be kept warm. Never rejects. */
  async start(): Promise<void> {
    const { catalog, launcher } = this.#options;
    this.#stopListening = catalog.onChange((functionUrn, mayBeWarm) => this.#changed(functionUrn, mayBeWarm));
    for (const instance of await launcher.adopt(late => void this.#adoptLate(late))) this.#inherit(instance);
    // A version adopts its instances before it starts missing ones.
    for (const urn of [...this.#inherited.keys()]) await this.#endUnadopted(urn);
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
    const scalers = this.#retireAll(new Set(shards));
    await this.#awaitDrained(scalers, graceMs);
  }

  /**
   * Ends the instances of these shards at once, because another replica already serves them. Their calls
   * fail.
   */
  lost(shards: readonly string[]): void {
    for (const scaler of this.#retireAll(new Set(shards))) scaler.endAll();
  }

  /** Drains the scalers of these shards and returns them. */
  #retireAll(shards: ReadonlySet<string>): readonly VersionScaler[] {
    for (const urn of [...this.#current.keys()]) if (shards.has(shardOfUrn(urn))) this.#retire(urn);
    return [...this.#draining].filter(([, shard]) => shards.has(shard)).map(([scaler]) => scaler);
  }

  /** Lets calls end for at most `graceMs`, then ends every instance. */
  async close(graceMs: number): Promise<void> {
    this.#isStopping = true;
    this.#stopListening?.();
    for (const { fn, scaler } of this.#current.values()) this.#drain(scaler, fn.urn);
    await this.#awaitDrained([...this.#draining.keys()], graceMs);
  }

  /** Waits for draining scalers, and ends those that have not ended within `graceMs`. Never rejects. */
  async #awaitDrained(scalers: readonly VersionScaler[], graceMs: number): Promise<void> {
    const drained = Promise.all(scalers.map(scaler => scaler.drained));
    if (!(await endsWithin(drained, graceMs))) {
      for (const scaler of scalers) scaler.endAll();
      if (!(await endsWithin(drained, FORCED_END_MS))) {
        this.#options.log.warn({}, 'function instances did not stop in time; the next start ends them');
      }
    }
  }

  /** Returns a version that was loaded before and has not changed since. */
  find(urn: string): ActiveVersion | undefined {
    const version = this.#cache.get(urn);
    // A suspended replica may have lost the lease without being notified.
    return version?.lease.isHeld() ? version : undefined;
  }

  /**
   * Loads a version. Fails with `not_found` (150424), `unavailable` (another replica serves it), or as the
   * catalog does.
   */
  load(urn: string): Promise<ActiveVersion> {
    if (this.#isStopping)
      return Promise.reject(unavailable('the service is stopping', { number: SERVICE_CODES.waitedTooLong.code }));
    if (!this.#options.shards.held(shardOfUrn(urn))?.isHeld()) return Promise.reject(servedElsewhere());
    const known = this.#loading.get(urn);
    if (known) return known.promise;
    const loading: Loading = { isStale: false, promise: undefined as unknown as Promise<ActiveVersion> };
    this.#loading.set(urn, loading);
    this.#index(urn);
    loading.promise = this.#read(urn, loading).finally(() => {
      this.#loading.delete(urn);
      this.#unindex(urn);
    });
    return loading.promise;
  }

  /** Returns every version that has a scaler. */
  get all(): Iterable<ActiveVersion> {
    return this.#current.values();
  }

  /**
   * Calls `listener` for every instance that starts, before it takes calls. The returned function
   * unsubscribes.
   */
  onStarted(listener: (instance: FunctionInstance) => void): () => void {
    this.#onStarted.add(listener);
    return () => void this.#onStarted.delete(listener);
  }

  async #read(urn: string, loading: Loading): Promise<ActiveVersion> {
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
  #apply(urn: string, fn: FunctionDefinition, labels: Awaited<ReturnType<FunctionCatalog['labels']>>): ActiveVersion {
    const lease = this.#options.shards.held(shardOfUrn(fn.urn));
    // The lease may have been lost during the read.
    if (!lease?.isHeld()) throw servedElsewhere();
    const before = this.#current.get(fn.urn);
    const names = new Set(labels.keys());
    let version: ActiveVersion;
    if (before && before.fn.revisionId === fn.revisionId) {
      version = { fn, scaler: before.scaler, labels: names, lease };
      before.scaler.setPolicy({ ...fn.scaling, labels });
    } else {
      this.#retire(fn.urn);
      version = { fn, scaler: this.#newScaler(fn, labels, lease), labels: names, lease };
    }
    this.#current.set(fn.urn, version);
    this.#index(fn.urn);
    for (const key of [urn, fn.urn]) {
      this.#cache.set(key, version);
      this.#index(key);
    }
    if (version.scaler !== before?.scaler) {
      const inherited = this.#inherited.get(fn.urn) ?? [];
      this.#inherited.delete(fn.urn);
      for (const instance of inherited) this.#adopt(version, instance);
      version.scaler.start();
    }
    if (this.#current.size > this.#maxRemembered) this.#forgetUnused(version);
    return version;
  }

  #newScaler(
    fn: FunctionDefinition,
    labels: Awaited<ReturnType<FunctionCatalog['labels']>>,
    lease: Lease,
  ): VersionScaler {
    const { clock, capacity, launcher, log } = this.#options;
    const home: GroupKey = {
      cpuMillis: fn.cpuMillis,
      memoryMb: fn.memoryMb,
      customResources: fn.customResources,
      label: '',
      sessionContext: '',
    };
    return new VersionScaler({ ...fn.scaling, labels }, home, {
      tenant: fn.tenant,
      clock,
      capacity,
      start: async key => {
        const instance = await launcher.launch(fn, key, lease).catch((error: unknown) => {
          // Logged here, because instances that are kept warm have no caller to receive the error.
          log.warn({ urn: fn.urn, reason: messageOf(error) }, 'start of function instance failed');
          throw asStartFailure(error);
        });
        for (const listener of this.#onStarted) listener(instance);
        return instance;
      },
    });
  }

  /** Drains the scaler of this version. */
  #retire(urn: string): void {
    const version = this.#current.get(urn);
    if (!version) return;
    this.#current.delete(urn);
    this.#drain(version.scaler, urn);
    for (const [key, value] of this.#cache) if (value === version) this.#uncache(key);
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
    if (!this.#isStopping && (urns.length > 0 || mayBeWarm)) void this.#applyChange(functionUrn, urns, mayBeWarm);
  }

  /** Applies the catalog's changes to the scalers. Calls that arrive meanwhile wait for it. */
  async #applyChange(functionUrn: string, urns: readonly string[], mayBeWarm: boolean): Promise<void> {
    for (const urn of urns) {
      await this.load(urn).catch((error: unknown) => {
        if ((error as Partial<ServiceError>).number === SERVICE_CODES.unknownFunction.code) return;
        if (error instanceof ServedElsewhere) return;
        this.#options.log.warn({ urn, reason: messageOf(error) }, 'cannot apply change of function');
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
      this.#options.log.warn({ functionUrn, reason: messageOf(error) }, 'cannot list functions to keep warm; retrying');
    }
  }

  #inherit(instance: FunctionInstance): void {
    const { urn } = instance;
    const version = this.#current.get(urn);
    if (version) {
      this.#adopt(version, instance);
      version.scaler.start();
    } else this.#inherited.set(urn, [...(this.#inherited.get(urn) ?? []), instance]);
  }

  async #adoptLate(instance: FunctionInstance): Promise<void> {
    this.#inherit(instance);
    await this.#endUnadopted(instance.urn);
  }

  /** Ends the recovered instances that no version adopts. */
  async #endUnadopted(urn: string): Promise<void> {
    if (!this.#inherited.has(urn)) return;
    await this.load(urn).catch(() => undefined);
    for (const instance of this.#inherited.get(urn) ?? []) void instance.stop();
    this.#inherited.delete(urn);
  }

  #adopt({ fn, scaler }: ActiveVersion, instance: FunctionInstance): void {
    if (fn.revisionId === instance.revisionId) scaler.adopt(instance.key, instance);
    else void instance.stop();
  }

  /** Drops versions without instances and waiting calls. They cost nothing but memory. */
  #forgetUnused(except: ActiveVersion): void {
    for (const [urn, version] of this.#current) {
      if (version.scaler.isEmpty && version.scaler !== except.scaler) this.#retire(urn);
    }
  }

  #drain(scaler: VersionScaler, urn: string): void {
    if (this.#draining.has(scaler)) return;
    this.#draining.set(scaler, shardOfUrn(urn));
    void scaler.drain().then(() => this.#draining.delete(scaler));
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
