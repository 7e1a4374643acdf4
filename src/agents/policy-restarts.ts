import { messageOf } from '../core/error.ts';
import type { InstanceSpec } from '../core/instance.ts';
import { LIMITS } from '../core/limits.ts';
import { nextRestart } from '../core/restart-policy.ts';
import type { ExitPatch } from '../instances/contract.ts';
import { restartFailed } from '../instances/refusals.ts';
import type { InstanceRecord } from '../instances/rows.ts';
import { afterMs } from '../lib/deadline.ts';
import type { Log } from '../lib/log.ts';
import { msUntilStored } from '../lib/stored-time.ts';
import type { Database } from '../storage/database.ts';
import { findAgent, listPlannedRestarts } from '../storage/queries/agents.ts';
import { type InstanceRef, type StoredInstance, updateInstance } from '../storage/queries/instances.ts';
import { untilWritten } from '../storage/writes/until-written.ts';
import type { AgentTable } from './agent-table.ts';

export interface PolicyRestartsOptions {
  readonly table: AgentTable;
  readonly database: Database;
  readonly nodeId: string;
  readonly log: Log;
  readonly now: () => number;
  /** Restarts an agent; rejects if that fails. */
  readonly restart: (record: StoredInstance) => Promise<unknown>;
  /** Returns true while the agent is being restarted or deleted. */
  readonly isBusy: (id: string) => boolean;
  /** Returns why no restart may begin now; undefined: one may. */
  readonly refusal: () => unknown;
  readonly restarted?: (outcome: 'restarted' | 'failed') => void;
}

const TRY_AGAIN_MS = 1_000;

/**
 * Restarts agents that ended by themselves, according to their restart policies. The time of the next restart
 * is in the record, written together with the end. The owner of the record continues: a service after its
 * restart, or the new owner of a lost node's records. A delete or a restart by a client changes the record
 * and so cancels the plan. A database outage delays a restart but does not cancel it.
 */
export class PolicyRestarts {
  readonly #options: PolicyRestartsOptions;
  readonly #closing = new AbortController();

  constructor(options: PolicyRestartsOptions) {
    this.#options = options;
  }

  /**
   * Resumes restarts that records plan and that this process has not scheduled. An earlier server or a lost
   * node planned these restarts.
   */
  async resume(): Promise<void> {
    const { table, database, nodeId, isBusy } = this.#options;
    if (this.#closing.signal.aborted) return;
    for (const stored of await listPlannedRestarts(database, nodeId)) {
      const { id } = stored;
      const { cancelRestart, isRestarting } = table.get(id) ?? {};
      if (cancelRestart === undefined && isRestarting === undefined && !isBusy(id)) this.#wait(stored);
    }
  }

  /** Cancels all pending restarts. The plans remain in the records for the next service. */
  close(): void {
    this.#closing.abort();
    for (const [id] of this.#options.table.entries()) this.cancel(id);
  }

  /** Cancels the pending restart of an agent that a client deletes or restarts. */
  cancel(id: string): void {
    const { table } = this.#options;
    table.get(id)?.cancelRestart?.();
    table.set(id, { cancelRestart: undefined });
  }

  /**
   * Returns the columns that say whether and when an agent starts again after its end. Also used when this
   * service is about to stop. `exitCode` null: it is unknown.
   */
  planned(record: InstanceRecord, reason: string, exitCode: number | null): ExitPatch {
    const ranMs = Math.max(0, this.#options.now() - record.startedAtMs);
    return this.#plan(record, reason, { exitCode, ranMs }) ?? {};
  }

  /** Schedules the restart that the record of an ended agent plans. Never rejects. */
  async ended({ id, epoch }: InstanceRef): Promise<void> {
    try {
      const stored = await this.#find(id);
      if (stored?.epoch === epoch && isPlanned(stored)) this.#wait(stored);
    } catch (error) {
      this.#logFailure(id, error);
    }
  }

  /** Returns the columns to write; undefined: the policy does not restart the agent. */
  #plan(
    { spec, restartsInRow }: Pick<StoredInstance, 'spec' | 'restartsInRow'>,
    reason: string,
    end: { readonly exitCode: number | null; readonly ranMs: number },
  ): ExitPatch | undefined {
    const { restartPolicy } = JSON.parse(spec) as InstanceSpec;
    const next = nextRestart(restartPolicy, { ...end, restartsInRow });
    if (next === null) return undefined;
    if (next === 'enough') {
      const statusReason = `${reason}; it was restarted ${restartsInRow} times in a row, which is as often as its restart policy allows`;
      return { statusReason, restartAtMs: 0 };
    }
    return { restartAtMs: this.#options.now() + next.pauseMs, restartsInRow: next.inRow };
  }

  #wait(stored: StoredInstance, tryAgainMs?: number): void {
    const { table } = this.#options;
    const { id, restartAtMs } = stored;
    const pauseMs = tryAgainMs ?? msUntilStored(restartAtMs, LIMITS.longestRestartPauseMs, this.#options.now());
    this.cancel(id);
    if (this.#closing.signal.aborted) return;
    const cancelRestart = afterMs(pauseMs, () => {
      if (table.get(id)?.cancelRestart === cancelRestart) table.set(id, { cancelRestart: undefined });
      void this.#restart(stored);
    });
    table.set(id, { cancelRestart });
  }

  async #restart({ id, epoch }: InstanceRef): Promise<void> {
    const { table, log, restart, isBusy, refusal } = this.#options;
    table.set(id, { isRestarting: true });
    try {
      const stored = await this.#find(id);
      // Otherwise the agent was deleted, or restarted by a client.
      const isDue = stored?.epoch === epoch && isPlanned(stored);
      if (!isDue || this.#closing.signal.aborted) return;
      if (isBusy(id) || refusal() !== undefined) {
        this.#wait(stored, TRY_AGAIN_MS);
        return;
      }
      log.info({ instanceId: id, restart: stored.restartsInRow }, 'restarting agent by its policy');
      await restart(stored);
      this.#options.restarted?.('restarted');
    } catch (error) {
      log.warn({ instanceId: id, reason: messageOf(error) }, 'restart of agent by its policy failed');
      this.#options.restarted?.('failed');
      await this.#failed(id, error);
    } finally {
      table.set(id, { isRestarting: undefined });
    }
  }

  /**
   * Plans the next restart after a failed one, which counts like a start that ended at once. A start that the
   * end of the service interrupts does not count. The record gets the reason, because no client waits for it.
   */
  async #failed(id: string, why: unknown): Promise<void> {
    try {
      const stored = await this.#find(id);
      if (stored === undefined || !isPlanned(stored) || this.#closing.signal.aborted) return;
      const statusReason = restartFailed(why);
      const plan = this.#plan(stored, statusReason, { exitCode: null, ranMs: 0 });
      if (plan === undefined || !(await this.#write(stored, { statusReason, ...plan }))) return;
      const next = { ...stored, ...plan };
      if (isPlanned(next)) this.#wait(next);
    } catch (error) {
      this.#logFailure(id, error);
    }
  }

  /** Returns the record of this node; undefined if it does not exist or another node has taken it over. */
  async #find(id: string): Promise<StoredInstance | undefined> {
    const { database, nodeId } = this.#options;
    const agent = await this.#untilDone(id, () => findAgent(database, id));
    return agent?.stored.nodeId === nodeId ? agent.stored : undefined;
  }

  /** Writes the plan. Returns false if the record has changed since. */
  #write(stored: StoredInstance, changes: ExitPatch): Promise<boolean> {
    return this.#untilDone(stored.id, () => updateInstance(this.#options.database, stored, ['FAILED'], changes));
  }

  #untilDone<T>(id: string, work: () => Promise<T>): Promise<T> {
    return untilWritten(work, this.#closing.signal, error => {
      const reason = messageOf(error);
      this.#options.log.warn({ instanceId: id, reason }, 'restart of agent by its policy waits for the database');
    });
  }

  /** Logs a failed restart. A service that stops is silent, because the next service does the restart. */
  #logFailure(id: string, error: unknown): void {
    if (this.#closing.signal.aborted) return;
    this.#options.log.warn({ instanceId: id, err: error }, 'cannot restart agent by its policy');
  }
}

function isPlanned({ status, restartAtMs }: StoredInstance): boolean {
  return status === 'FAILED' && restartAtMs > 0;
}
