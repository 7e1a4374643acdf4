/** A call that waits for its turn. */
export interface QueuedCall {
  readonly id: string;
  readonly tenant: string;
  readonly urn: string;
  readonly createdAtMs: number;
}

export interface AsyncQueueBounds {
  /** Calls of one function that were taken and have no slot on an instance yet. */
  readonly maxUnplacedPerFunction: number;
  /** The same over all functions of one tenant. */
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
 * The order of asynchronous calls: tenants take turns, within a tenant its functions, within a function the calls go in the order in which
 * they came. A function whose calls find no slot holds back its own calls and nobody else's. Pure: it knows no time and runs nothing.
 */
export class AsyncQueue {
  readonly #bounds: AsyncQueueBounds;
  /** By tenant and function. */
  readonly #queues = new Map<string, Map<string, FunctionQueue>>();
  readonly #unplacedOf = new Map<string, number>();

  constructor(bounds: AsyncQueueBounds) {
    this.#bounds = bounds;
  }

  push(call: QueuedCall): void {
    this.#queueOf(call).calls.push(call);
  }

  /** Takes the call whose turn it is; undefined when none may go. It counts as unplaced until `placed` or `putBack`. */
  take(): QueuedCall | undefined {
    for (const [tenant, queues] of this.#queues) {
      if ((this.#unplacedOf.get(tenant) ?? 0) >= this.#bounds.maxUnplacedPerTenant) continue;
      for (const [urn, queue] of queues) {
        if (queue.isPaused || queue.unplaced >= this.#bounds.maxUnplacedPerFunction) continue;
        const call = queue.calls.shift();
        if (!call) continue;
        this.#count(queue, 1);
        // Both go behind the others.
        queues.delete(urn);
        queues.set(urn, queue);
        this.#queues.delete(tenant);
        this.#queues.set(tenant, queues);
        return call;
      }
    }
    return undefined;
  }

  /** The call has its slot, or its end. */
  placed(call: QueuedCall): void {
    const queue = this.#queueOf(call);
    this.#count(queue, -1);
    this.#dropIfEmpty(queue);
  }

  /** The call found no slot: it is the next of its function again. */
  putBack(call: QueuedCall): void {
    const queue = this.#queueOf(call);
    this.#count(queue, -1);
    const at = queue.calls.findIndex(({ createdAtMs }) => createdAtMs > call.createdAtMs);
    queue.calls.splice(at < 0 ? queue.calls.length : at, 0, call);
  }

  /** Takes out the calls of functions that `isGone` names; those that were taken already count on. */
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
    const unplaced = (this.#unplacedOf.get(queue.tenant) ?? 0) + change;
    if (unplaced > 0) this.#unplacedOf.set(queue.tenant, unplaced);
    else this.#unplacedOf.delete(queue.tenant);
  }

  #dropIfEmpty(queue: FunctionQueue): void {
    if (queue.calls.length > 0 || queue.unplaced > 0) return;
    const queues = this.#queues.get(queue.tenant);
    queues?.delete(queue.urn);
    if (queues?.size === 0) this.#queues.delete(queue.tenant);
  }
}
