import { splitMounts } from '../core/code-package.ts';
import type { Instance, InstanceSpec } from '../core/instance.ts';
import { secretsOf } from '../core/secret.ts';
import { instanceNotFound } from '../instances/refusals.ts';
import { type InstanceRecord, inDatabase } from '../instances/rows.ts';
import { changeAgentSpec } from '../storage/queries/agents.ts';
import type { InstancePatch, StoredInstance } from '../storage/queries/instances.ts';
import { type AgentRecords, isDurable } from './agent-records.ts';
import type { AgentSleeps } from './agent-sleeps.ts';
import type { AgentStarts } from './agent-starts.ts';
import type { AgentChange } from './contract.ts';
import type { AgentsOptions } from './options.ts';
import { isBeing, notChangeable } from './refusals.ts';

/** Longest wait of a change for the end of the agent's uses. */
const APPLY_MS = 60_000;

interface AgentUpdatesParts {
  readonly starts: AgentStarts;
  readonly records: AgentRecords;
  readonly sleeps: AgentSleeps;
}

/**
 * Changes settings of durable agents. A change is stored beside the settings of the running sandbox, and the
 * next start takes it over.
 */
export class AgentUpdates {
  readonly #options: AgentsOptions;
  readonly #parts: AgentUpdatesParts;
  /** Agents whose change takes effect now. Their new calls wait. */
  #applying = 0;

  constructor(options: AgentsOptions, parts: AgentUpdatesParts) {
    this.#options = options;
    this.#parts = parts;
  }

  /** Returns true if a new call of the agent must wait. Costs nothing while no change takes effect. */
  holdsCalls(id: string): boolean {
    return this.#applying > 0 && this.#parts.starts.table.get(id)?.isApplying === true;
  }

  /** See `AgentInstances.update`. */
  async update(tenant: string, id: string, { change, isApplied = false, signal }: AgentChange): Promise<Instance> {
    const { starts, records } = this.#parts;
    const record = await records.flushedRecord(tenant, id);
    records.assertHere(record);
    if (record.status === 'STOPPING') throw instanceNotFound(id);
    if (!isDurable(record)) throw notChangeable(id);
    const before = starts.operations.of(id);
    if (before !== undefined) throw isBeing(before.kind, id);
    return await starts.operations.run(id, 'update', async () => {
      await this.#store(tenant, id, change);
      if (isApplied) await this.#apply(await records.flushedRecord(tenant, id), signal);
      return await records.get(tenant, id);
    });
  }

  async #store(tenant: string, id: string, change: AgentChange['change']): Promise<void> {
    const { starts, records } = this.#parts;
    const record = await records.flushedRecord(tenant, id);
    const { next: _next, ...spec } = JSON.parse(record.spec) as InstanceSpec;
    const next = await change(specOfNextStart(record));
    // Fails before anything is written if this installation cannot run the agent so.
    const start = { id, epoch: record.epoch + 1 };
    await starts.startOf(start, next);
    await starts.code.undo(start);
    await this.#write(record, JSON.stringify({ ...spec, next }));
    try {
      await this.#confirm(next);
    } catch (error) {
      await this.#write(record, record.spec);
      throw error;
    }
    starts.table.set(id, { failedWakes: undefined, quickEnds: undefined });
  }

  async #write({ id, epoch, nodeId }: InstanceRecord, spec: string): Promise<void> {
    const { database, writes = inDatabase(database) } = this.#options;
    if (!(await writes.write(changeAgentSpec, { id, epoch, nodeId }, spec))) throw instanceNotFound(id);
  }

  /**
   * Checks that secrets and packages still exist, since one may have been removed before the record named
   * it.
   */
  async #confirm(spec: InstanceSpec): Promise<void> {
    const secrets = secretsOf(spec.env);
    if (secrets.length > 0) await this.#options.secrets?.check(spec.tenant, secrets);
    if (splitMounts(spec.mounts).packages.length > 0) await this.#parts.starts.code.confirm(spec);
  }

  /** Puts the agent to sleep between two calls, unless it does so already. */
  async #apply(record: InstanceRecord, signal?: AbortSignal): Promise<void> {
    const { starts, sleeps } = this.#parts;
    if (record.status !== 'RUNNING' && record.status !== 'PAUSED') return;
    this.#applying += 1;
    starts.table.set(record.id, { isApplying: true });
    try {
      await sleeps.sleepLocked(record, performance.now() + APPLY_MS, signal);
    } finally {
      this.#applying -= 1;
      starts.table.set(record.id, { isApplying: undefined });
    }
  }
}

/** Returns the settings with which an agent starts next. */
export function specOfNextStart({ spec }: Pick<StoredInstance, 'spec'>): InstanceSpec {
  const { next, ...now } = JSON.parse(spec) as InstanceSpec;
  return next ?? now;
}

/** Returns the columns that change when an agent starts with changed settings; none without a change. */
export function changedColumns({
  spec,
}: Pick<StoredInstance, 'spec'>):
  | Required<Pick<InstancePatch, 'spec' | 'cpuMillis' | 'memoryMb' | 'maxCallMs'>>
  | object {
  const { next } = JSON.parse(spec) as InstanceSpec;
  if (next === undefined) return {};
  const { cpuMillis, memoryMb, callTimeoutMs } = next;
  return { spec: JSON.stringify(next), cpuMillis, memoryMb, maxCallMs: callTimeoutMs };
}
