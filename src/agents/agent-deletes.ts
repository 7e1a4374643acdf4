import { messageOf, unavailable } from '../core/error.ts';
import { LIMITS } from '../core/limits.ts';
import type { Instances } from '../instances/instances.ts';
import { instanceNotFound } from '../instances/refusals.ts';
import type { InstanceRecord } from '../instances/rows.ts';
import { backoffMs, pause } from '../lib/backoff.ts';
import type { Log } from '../lib/log.ts';
import { forEachOf } from '../lib/parallel.ts';
import type { ServerTiming } from '../lib/server-timing.ts';
import type { Database } from '../storage/database.ts';
import { listAgentsOfNode } from '../storage/queries/agents.ts';
import type { InstanceRef, StoredInstance } from '../storage/queries/instances.ts';
import type { AgentFiles } from './agent-files.ts';
import { type AgentRecords, isDurable, toInstance } from './agent-records.ts';
import type { PreviousLogs } from './previous-logs.ts';
import { nodeNotAnswering } from './refusals.ts';

const PARALLEL_DELETES = 32;
const DELETE_RETRIES = 4;
const DELETE_RETRY = { firstMs: 250, longestMs: 2_000 };

export interface AgentDeletesOptions {
  readonly database: Database;
  readonly instances: Instances;
  readonly nodeId: string;
  readonly isLost?: (nodeId: string) => boolean;
  readonly previousLogs?: PreviousLogs;
  readonly files?: AgentFiles;
  readonly log: Log;
  /** Releases the code and the reservation of a removed sandbox. */
  readonly release: (sandbox: InstanceRef) => void;
}

/** Deletes of agents: the record becomes STOPPING, then the sandbox ends, then the record is deleted. */
export class AgentDeletes {
  readonly #options: AgentDeletesOptions;
  readonly #records: AgentRecords;

  constructor(options: AgentDeletesOptions, records: AgentRecords) {
    this.#options = options;
    this.#records = records;
  }

  /**
   * Marks an agent STOPPING, in its latest epoch: a restart may have begun since `record` was read. Returns
   * the record as it was found, or null if the agent is already being deleted.
   */
  async markStopping(record: InstanceRecord): Promise<InstanceRecord | null> {
    if (await this.#options.instances.move(record, 'end')) return record;
    const now = await this.#records.find(record.id);
    return now !== null && now.epoch !== record.epoch ? await this.markStopping(now) : null;
  }

  /**
   * Removes the sandbox, the earlier logs and the record of a STOPPING agent. `known`: its record. Rejects if
   * a part remains; the reconciler then retries.
   */
  async tearDown(id: string, graceMs: number | null, known?: InstanceRecord, stages?: ServerTiming): Promise<void> {
    const { instances, previousLogs, files, release } = this.#options;
    try {
      const record = known ?? (await this.#records.find(id));
      if (record === null) return;
      // Remove the earlier logs first, because the reconciler does not remove them. A first sandbox has no
      // earlier logs, unless it slept.
      if (record.epoch > 1 || record.pausedAtMs > 0) await previousLogs?.remove(id);
      await this.#end(record, graceMs, stages);
      release(record);
      if (toInstance(record).spec.durable) await files?.remove(id);
    } catch (error) {
      instances.reconcileSoon();
      const text = `instance ${id} could not be removed yet; the service retries: ${messageOf(error)}`;
      throw unavailable(text, { cause: error });
    }
  }

  /**
   * Deletes the record of a FAILED or SLEEPING agent of a lost node. The node then removes the sandbox.
   */
  async discard(record: InstanceRecord): Promise<void> {
    const { instances, isLost } = this.#options;
    const isEnded = record.status === 'FAILED' || record.status === 'SLEEPING';
    const isGoing = isEnded && isLost?.(record.nodeId) === true;
    if (!isGoing) throw nodeNotAnswering(record.id);
    if (!(await instances.rows.endElsewhere(record, 'discarded'))) throw instanceNotFound(record.id);
  }

  /**
   * Ends every agent of this node with the service: those that are not being deleted yet with `one`.
   * Durable agents that have no sandbox stay. Retries failed ends a few times, because no reconciler pass
   * follows a stop. Returns the number of agents that remain for the next start. Never rejects.
   */
  async all(one: (agent: StoredInstance) => Promise<unknown>): Promise<number> {
    const { log } = this.#options;
    let left: readonly StoredInstance[] = [];
    try {
      for (let failures = 0; failures <= DELETE_RETRIES; failures++) {
        if (failures > 0) await pause(backoffMs(DELETE_RETRY, failures));
        left = await this.#endingWithService();
        await forEachOf(left, PARALLEL_DELETES, async agent => {
          await (agent.status === 'STOPPING' ? this.tearDown(agent.id, 0) : one(agent)).catch(error => {
            log.warn({ instanceId: agent.id, err: error }, 'end of agent failed');
          });
        });
        left = await this.#endingWithService();
        if (left.length === 0) return 0;
      }
    } catch (error) {
      log.error({ err: error }, 'end of all agents failed');
    }
    return left.length;
  }

  async #endingWithService(): Promise<readonly StoredInstance[]> {
    const { database, nodeId } = this.#options;
    const all = await listAgentsOfNode(database, nodeId);
    return all.filter(agent => !(agent.status === 'FAILED' && isDurable(agent)));
  }

  /** Ends the sandbox and deletes the record. Rejects if the record remains; then both are retried. */
  async #end(record: InstanceRecord, graceMs: number | null, stages?: ServerTiming): Promise<void> {
    const { instances, log } = this.#options;
    let ending: Promise<boolean> | undefined;
    // Delete the record while the last files are removed. If the server is killed meanwhile, the reconciler
    // removes the orphan.
    const cleared = () => {
      ending = instances.end(record, 'removed');
      ending.catch(() => undefined);
    };
    try {
      await instances.endSandbox(record, graceOf(record, graceMs), 'deleted', { cleared, stages });
      await (ending ?? instances.end(record, 'removed'));
      stages?.end('record');
    } catch (error) {
      const isGone = (await ending?.catch(() => false)) || (await this.#isGone(record.id));
      if (!isGone) throw error;
      // Clients see the agent as deleted. Remaining files, which take long or cannot be removed, are an
      // orphan: drivers list it, and the reconciler removes sandboxes without a record.
      instances.reconcileSoon();
      log.warn({ instanceId: record.id, err: error }, 'removal of deleted agent failed; retrying');
    }
  }

  /** Returns true if the record is deleted; false if it exists or storage does not answer. */
  async #isGone(id: string): Promise<boolean> {
    return (await this.#records.find(id).catch(() => undefined)) === null;
  }
}

/**
 * Returns the time for the code to stop, milliseconds. `graceMs`: the client's wish, or null for the default
 * rule.
 */
export function graceOf(record: InstanceRecord, graceMs: number | null): number {
  return graceMs ?? Math.max(LIMITS.deleteGraceMs, toInstance(record).spec.preStopTimeoutMs);
}
