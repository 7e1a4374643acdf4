import type { SandboxHandle } from '../sandbox/driver.ts';
import type { Database } from '../storage/database.ts';
import {
  type AgentIdentity,
  deleteInstance,
  findInstance,
  type InstancePatch,
  type InstanceRef,
  insertInstance,
  listInstancesOfNode,
  type StoredInstance,
  updateInstance,
} from '../storage/instances.ts';
import { type FinalEvent, type LastingEvent, transitionOf } from './state.ts';

/** An instance as storage has it, and how to reach its sandbox (null before there is one). */
export type InstanceRecord = Omit<StoredInstance, 'handle'> & { readonly handle: SandboxHandle | null };

/**
 * The instances in storage. Their states change only by the events of `state.ts`, and each change names the sandbox that it is meant for
 * (id and epoch): one that comes too late changes nothing.
 */
export class InstanceRows {
  readonly #database: Database;

  constructor(database: Database) {
    this.#database = database;
  }

  /** False when its id, its name or its idempotency key is taken. */
  insert(instance: StoredInstance, agent?: AgentIdentity): Promise<boolean> {
    return insertInstance(this.#database, instance, agent);
  }

  async find(id: string): Promise<InstanceRecord | null> {
    const stored = await findInstance(this.#database, id);
    return stored && toRecord(stored);
  }

  async listOfNode(nodeId: string): Promise<InstanceRecord[]> {
    return (await listInstancesOfNode(this.#database, nodeId)).map(toRecord);
  }

  /** Lets `event` happen and writes `patch` with it. False: it may not happen (any more), and nothing was written. */
  move(ref: InstanceRef, event: LastingEvent, patch: Omit<InstancePatch, 'status'> = {}): Promise<boolean> {
    const { from, to } = transitionOf(event);
    return updateInstance(this.#database, ref, from, { ...patch, status: to });
  }

  /** Lets an event happen after which there is no instance. False: it may not happen (any more). */
  end(ref: InstanceRef, event: FinalEvent): Promise<boolean> {
    return deleteInstance(this.#database, ref, transitionOf(event).from);
  }
}

export function toRecord(stored: StoredInstance): InstanceRecord {
  return { ...stored, handle: stored.handle === null ? null : (JSON.parse(stored.handle) as SandboxHandle) };
}
