import type { ServiceError } from '../core/error.ts';
import type { Instance } from '../core/instance.ts';
import { LIMITS } from '../core/limits.ts';
import type { Instances } from '../instances/instances.ts';
import { instanceNotFound } from '../instances/refusals.ts';
import type { InstanceRecord } from '../instances/rows.ts';
import { isAllowed } from '../instances/state.ts';
import { timeoutSignal } from '../lib/deadline.ts';
import type { WakeReason } from '../runtime/protocol.ts';
import type { SandboxDriver, SandboxHandle } from '../sandbox/driver.ts';
import type { StoredInstance } from '../storage/queries/instances.ts';
import { graceOf } from './agent-deletes.ts';
import { resumedExpiry } from './agent-expiries.ts';
import { type AgentRecords, isDurable } from './agent-records.ts';
import type { AgentStarts } from './agent-starts.ts';
import { changedColumns, specOfNextStart } from './agent-updates.ts';
import type { AgentsOptions } from './options.ts';
import { isBeing } from './refusals.ts';

/** Bound of reading the log of a sandbox before the sandbox is removed. */
const KEEP_LOG_MS = 5_000;

/** Cause of a restart. Both absent: a request. */
export interface RestartCause {
  /** The record for which the policy planned the restart; a newer epoch refuses the restart. */
  readonly planned?: StoredInstance;
  /** The use that wakes a sleeping agent. */
  readonly reason?: WakeReason;
}

export interface AgentRestartsParts {
  /** Cancels the policy's pending restart of an agent. */
  readonly cancelPolicy: (id: string) => void;
  /** Puts an idle agent to sleep. Returns false if there is none. */
  readonly makeRoom: () => Promise<boolean>;
}

/** Restarts of agents, by a client or by their policy. The old sandbox ends, and the next epoch begins. */
export class AgentRestarts {
  readonly #options: AgentsOptions;
  readonly #instances: Instances;
  readonly #now: () => number;
  readonly #starts: AgentStarts;
  readonly #records: AgentRecords;
  readonly #parts: AgentRestartsParts;

  constructor(options: AgentsOptions, starts: AgentStarts, records: AgentRecords, parts: AgentRestartsParts) {
    this.#options = options;
    this.#instances = options.instances;
    this.#now = options.now ?? Date.now;
    this.#starts = starts;
    this.#records = records;
    this.#parts = parts;
  }

  /** Restarts an agent, or wakes a sleeping one. A sleeping agent for which there is no room stays asleep. */
  async restart(id: string, signal: AbortSignal, { planned, reason }: RestartCause = {}): Promise<Instance> {
    const record = await this.#records.find(id);
    if (record === null || (planned !== undefined && record.epoch !== planned.epoch)) throw instanceNotFound(id);
    if (!isAllowed(record.status, 'restart')) throw await this.#whyNoRestart(id);
    // A restart by a client resets the restart counter of the policy.
    const { restartsInRow, restartAtMs } = planned ?? { restartsInRow: 0, restartAtMs: 0 };
    const expiresAtMs = this.#expiryOf(record);
    const wakes = record.wakes + (record.status === 'SLEEPING' ? 1 : 0);
    const spec = specOfNextStart(record);
    const next = {
      ...{ ...record, ...changedColumns(record) },
      ...{ epoch: record.epoch + 1, restartsInRow, restartAtMs, expiresAtMs, wakes },
    };
    // Prepare before any change, so that an agent that cannot start again continues unchanged.
    const why = record.status === 'FAILED' ? 'crash' : (reason ?? 'request');
    const start = await this.#starts.startOf(next, spec, why);
    await this.#findRoom(record, next, signal);
    await this.#recordNext(record, next, signal);
    if (planned === undefined) this.#parts.cancelPolicy(id);
    try {
      // Keep the log after the stop, because earlier output may still be on its way into the log.
      await this.#instances.endSandbox(record, graceOf(record, null), 'restarted', {
        stopped: (driver, handle) => this.storeLog(driver, handle),
      });
    } catch (error) {
      await this.#starts.code.undo(next);
      await this.#instances.undo(next, error, true);
      // A process of the old sandbox may still run. The reconciler stops it; its owner callback then releases
      // capacity and code.
      this.#instances.reconcileSoon();
      throw error;
    }
    this.#starts.code.release(record);
    return await this.#starts.bringUp({ ...next, handle: null }, start, signal);
  }

  /**
   * Makes room for the start of a durable agent that has no sandbox, or a smaller one. Rejects if there is
   * none, and releases the code placed for `next`; nothing else has changed.
   */
  async #findRoom(record: InstanceRecord, next: InstanceRecord, signal: AbortSignal): Promise<void> {
    if (!isDurable(record)) return;
    for (;;) {
      const refusal = this.#starts.reservations.refusal(next);
      if (refusal === undefined) return;
      if (!signal.aborted && (await this.#parts.makeRoom())) continue;
      await this.#starts.code.undo(next);
      throw refusal;
    }
  }

  /** Returns the end of the agent after the start. A sleep does not stop the time to live, unlike a pause. */
  #expiryOf(record: InstanceRecord): number {
    const nowMs = this.#now();
    const { status, expiresAtMs, ttlMs } = record;
    if (status === 'PAUSED') return resumedExpiry(record, nowMs);
    // The end has come during the sleep, when there was nothing to pause.
    return status === 'SLEEPING' && expiresAtMs > 0 && expiresAtMs <= nowMs ? nowMs + ttlMs : expiresAtMs;
  }

  /**
   * Records the next epoch. Rejects if the agent may not be restarted, and releases the code placed for
   * `next`.
   */
  async #recordNext(record: InstanceRecord, next: InstanceRecord, signal: AbortSignal): Promise<void> {
    const { epoch, restartsInRow, restartAtMs, expiresAtMs, wakes } = next;
    try {
      signal.throwIfAborted();
      const hasBegun = await this.#instances.move(record, 'restart', {
        epoch,
        restartsInRow,
        restartAtMs,
        expiresAtMs,
        wakes,
        ...changedColumns(record),
      });
      if (!hasBegun) throw await this.#whyNoRestart(record.id);
    } catch (error) {
      await this.#starts.code.undo(next);
      // If the write succeeded, no operation works on the CREATING record, so the reconciler must.
      this.#instances.reconcileSoon();
      throw error;
    }
    this.#starts.reservations.transfer(next);
  }

  /** Keeps the log of a sandbox that is about to be removed. Never rejects. */
  async storeLog(driver: SandboxDriver, handle: SandboxHandle): Promise<void> {
    const request = { tail: LIMITS.previousLogs.lines, sinceMs: null, follow: false };
    await this.#options.previousLogs?.store(handle.instanceId, async () =>
      driver.logs(handle, request, timeoutSignal(KEEP_LOG_MS)),
    );
  }

  /**
   * Returns the refusal for an agent that is neither RUNNING nor FAILED: its delete, create or restart is
   * under way.
   */
  async #whyNoRestart(id: string): Promise<ServiceError> {
    const record = await this.#records.find(id);
    if (record === null) return instanceNotFound(id);
    if (record.status === 'CREATING') return isBeing(record.epoch > 1 ? 'restart' : 'create', id);
    return isBeing(record.status === 'STOPPING' ? 'delete' : 'restart', id);
  }
}
