import { ServiceError } from '../../src/core/error.ts';
import { Capacity } from '../../src/functions/capacity.ts';
import type { FunctionInstance } from '../../src/functions/function-instance.ts';
import type { Lease } from '../../src/functions/group.ts';
import type { AcquireOptions, GroupKey, ScalingPolicy, SessionRequest } from '../../src/functions/policy.ts';
import { VersionScaler } from '../../src/functions/version-scaler.ts';
import { FakeClock } from '../fakes/fake-clock.ts';
import { machineOf } from './harness.ts';

export const HOME: GroupKey = { cpuMillis: 1000, memoryMb: 512, customResources: '', label: '', sessionContext: '' };
export const POLICY: ScalingPolicy = {
  concurrency: 2,
  minInstances: 0,
  maxInstances: 4,
  scaleDownMs: 1000,
  slaQuotaMs: null,
  maxWaiting: 100,
  oneshot: false,
  labels: new Map(),
};

export class FakeInstance implements FunctionInstance {
  readonly id: string;
  readonly key: GroupKey;
  running = 0;
  readonly urn = '';
  readonly revisionId = '';
  readonly startedAtMs = 0;
  readonly timings = { startMs: 0, loadMs: 0 };
  readonly isConnected = true;
  stopped = false;
  wasStuck = false;
  #end!: (reason: string) => void;
  readonly ended = new Promise<string>(resolve => {
    this.#end = resolve;
  });
  readonly #onGone: () => void;
  readonly #stopsAtOnce: () => boolean;
  constructor(id: string, key: GroupKey, onGone: () => void, stopsAtOnce = () => true) {
    this.id = id;
    this.key = key;
    this.#onGone = onGone;
    this.#stopsAtOnce = stopsAtOnce;
  }
  call(): Promise<never> {
    throw new Error('calls of this fake are counted by the test');
  }
  credit(): void {}
  async *logs(): AsyncGenerator<Buffer> {}
  async stop(isStuck = false) {
    this.stopped = true;
    this.wasStuck = isStuck;
    if (this.#stopsAtOnce()) this.kill('stopped');
  }
  kill(reason: string) {
    this.#onGone();
    this.#end(reason);
  }
}

/** A scaler whose instances and clock are controlled by the test. */
export class World {
  readonly clock: FakeClock;
  readonly alive = new Set<FakeInstance>();
  readonly starting: { key: GroupKey; ok(): void; fail(error: Error): void }[] = [];
  started = 0;
  /** False: starts end at once. True: the test ends them. */
  holdStarts = false;
  /**
   * False: a stopping instance ends at once. True: it keeps running, as in pre_stop, until `kill` ends it.
   */
  holdStops = false;
  failStarts: Error | undefined;
  readonly scaler: VersionScaler;

  constructor(
    policy: Partial<ScalingPolicy> = {},
    machine: Partial<ConstructorParameters<typeof Capacity>[0]> = {},
    capacity = new Capacity({
      maxInstances: 1000,
      maxInstancesPerTenant: 1000,
      machine: machineOf(4000, 4096),
      ...machine,
    }),
    home = HOME,
    clock = new FakeClock(),
  ) {
    this.clock = clock;
    this.scaler = new VersionScaler({ ...POLICY, ...policy }, home, {
      tenant: 't',
      clock: this.clock,
      capacity,
      start: key => this.#start(key),
    });
  }

  #start(key: GroupKey): Promise<FunctionInstance> {
    return new Promise((resolve, reject) => {
      const start = {
        key,
        ok: () => {
          const onGone = () => this.alive.delete(instance);
          const instance = new FakeInstance(`i${++this.started}`, key, onGone, () => !this.holdStops);
          this.alive.add(instance);
          resolve(instance);
        },
        fail: reject,
      };
      if (this.holdStarts) this.starting.push(start);
      else if (this.failStarts) start.fail(this.failStarts);
      else start.ok();
    });
  }

  acquire(options: Partial<AcquireOptions> = {}, key: Partial<GroupKey> = {}): Promise<Lease> {
    const lease = this.scaler.acquire({ ...HOME, ...key }, { maxWaitMs: 30_000, ...options });
    lease.catch(() => undefined);
    return lease;
  }
}

export const session = (id: string, concurrency = 1, ttlMs = 0): SessionRequest => ({ id, concurrency, ttlMs });
export const numberOf = (error: unknown) => (error instanceof ServiceError ? error.number : undefined);
