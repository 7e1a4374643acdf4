import { messageOf, ServiceError } from '../core/error.ts';
import type { Instance, InstanceSpec } from '../core/instance.ts';
import { instanceNotFound } from '../instances/refusals.ts';
import { afterMs } from '../lib/deadline.ts';
import type { Log } from '../lib/log.ts';
import type { Database } from '../storage/database.ts';
import { listExpiringAgents, setAgentExpiry } from '../storage/queries/agent-lifetimes.ts';
import { findAgent } from '../storage/queries/agents.ts';
import type { StoredInstance } from '../storage/queries/instances.ts';
import { type AgentRecords, toInstance } from './agent-records.ts';
import type { AgentTable } from './agent-table.ts';
import type { ExpiryChange } from './contract.ts';

export interface AgentExpiriesOptions {
  readonly table: AgentTable;
  readonly database: Database;
  readonly nodeId: string;
  readonly log: Log;
  readonly now: () => number;
  /** Deletes or pauses an agent whose time is over. */
  readonly expire: (agent: Instance) => Promise<void>;
}

const TRY_AGAIN_MS = 1_000;
/** Most tries of a change that loses against others. */
const MAX_CHANGES = 10;

/**
 * Ends agents whose time to live is over. The end is in the record; the node that has the agent keeps a timer
 * for it, also after a restart. A timer that fires reads the record again, so no agent ends before its time.
 */
export class AgentExpiries {
  readonly #options: AgentExpiriesOptions;
  #isClosed = false;

  constructor(options: AgentExpiriesOptions) {
    this.#options = options;
  }

  /** Sets timers for agents of this node that an earlier server or a lost node left. */
  async resume(): Promise<void> {
    const { database, nodeId } = this.#options;
    for (const stored of await listExpiringAgents(database, nodeId)) this.schedule(stored);
  }

  /** Cancels all timers. The next service sets them again. */
  close(): void {
    this.#isClosed = true;
    for (const [id] of this.#options.table.entries()) this.cancel(id);
  }

  /** Cancels the timer of an agent that is being deleted. */
  cancel(id: string): void {
    const { table } = this.#options;
    table.get(id)?.expiry?.cancel();
    table.set(id, { expiry: undefined });
  }

  /**
   * Sets the timer of an agent of this node. An earlier timer stays: when it fires, it reads the end that is
   * in force.
   */
  schedule({ id, nodeId, expiresAtMs }: Pick<StoredInstance, 'id' | 'nodeId' | 'expiresAtMs'>): void {
    if (expiresAtMs === 0 || nodeId !== this.#options.nodeId) return;
    const set = this.#options.table.get(id)?.expiry;
    this.#wait(id, Math.min(expiresAtMs, set?.atMs ?? expiresAtMs));
  }

  /** Writes the end of an agent. See `AgentInstances.setExpiry`. */
  async set(
    records: AgentRecords,
    { tenant, id }: { readonly tenant: string; readonly id: string },
    { ttlMs, onlyLater = false }: ExpiryChange,
  ): Promise<Instance> {
    for (let tried = 0; tried < MAX_CHANGES; tried++) {
      const record = await records.flushedRecord(tenant, id);
      records.assertHere(record);
      if (record.status === 'STOPPING') throw instanceNotFound(id);
      // The time of a PAUSED agent stands still at the moment of the pause.
      const fromMs = record.status === 'PAUSED' ? record.pausedAtMs : this.#options.now();
      const expiresAtMs = ttlMs === 0 ? 0 : fromMs + ttlMs;
      const stays = onlyLater && isSoonerOrSame(expiresAtMs, record.expiresAtMs);
      const isWritten =
        !stays && (await setAgentExpiry(this.#options.database, record, { ttlMs, expiresAtMs, onlyLater }));
      if (isWritten && record.status !== 'PAUSED') this.schedule({ id, nodeId: record.nodeId, expiresAtMs });
      if (stays || isWritten) return await records.get(tenant, id);
    }
    throw new ServiceError('unavailable', `instance ${id} is changed all the time`);
  }

  #wait(id: string, atMs: number, pauseMs = atMs - this.#options.now()): void {
    this.cancel(id);
    if (this.#isClosed) return;
    const cancel = afterMs(pauseMs, () => void this.#fire(id));
    this.#options.table.set(id, { expiry: { atMs, cancel } });
  }

  /** Ends the agent if its time is over. Never rejects. */
  async #fire(id: string): Promise<void> {
    const { database, nodeId, log, now, expire } = this.#options;
    this.cancel(id);
    try {
      const stored = (await findAgent(database, id))?.stored;
      if (stored === undefined || stored.nodeId !== nodeId || stored.expiresAtMs === 0) return;
      if (stored.status === 'PAUSED' || stored.status === 'STOPPING' || this.#isClosed) return;
      if (stored.expiresAtMs > now()) {
        this.#wait(id, stored.expiresAtMs);
        return;
      }
      log.info({ instanceId: id, action: onExpiryOf(stored) }, 'time of agent is over');
      await expire(toInstance(stored));
    } catch (error) {
      if (this.#isClosed || (error instanceof ServiceError && error.code === 'not_found')) return;
      log.warn({ instanceId: id, reason: messageOf(error) }, 'end of agent whose time is over failed; retrying');
      this.#wait(id, 0, TRY_AGAIN_MS);
    }
  }
}

function onExpiryOf({ spec }: Pick<StoredInstance, 'spec'>): string {
  return (JSON.parse(spec) as InstanceSpec).onExpiry ?? 'delete';
}

/** Compares two ends, of which 0 is the latest. */
function isSoonerOrSame(aMs: number, bMs: number): boolean {
  return bMs === 0 || (aMs !== 0 && aMs <= bMs);
}

/** Returns the end after a resume: the remaining time, or the whole one if none remains. */
export function resumedExpiry(
  { ttlMs, expiresAtMs, pausedAtMs }: Pick<StoredInstance, 'ttlMs' | 'expiresAtMs' | 'pausedAtMs'>,
  nowMs: number,
): number {
  if (expiresAtMs === 0) return 0;
  const leftMs = expiresAtMs - pausedAtMs;
  return nowMs + (leftMs > 0 ? leftMs : ttlMs);
}
