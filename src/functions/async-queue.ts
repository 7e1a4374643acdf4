import { Counter } from '../lib/counter.ts';
/** Call that waits for its turn. */
export interface QueuedCall {
  readonly id: string;
  readonly tenant: string;
  readonly urn: string;
  readonly createdAtMs: number;
}

export interface AsyncQueueBounds {
  /** Calls per function that were taken and have no slot on an instance yet. */
  readonly maxUnplacedPerFunction: number;
  /** Such calls per tenant, over all its functions. */
  readonly maxUnplacedPerTenant: number;
}

interface FunctionQueue {
  readonly tenant: string;
  readonly urn: string;
  readonly calls: QueuedCall[];
  unplaced: number;
  isPaused: boolean;
}

/**
 * Orders asynchronous calls: tenants take turns, and so do the functions of a tenant. The calls of a function
 * run in order of arrival. A function whose calls find no slot delays only its own calls. The queue has no
 * clock and runs nothing.
 */
export class AsyncQueue {
  readonly #bounds: AsyncQueueBounds;
  /** Queues by tenant and function. */
  readonly #queues = new Map<string, Map<string, FunctionQueue>>();
  readonly #unplacedOf = new Counter();

  constructor(bounds: AsyncQueueBounds) {
    this.#bounds = bounds;
  }

  push(call: QueuedCall): void {
    this.#queueOf(call).calls.push(call);
  }

  /**
   * Removes and returns the next call; undefined when none may run. The call counts as unplaced until
   * `placed` or `requeue`.
   */
  next(): QueuedCall | undefined {
    for (const [tenant, queues] of this.#queues) {
      if (this.#unplacedOf.get(tenant) >= this.#bounds.maxUnplacedPerTenant) continue;
      for (const [urn, queue] of queues) {
        if (queue.isPaused || queue.unplaced >= this.#bounds.maxUnplacedPerFunction) continue;
        const call = queue.calls.shift();
        if (!call) continue;
        this.#count(queue, 1);
        // Moves the function and the tenant behind the others.
        queues.delete(urn);
        queues.set(urn, queue);
        this.#queues.delete(tenant);
        this.#queues.set(tenant, queues);
        return call;
      }
    }
    return undefined;
  }

  /** Ends the count of a call as unplaced, because it has a slot or has ended. */
  placed(call: QueuedCall): void {
    const queue = this.#queueOf(call);
    this.#count(queue, -1);
    this.#dropIfEmpty(queue);
  }

  /** Returns a call without a slot to the queue, as the next of its function. */
  requeue(call: QueuedCall): void {
    const queue = this.#queueOf(call);
    this.#count(queue, -1);
    const at = queue.calls.findIndex(({ createdAtMs }) => createdAtMs > call.createdAtMs);
    queue.calls.splice(at < 0 ? queue.calls.length : at, 0, call);
  }

  /**
   * Removes and returns the waiting calls of the functions for which `isGone` is true. Calls that were taken
   * stay counted.
   */
  drop(isGone: (urn: string) => boolean): readonly QueuedCall[] {
    const dropped: QueuedCall[] = [];
    for (const queues of [...this.#queues.values()]) {
      for (const queue of [...queues.values()]) {
        if (!isGone(queue.urn)) continue;
        dropped.push(...queue.calls.splice(0));
        this.#dropIfEmpty(queue);
      }
    }
    return dropped;
  }

  pause({ tenant, urn }: QueuedCall, isPaused: boolean): void {
    const queue = this.#queues.get(tenant)?.get(urn);
    if (queue) queue.isPaused = isPaused;
  }

  #queueOf({ tenant, urn }: QueuedCall): FunctionQueue {
    let queues = this.#queues.get(tenant);
    if (!queues) {
      queues = new Map();
      this.#queues.set(tenant, queues);
    }
    let queue = queues.get(urn);
    if (!queue) {
      queue = { tenant, urn, calls: [], unplaced: 0, isPaused: false };
      queues.set(urn, queue);
    }
    return queue;
  }

  #count(queue: FunctionQueue, change: 1 | -1): void {
    queue.unplaced += change;
    this.#unplacedOf.add(queue.tenant, change);
  }

  #dropIfEmpty(queue: FunctionQueue): void {
    if (queue.calls.length > 0 || queue.unplaced > 0) return;
    const queues = this.#queues.get(queue.tenant);
    queues?.delete(queue.urn);
    if (queues?.size === 0) this.#queues.delete(queue.tenant);
  }
}
