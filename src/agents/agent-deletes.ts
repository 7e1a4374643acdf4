import { messageOf, unavailable } from '../core/error.ts';
import { LIMITS } from '../core/limits.ts';
import type { InstanceLog } from '../instances/contract.ts';
import type { Instances } from '../instances/instances.ts';
import { instanceNotFound } from '../instances/refusals.ts';
import type { InstanceRecord } from '../instances/rows.ts';
import { backoffMs, pause } from '../lib/backoff.ts';
import { forEachOf } from '../lib/parallel.ts';
import type { Stages } from '../lib/stages.ts';
import { listAgentsOfNode } from '../storage/agents.ts';
import type { Database } from '../storage/database.ts';
import type { InstanceRef, StoredInstance } from '../storage/instances.ts';
import { type AgentRecords, toInstance } from './agent-records.ts';
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
  readonly log: InstanceLog;
  /** What was held and promised for a sandbox of which nothing is left. */
  readonly give: (sandbox: InstanceRef) => void;
}

/** How agents go: first nobody may use them, then their sandbox ends, then their row. */
export class AgentDeletes {
  readonly #options: AgentDeletesOptions;
  readonly #records: AgentRecords;

  constructor(options: AgentDeletesOptions, records: AgentRecords) {
    this.#options = options;
    this.#records = records;
  }

  /**
   * From here on nobody may use the agent, whichever of its sandboxes it has: a restart may have begun since it was read. As it was found; null: it is
   * going already.
   */
  async begin(record: InstanceRecord): Promise<InstanceRecord | null> {
    if (await this.#options.instances.rows.move(record, 'end')) return record;
    const now = await this.#records.find(record.id);
    return now !== null && now.epoch !== record.epoch ? await this.begin(now) : null;
  }

  /** Removes what there is of an agent that is going. `known`: its row. Rejects when something is left, which is then tried again. */
  async tearDown(id: string, graceMs: number | null, known?: InstanceRecord, stages?: Stages): Promise<void> {
    const { instances, previousLogs, give } = this.#options;
    try {
      const record = known ?? (await this.#records.find(id));
      if (record === null) return;
      // First, since whatever ends the rest of it knows nothing of them. A first sandbox has none before it.
      if (record.epoch > 1) await previousLogs?.remove(id);
      await this.#end(record, graceMs, stages);
      give(record);
    } catch (error) {
      instances.reconcileSoon();
      const text = `instance ${id} could not be removed yet, and is tried again: ${messageOf(error)}`;
      throw unavailable(text, { cause: error });
    }
  }

  /** The node of a FAILED instance is lost: its row goes, and the node removes what it has left of it when it comes back. */
  async discard(record: InstanceRecord): Promise<void> {
    const { instances, isLost } = this.#options;
    const isGoing = record.status === 'FAILED' && isLost?.(record.nodeId) === true;
    if (!isGoing) throw nodeNotAnswering(record.id);
    if (!(await instances.rows.endElsewhere(record, 'discarded'))) throw instanceNotFound(record.id);
  }

  /**
   * Deletes every agent, those that nobody deletes yet with `one`. It tries a removal that fails again a few times: no look at everything comes after
   * a stop. Returns how many are left; the next start removes them. Never rejects.
   */
  async all(one: (agent: StoredInstance) => Promise<void>): Promise<number> {
    const { database, nodeId, log } = this.#options;
    let left: readonly StoredInstance[] = [];
    try {
      for (let failures = 0; failures <= DELETE_RETRIES; failures++) {
        if (failures > 0) await pause(backoffMs(DELETE_RETRY, failures));
        left = await listAgentsOfNode(database, nodeId);
        await forEachOf(left, PARALLEL_DELETES, async agent => {
          await (agent.status === 'STOPPING' ? this.tearDown(agent.id, 0) : one(agent)).catch(error => {
            log.warn({ instanceId: agent.id, err: error }, 'an instance could not be deleted');
          });
        });
        left = await listAgentsOfNode(database, nodeId);
        if (left.length === 0) return 0;
      }
    } catch (error) {
      log.error({ err: error }, 'the instances could not be deleted');
    }
    return left.length;
  }

  /** Ends its sandbox and its row. Rejects while the row is there: then both are tried again. */
  async #end(record: InstanceRecord, graceMs: number | null, stages?: Stages): Promise<void> {
    const { instances, log } = this.#options;
    let ending: Promise<boolean> | undefined;
    // A row that goes while the last files do leaves an orphan behind, when the server is killed.
    const cleared = () => {
      ending = instances.rows.end(record, 'removed');
      ending.catch(() => undefined);
    };
    try {
      await instances.endSandbox(record, graceOf(record, graceMs), 'deleted', { cleared, stages });
      await (ending ?? instances.rows.end(record, 'removed'));
      stages?.over('record');
    } catch (error) {
      const isGone = (await ending?.catch(() => false)) || (await this.#isGone(record.id));
      if (!isGone) throw error;
      // Everybody sees that it is deleted, and nobody comes back to what it holds. What is left (files that take long, or cannot be removed) is an
      // orphan: drivers list it, and a look at everything removes what has no row.
      instances.reconcileSoon();
      log.warn({ instanceId: record.id, err: error }, 'the rest of a deleted instance could not be removed yet');
    }
  }

  /** Whether it has no row any more; false also when nobody can tell. */
  async #isGone(id: string): Promise<boolean> {
    return (await this.#records.find(id).catch(() => undefined)) === null;
  }
}

/** How long its code may take to stop, in milliseconds. `graceMs`: what somebody wants. */
export function graceOf(record: InstanceRecord, graceMs: number | null): number {
  return graceMs ?? Math.max(LIMITS.deleteGraceMs, toInstance(record).spec.preStopTimeoutMs);
}
