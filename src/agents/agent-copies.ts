import { randomUUID } from 'node:crypto';
import { splitMounts } from '../core/code-package.ts';
import { unavailable } from '../core/error.ts';
import type { Instance, InstanceSpec } from '../core/instance.ts';
import { secretsOf } from '../core/secret.ts';
import { instanceNotFound } from '../instances/refusals.ts';
import { inDatabase } from '../instances/rows.ts';
import { listAgentAlarms } from '../storage/queries/agent-alarms.ts';
import { findAgentState } from '../storage/queries/agent-states.ts';
import { findAgentByName, insertSleepingAgent } from '../storage/queries/agents.ts';
import { type AgentRecords, isDurable, toInstance } from './agent-records.ts';
import type { AgentStarts } from './agent-starts.ts';
import { specOfNextStart } from './agent-updates.ts';
import type { AgentContent, AgentCopyStore, AgentInstances } from './contract.ts';
import type { AgentsOptions } from './options.ts';
import { nameTaken, notDurable } from './refusals.ts';

/** Most reads of a state and alarms that change all the time. */
const MOST_READS = 10;

interface AgentCopiesParts {
  readonly starts: AgentStarts;
  readonly records: AgentRecords;
  readonly agents: Pick<AgentInstances, 'delete'> & { readonly alarms: { look(): void } };
}

/** Exports durable agents, and makes sleeping agents of exports. */
export class AgentCopies implements AgentCopyStore {
  readonly #options: AgentsOptions;
  readonly #parts: AgentCopiesParts;

  constructor(options: AgentsOptions, parts: AgentCopiesParts) {
    this.#options = options;
    this.#parts = parts;
  }

  async read(tenant: string, id: string): Promise<AgentContent> {
    const { database } = this.#options;
    const record = await this.#parts.records.flushedRecord(tenant, id);
    if (record.status === 'STOPPING') throw instanceNotFound(id);
    if (!isDurable(record)) throw notDurable(id);
    // A save writes the state and its alarms at once, so both are of one moment if the version stays.
    for (let read = 0; read < MOST_READS; read++) {
      const saved = await findAgentState(database, id);
      const alarms = await listAgentAlarms(database, id);
      const now = await findAgentState(database, id);
      if (saved?.version === now?.version)
        return { spec: specOfNextStart(record), state: saved?.state ?? null, alarms };
    }
    throw unavailable(`instance ${id} saves all the time; put it to sleep first`);
  }

  async create({ spec, state, alarms }: AgentContent): Promise<Instance> {
    const { database, instances, nodeId, writes = inDatabase(database), now = Date.now } = this.#options;
    const { starts, agents } = this.#parts;
    const ref = { id: randomUUID(), epoch: 1 };
    // Fails before anything is written if this installation cannot run the agent.
    const start = await starts.startOf(ref, spec);
    await starts.code.undo(ref);
    const draft = instances.draft({
      ...{ owner: { kind: 'agent', key: ref.id }, tenant: spec.tenant, sandboxType: spec.sandboxType },
      ...{ sandbox: start.sandbox, concurrency: spec.concurrency, maxCallMs: spec.callTimeoutMs },
      ...{ spec: JSON.stringify(spec), ttlMs: spec.ttlMs ?? 0 },
    });
    const sleptAtMs = now();
    const expiresAtMs = spec.ttlMs === undefined ? 0 : sleptAtMs + spec.ttlMs;
    const row = state === null ? null : { ...rowOf(state, spec), saved_at_ms: sleptAtMs };
    const record = { ...draft, nodeId, status: 'SLEEPING' as const, pausedAtMs: sleptAtMs, expiresAtMs };
    const { namespace, name, labels } = spec;
    const identity = { namespace, name, labels, idempotency: undefined };
    if (!(await writes.write(insertSleepingAgent, record, identity, row, alarms))) {
      await starts.forgetFiles(ref, spec);
      throw await this.#whyTaken(spec);
    }
    try {
      const secrets = secretsOf(spec.env);
      if (secrets.length > 0) await this.#options.secrets?.check(spec.tenant, secrets);
      if (splitMounts(spec.mounts).packages.length > 0) await starts.code.confirm(spec);
    } catch (error) {
      await agents.delete(spec.tenant, ref.id, null);
      throw error;
    }
    agents.alarms.look();
    return toInstance(record);
  }

  async #whyTaken({ tenant, namespace, name }: InstanceSpec): Promise<Error> {
    const holder = await findAgentByName(this.#options.database, tenant, namespace, name);
    if (holder !== null) return nameTaken(toInstance(holder.stored));
    return unavailable(`agent ${namespace}/${name} was deleted just now; try again`);
  }
}

function rowOf(state: string, { durable }: InstanceSpec) {
  return { version: 1, schema: durable?.schema ?? 1, bytes: Buffer.byteLength(state), state };
}
