import { failedPrecondition } from '../core/error.ts';
import type { Instance } from '../core/instance.ts';
import type { Instances } from '../instances/instances.ts';
import { instanceNotFound } from '../instances/refusals.ts';
import type { InstanceRecord } from '../instances/rows.ts';
import { resumedExpiry } from './agent-expiries.ts';
import { type AgentRecords, toInstance } from './agent-records.ts';
import type { AgentStarts } from './agent-starts.ts';
import type { AgentsOptions } from './options.ts';
import { alreadyPaused, isBeing, notRunning, serverStopping } from './refusals.ts';

/** Pauses and resumes of agents, one at a time for each agent. */
export class AgentPauses {
  readonly #instances: Instances;
  readonly #now: () => number;
  readonly #starts: AgentStarts;
  readonly #records: AgentRecords;

  constructor(options: AgentsOptions, starts: AgentStarts, records: AgentRecords) {
    this.#instances = options.instances;
    this.#now = options.now ?? Date.now;
    this.#starts = starts;
    this.#records = records;
  }

  /** See `AgentInstances.pause`. */
  async pause(tenant: string, id: string): Promise<Instance> {
    const record = await this.#recordOf(tenant, id);
    const before = this.#starts.operations.of(id);
    if (before !== undefined) throw isBeing(before.kind, id);
    if (record.status === 'PAUSED') throw alreadyPaused(id);
    if (record.status !== 'RUNNING') throw notRunning(id);
    // A sandbox that an earlier server left may be dead.
    const live = this.#instances.live('agent', id) ?? (await this.#instances.adopt(record));
    if (live === undefined) throw notRunning(id);
    const busy = this.#starts.operations.of(id);
    if (busy !== undefined) throw isBeing(busy.kind, id);
    return await this.#starts.operations.run(id, 'pause', async () => {
      await this.#instances.pause(record);
      return await this.#records.get(tenant, id);
    });
  }

  /** Continues a PAUSED agent, or joins the resume that runs. Returns false if the agent was running. */
  async resume(tenant: string, id: string): Promise<boolean> {
    const before = this.#starts.operations.of(id);
    if (before?.kind === 'pause') await before.done.catch(() => undefined);
    const record = await this.#recordOf(tenant, id);
    const during = this.#starts.operations.of(id);
    if (during?.kind === 'resume') {
      await during.done;
      return true;
    }
    if (during !== undefined) throw isBeing(during.kind, id);
    if (record.status === 'RUNNING') return false;
    if (record.status !== 'PAUSED') throw neitherPausedNorRunning(id);
    await this.#starts.operations.run(id, 'resume', async () => {
      await this.#instances.resume(record, resumedExpiry(record, this.#now()));
      return toInstance(record);
    });
    return true;
  }

  async #recordOf(tenant: string, id: string): Promise<InstanceRecord> {
    if (this.#starts.isStopping) throw serverStopping();
    const record = await this.#records.flushedRecord(tenant, id);
    this.#records.assertHere(record);
    if (record.status === 'STOPPING') throw instanceNotFound(id);
    return record;
  }
}

const neitherPausedNorRunning = (id: string) => failedPrecondition(`instance ${id} is neither paused nor running`);
