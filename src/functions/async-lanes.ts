/** A call that waits for its turn. */
export interface QueuedCall {
  readonly id: string;
  readonly tenant: string;
  readonly urn: string;
  readonly createdAtMs: number;
}

export interface LaneBounds {
  /** Calls of one function that were taken and have no place on an instance yet. */
  readonly maxUnplacedPerFunction: number;
  /** The same over all functions of one tenant. */
  readonly maxUnplacedPerTenant: number;
}

interface Lane {
  readonly tenant: string;
  readonly urn: string;
  readonly calls: QueuedCall[];
  unplaced: number;
  isPaused: boolean;
}

/**
 * The order of asynchronous calls: tenants take turns, within a tenant its functions, within a function the calls go in the order in which
 * they came. A function whose calls find no place holds back its own calls and nobody else's. Pure: it knows no time and runs nothing.
 */
export class AsyncLanes {
  readonly #bounds: LaneBounds;
  /** By tenant and function. */
  readonly #lanes = new Map<string, Map<string, Lane>>();
  readonly #unplacedOf = new Map<string, number>();

  constructor(bounds: LaneBounds) {
    this.#bounds = bounds;
  }

  push(call: QueuedCall): void {
    this.#lane(call).calls.push(call);
  }

  /** Takes the call whose turn it is; undefined when none may go. It counts as unplaced until `placed` or `putBack`. */
  take(): QueuedCall | undefined {
    for (const [tenant, lanes] of this.#lanes) {
      if ((this.#unplacedOf.get(tenant) ?? 0) >= this.#bounds.maxUnplacedPerTenant) continue;
      for (const [urn, lane] of lanes) {
        if (lane.isPaused || lane.unplaced >= this.#bounds.maxUnplacedPerFunction) continue;
        const call = lane.calls.shift();
        if (!call) continue;
        this.#count(lane, 1);
        // Both go behind the others.
        lanes.delete(urn);
        lanes.set(urn, lane);
        this.#lanes.delete(tenant);
        this.#lanes.set(tenant, lanes);
        return call;
      }
    }
    return undefined;
  }

  /** The call has its place, or its end. */
  placed(call: QueuedCall): void {
    const lane = this.#lane(call);
    this.#count(lane, -1);
    this.#dropIfEmpty(lane);
  }

  /** The call found no place: it is the next of its function again. */
  putBack(call: QueuedCall): void {
    const lane = this.#lane(call);
    this.#count(lane, -1);
    const at = lane.calls.findIndex(({ createdAtMs }) => createdAtMs > call.createdAtMs);
    lane.calls.splice(at < 0 ? lane.calls.length : at, 0, call);
  }

  pause({ tenant, urn }: QueuedCall, isPaused: boolean): void {
    const lane = this.#lanes.get(tenant)?.get(urn);
    if (lane) lane.isPaused = isPaused;
  }

  #lane({ tenant, urn }: QueuedCall): Lane {
    let lanes = this.#lanes.get(tenant);
    if (!lanes) {
      lanes = new Map();
      this.#lanes.set(tenant, lanes);
    }
    let lane = lanes.get(urn);
    if (!lane) {
      lane = { tenant, urn, calls: [], unplaced: 0, isPaused: false };
      lanes.set(urn, lane);
    }
    return lane;
  }

  #count(lane: Lane, change: 1 | -1): void {
    lane.unplaced += change;
    const unplaced = (this.#unplacedOf.get(lane.tenant) ?? 0) + change;
    if (unplaced > 0) this.#unplacedOf.set(lane.tenant, unplaced);
    else this.#unplacedOf.delete(lane.tenant);
  }

  #dropIfEmpty(lane: Lane): void {
    if (lane.calls.length > 0 || lane.unplaced > 0) return;
    const lanes = this.#lanes.get(lane.tenant);
    lanes?.delete(lane.urn);
    if (lanes?.size === 0) this.#lanes.delete(lane.tenant);
  }
}
