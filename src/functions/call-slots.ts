import { SERVICE_CODES } from '../core/codes.ts';
import { failedPrecondition, resourceExhausted } from '../core/error.ts';
import { type FunctionCallHeaders, PLAIN_CALL, readSessionContext } from '../core/function-call.ts';
import { runsInCluster } from '../core/sandbox-types.ts';
import { openCallsFull } from '../instances/refusals.ts';
import type { TenantBudget } from '../lib/budgets.ts';
import { Counter } from '../lib/counter.ts';
import type { Call } from '../runtime/call.ts';
import type { ActiveVersion } from './active-versions.ts';
import type { Lease } from './group.ts';
import type { AcquireOptions, Clock, GroupKey } from './policy.ts';
import type { VersionScaler } from './version-scaler.ts';

export interface CallSlotsOptions {
  readonly clock: Clock;
  /**
   * Longest time that a call waits for a slot, milliseconds. The function's timeout applies when it is
   * shorter.
   */
  readonly maxWaitMs: number;
  /** Waiting calls per tenant, over all its functions. */
  readonly maxWaitingPerTenant: number;
  /** Shared with all other holders of open calls' bodies. */
  readonly openCallBytes: TenantBudget;
}

export type WaitingCall = Pick<Call, 'body' | 'signal' | 'waitedMs'>;

/** Call that has its slot. */
export interface PlacedCall {
  readonly lease: Lease;
  /** Time that the placement took in addition to the wait for the slot, milliseconds. */
  readonly placeMs: number;
  /** Ends the count of the body among the waiting ones; further calls do nothing. */
  readonly releaseBody: () => void;
}

/**
 * Attempts to get another slot when the slot's instance turns out to be disconnected before the call is sent.
 */
const MAX_SLOTS_TRIED = 8;

/** Acquires slots for calls, within the bounds of waiting calls and of their bodies. */
export class CallSlots {
  readonly #options: CallSlotsOptions;
  readonly #waitingPerTenant = new Counter();

  constructor(options: CallSlotsOptions) {
    this.#options = options;
  }

  /** Returns a slot that is free now; undefined when the call would have to wait. */
  tryAcquire(scaler: VersionScaler, key: GroupKey, headers: FunctionCallHeaders): PlacedCall | undefined {
    const lease = scaler.tryAcquire(key, headers.session);
    if (!lease || lease.instance.isConnected) return lease && { lease, placeMs: 0, releaseBody: NOTHING_COUNTED };
    lease.release('replace');
    return undefined;
  }

  /**
   * Returns a slot on a connected instance. The body counts as open while the call waits, and afterwards
   * until the caller calls `releaseBody`.
   */
  async acquire(
    { fn, scaler }: ActiveVersion,
    key: GroupKey,
    headers: FunctionCallHeaders,
    { body, signal, waitedMs = 0 }: WaitingCall,
  ): Promise<PlacedCall> {
    const releaseBody = this.#countBody(fn.tenant, body.length);
    const startedMs = this.#options.clock.now();
    const maxWaitMs = Math.max(0, Math.min(this.#options.maxWaitMs, fn.timeoutMs) - waitedMs);
    const wanted = { session: headers.session, signal, maxWaitMs };
    try {
      for (let attempt = 0; ; attempt++) {
        const lease = scaler.tryAcquire(key, headers.session) ?? (await this.#wait(fn.tenant, scaler, key, wanted));
        if (lease.instance.isConnected || attempt === MAX_SLOTS_TRIED) {
          return { lease, placeMs: this.#options.clock.now() - startedMs - lease.queueMs, releaseBody };
        }
        // The instance has died and its exit is not known yet. The call has not been sent, so another slot
        // may serve it.
        lease.release('replace');
      }
    } catch (error) {
      releaseBody();
      throw error;
    }
  }

  /**
   * Counts a body that waits. Fails with `resource_exhausted`. The returned function releases the bytes;
   * further calls do nothing.
   */
  #countBody(tenant: string, bytes: number): () => void {
    const { openCallBytes } = this.#options;
    if (!openCallBytes.fits(tenant, bytes)) throw openCallsFull();
    openCallBytes.acquire(tenant, bytes);
    let isCounted = true;
    return () => {
      if (!isCounted) return;
      isCounted = false;
      openCallBytes.release(tenant, bytes);
    };
  }

  async #wait(tenant: string, scaler: VersionScaler, key: GroupKey, options: AcquireOptions): Promise<Lease> {
    const waiting = this.#waitingPerTenant.get(tenant);
    if (waiting >= this.#options.maxWaitingPerTenant) {
      throw resourceExhausted(`${waiting} calls of this tenant are waiting already`, {
        number: SERVICE_CODES.machineFull.code,
        retryAfterSeconds: 1,
      });
    }
    this.#waitingPerTenant.add(tenant);
    try {
      return await scaler.acquire(key, options);
    } finally {
      this.#waitingPerTenant.add(tenant, -1);
    }
  }
}

const NOTHING_COUNTED = () => undefined;

/** Time that a handler may take to end after its caller has left. Afterwards its instance is replaced. */
const ABANDONED_MS = 2_000;

/**
 * Slot of a call whose caller has left. The slot is released when the handler has really ended; otherwise the
 * next call would wait behind it. A handler that ignores the cancellation costs its instance.
 */
export class AbandonedCall {
  readonly #lease: Lease;
  readonly #clock: Clock;
  #cancelTimer: (() => void) | undefined;
  #hasEnded = false;

  constructor(lease: Lease, clock: Clock) {
    this.#lease = lease;
    this.#clock = clock;
  }

  /** Also fires when the instance dies, so the slot is released as failed. */
  readonly onEnd = (): void => {
    this.#hasEnded = true;
    this.#cancelTimer?.();
    if (this.#cancelTimer) this.#lease.release('failed');
  };

  releaseAtEnd(): void {
    if (this.#hasEnded) this.#lease.release('failed');
    else this.#cancelTimer = this.#clock.after(ABANDONED_MS, () => this.#lease.release('replace'));
  }
}

/**
 * Returns the key of a call's group. Fails with `failed_precondition` (150444, 4037) when the headers allow
 * none.
 */
export function groupKeyOf({ fn, labels, scaler }: ActiveVersion, headers: FunctionCallHeaders): GroupKey {
  if (headers === PLAIN_CALL) return scaler.homeKey;
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
  return {
    cpuMillis: headers.cpuMillis ?? fn.cpuMillis,
    memoryMb: headers.memoryMb ?? fn.memoryMb,
    customResources: headers.customResources === '' ? fn.customResources : headers.customResources,
    label: headers.label,
    sessionContext: fn.usesSessionContext ? readSessionContext(headers.sessionContext) : '',
    ...(headers.poolLabels.length > 0 && runsInCluster(fn.sandboxType) && { poolLabels: headers.poolLabels }),
  };
}
