import type { Instance, InstanceSpec } from '../core/instance.ts';
import type { DriverSource } from '../instances/contract.ts';
import type { Instances } from '../instances/instances.ts';
import { instanceNotFound } from '../instances/refusals.ts';
import { type InstanceRecord, toRecord } from '../instances/rows.ts';
import type { Database } from '../storage/database.ts';
import { listNextAlarmTimes } from '../storage/queries/agent-alarms.ts';
import { listAgentStateSizes } from '../storage/queries/agent-states.ts';
import { findAgent, listAgents } from '../storage/queries/agents.ts';
import type { StoredInstance } from '../storage/queries/instances.ts';
import type { InstanceQuery } from './contract.ts';
import { cursorAfter, readCursor } from './list-cursor.ts';
import { nodeNotAnswering } from './refusals.ts';

export interface AgentRecordsOptions {
  readonly database: Database;
  readonly instances: Instances;
  readonly drivers: DriverSource;
  readonly nodeId: string;
}

/**
 * Stored agents as clients see them: separated by tenant, and completed by the current state in this process.
 */
export class AgentRecords {
  readonly #options: AgentRecordsOptions;

  constructor(options: AgentRecordsOptions) {
    this.#options = options;
  }

  async get(tenant: string, id: string): Promise<Instance> {
    return await this.#withState(await this.#seen(await this.flushedRecord(tenant, id)));
  }

  async list(query: InstanceQuery): Promise<{ instances: readonly Instance[]; nextCursor: string | null }> {
    const { limit, cursor: _cursor, ...filter } = query;
    const { database } = this.#options;
    await this.#options.instances.flushed();
    // The extra record shows whether there is a next page.
    const found = await listAgents(database, { ...filter, limit: limit + 1, after: readCursor(query) });
    const seen = await Promise.all(found.slice(0, limit).map(stored => this.#seen(stored)));
    const instances = await this.#withStates(seen);
    const last = instances.at(-1);
    return { instances, nextCursor: last && found.length > limit ? cursorAfter(query, last) : null };
  }

  /**
   * Returns the record after flushing pending writes. Fails with `not_found` if it does not exist or has
   * another tenant.
   */
  async flushedRecord(tenant: string, id: string): Promise<InstanceRecord> {
    await this.#options.instances.flushed(id);
    return await this.known(tenant, id);
  }

  /** Returns the stored record without a flush. Fails with `not_found` as `settled` does. */
  async known(tenant: string, id: string): Promise<InstanceRecord> {
    const record = await this.find(id);
    if (record === null || record.tenant !== tenant) throw instanceNotFound(id);
    return record;
  }

  async find(id: string): Promise<InstanceRecord | null> {
    const agent = await findAgent(this.#options.database, id);
    return agent && toRecord(agent.stored);
  }

  /** Fails with `nodeNotAnswering` if another node has the agent: forwarding to that node has failed. */
  assertHere({ id, nodeId }: InstanceRecord): void {
    if (nodeId !== this.#options.nodeId) throw nodeNotAnswering(id);
  }

  /** Returns the stored record. If the agent's state is unknown, `statusReason` says why. */
  async #seen(stored: Omit<StoredInstance, 'handle'>): Promise<Instance> {
    const instance = toInstance(stored);
    if (stored.status !== 'RUNNING' || stored.nodeId !== this.#options.nodeId) return instance;
    const statusReason =
      this.#options.instances.live('agent', stored.id)?.whyUnknown ?? (await this.#whyUnknown(stored.id));
    return statusReason === '' ? instance : { ...instance, statusReason };
  }

  async #withState(instance: Instance): Promise<Instance> {
    const [completed = instance] = await this.#withStates([instance]);
    return completed;
  }

  /** Adds the facts about the saved states of durable agents. */
  async #withStates(instances: readonly Instance[]): Promise<readonly Instance[]> {
    const durable = instances.filter(({ spec }) => spec.durable !== undefined).map(({ id }) => id);
    if (durable.length === 0) return instances;
    const sizes = await listAgentStateSizes(this.#options.database, durable);
    const known = new Map(sizes.map(size => [size.agentId, size]));
    const alarms = await listNextAlarmTimes(this.#options.database, durable);
    return instances.map(instance => {
      if (instance.spec.durable === undefined) return instance;
      const { version = 0, bytes = 0, savedAtMs = 0 } = known.get(instance.id) ?? {};
      const nextAlarmAtMs = alarms.get(instance.id);
      const savedState = { version, bytes, savedAtMs, ...(nextAlarmAtMs !== undefined && { nextAlarmAtMs }) };
      return { ...instance, savedState };
    });
  }

  /** Returns the reason why a RUNNING agent has not been adopted yet; `''`: its driver reports none. */
  async #whyUnknown(id: string): Promise<string> {
    const record = await this.find(id);
    if (record?.handle == null) return '';
    const driver = await this.#options.drivers(record.sandboxType).catch(() => undefined);
    return driver?.whyUnknown?.(record.handle) ?? '';
  }
}

/** Returns true if the agent has a saved state, which its calls change. */
export function isDurable({ spec }: Pick<StoredInstance, 'spec'>): boolean {
  return (JSON.parse(spec) as InstanceSpec).durable !== undefined;
}

/** Returns the public view of an agent, without its handle and its secret. */
export function toInstance(stored: Omit<StoredInstance, 'handle' | 'secret'>): Instance {
  const spec = JSON.parse(stored.spec) as InstanceSpec;
  return {
    id: stored.id,
    spec,
    status: stored.status,
    statusReason: stored.statusReason,
    loadError: stored.loadError,
    restarts: stored.epoch - 1 - stored.wakes,
    ...(stored.wakes > 0 && { wakes: stored.wakes }),
    restartAtMs: stored.status === 'FAILED' ? stored.restartAtMs : 0,
    createdAtMs: stored.createdAtMs,
    startedAtMs: stored.startedAtMs,
    nodeId: stored.nodeId,
    labels: spec.labels ?? {},
    expiresAtMs: stored.expiresAtMs,
    onExpiry: spec.onExpiry ?? 'delete',
    pausedAtMs: stored.status === 'PAUSED' ? stored.pausedAtMs : 0,
    ...(stored.status === 'SLEEPING' && { sleptAtMs: stored.pausedAtMs }),
    sandbox: stored.sandbox,
  };
}
