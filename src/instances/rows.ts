import { setImmediate } from 'node:timers/promises';
import type { OwnerKind } from '../core/instance.ts';
import type { SandboxHandle } from '../sandbox/driver.ts';
import type { Database } from '../storage/database.ts';
import { type AgentName, type TakenName, takeAgentName } from '../storage/queries/agents.ts';
import {
  type AgentIdentity,
  deleteInstance,
  findInstance,
  findInstances,
  type InstancePatch,
  type InstanceRef,
  insertInstance,
  listInstancesWithSandbox,
  type OwnedInstanceRef,
  type StoredInstance,
  updateInstance,
} from '../storage/queries/instances.ts';
import type { DurableWrites } from '../storage/writes/durable.ts';
import { type FinalEvent, type LastingEvent, transitionOf } from './state.ts';

/** Stored instance with the handle of its sandbox; the handle is null before the first sandbox. */
export type InstanceRecord = Omit<StoredInstance, 'handle'> & { readonly handle: SandboxHandle | null };

/**
 * Stored instances. Their states change only by the events of `state.ts`. Each change names its sandbox (id
 * and epoch) and applies only to records of this node. So a late change has no effect. Only `RecordWriter`
 * calls the methods that write.
 */
export class InstanceRows {
  readonly #database: Database;
  readonly #nodeId: string;
  readonly #writes: Pick<DurableWrites, 'write'>;

  constructor(database: Database, nodeId: string, writes: Pick<DurableWrites, 'write'> = inDatabase(database)) {
    this.#database = database;
    this.#nodeId = nodeId;
    this.#writes = writes;
  }

  /** Returns false if the id, the name or the idempotency key is taken. */
  insert(instance: StoredInstance, agent?: AgentIdentity): Promise<boolean> {
    return insertInstance(this.#database, instance, agent);
  }

  async find(id: string): Promise<InstanceRecord | null> {
    const stored = await findInstance(this.#database, id);
    return stored && toRecord(stored);
  }

  /** Returns the records that exist among these ids. Other work runs between its queries. */
  async findAll(ids: readonly string[]): Promise<InstanceRecord[]> {
    const records: InstanceRecord[] = [];
    for await (const some of findInstances(this.#database, ids)) {
      for (const stored of some) records.push(toRecord(stored));
      await setImmediate();
    }
    return records;
  }

  /** Returns the records of a node that may have a sandbox, or those of one kind. */
  async listWithSandbox(nodeId: string, kind: OwnerKind | null = null): Promise<InstanceRecord[]> {
    return (await listInstancesWithSandbox(this.#database, nodeId, kind)).map(toRecord);
  }

  /**
   * Applies `event` and writes `patch` with it. Returns false if the state does not allow the event; nothing
   * is written then.
   */
  move(ref: InstanceRef, event: LastingEvent, patch: Omit<InstancePatch, 'status'> = {}): Promise<boolean> {
    const { from, to } = transitionOf(event);
    return updateInstance(this.#database, this.#ownedRef(ref), from, { ...patch, status: to });
  }

  /** Applies an event that deletes the record. Returns false if the state does not allow it. */
  end(ref: InstanceRef, event: FinalEvent): Promise<boolean> {
    return deleteInstance(this.#database, this.#ownedRef(ref), transitionOf(event).from);
  }

  /** Writes that an agent runs and has this name. The agent that had the name is STOPPING afterwards. */
  takeName(ref: InstanceRef, patch: Omit<InstancePatch, 'status'>, name: AgentName): Promise<TakenName> {
    const { tenant, namespace, name: wanted } = name;
    return this.#writes.write(takeAgentName, this.#ownedRef(ref), patch, { tenant, namespace, name: wanted });
  }

  /** Applies an event that deletes the record of an instance whose node is lost. */
  endElsewhere(record: InstanceRecord, event: FinalEvent): Promise<boolean> {
    return deleteInstance(this.#database, record, transitionOf(event).from);
  }

  #ownedRef({ id, epoch }: InstanceRef): OwnedInstanceRef {
    return { id, epoch, nodeId: this.#nodeId };
  }
}

export function toRecord(stored: StoredInstance): InstanceRecord {
  return { ...stored, handle: stored.handle === null ? null : (JSON.parse(stored.handle) as SandboxHandle) };
}

/** Runs each write operation in a transaction of its own, without a writer thread. */
export function inDatabase(database: Database): Pick<DurableWrites, 'write'> {
  return {
    write: (operation, ...args) => database.transaction().execute(transaction => operation(transaction, ...args)),
  };
}
