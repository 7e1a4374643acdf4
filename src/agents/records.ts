import type { Instance } from '../core/instance.ts';
import type { SandboxHandle } from '../sandbox/driver.ts';
import type { Database } from '../storage/database.ts';
import {
  deleteInstance,
  findInstance,
  findInstanceByIdempotencyKey,
  findInstanceByName,
  forgetIdempotencyKey,
  type InstanceFilter,
  type InstancePatch,
  insertInstance,
  listInstances,
  listInstancesOfNode,
  type NewInstance,
  type StoredInstance,
  updateInstance,
} from '../storage/instances.ts';
import { type FinalEvent, type LastingEvent, transitionOf } from './instance.ts';

/** An instance, and how to reach its sandbox. */
export interface InstanceRecord {
  readonly instance: Instance;
  /** Null before there is a sandbox. */
  readonly handle: SandboxHandle | null;
  readonly secret: string;
  readonly requestHash: string | null;
}

/** The instances in storage; their states change only by the events of `instance.ts`. */
export class InstanceRecords {
  readonly #database: Database;

  constructor(database: Database) {
    this.#database = database;
  }

  /** False when its name or its idempotency key is taken. */
  insert(instance: NewInstance): Promise<boolean> {
    return insertInstance(this.#database, instance);
  }

  async find(id: string): Promise<InstanceRecord | null> {
    return toRecord(await findInstance(this.#database, id));
  }

  async findByName(tenant: string, namespace: string, name: string): Promise<InstanceRecord | null> {
    return toRecord(await findInstanceByName(this.#database, tenant, namespace, name));
  }

  async findByIdempotencyKey(tenant: string, key: string): Promise<InstanceRecord | null> {
    return toRecord(await findInstanceByIdempotencyKey(this.#database, tenant, key));
  }

  forgetIdempotencyKey(id: string): Promise<void> {
    return forgetIdempotencyKey(this.#database, id);
  }

  list(filter: InstanceFilter): Promise<Instance[]> {
    return listInstances(this.#database, filter);
  }

  async listOfNode(nodeId: string): Promise<InstanceRecord[]> {
    return (await listInstancesOfNode(this.#database, nodeId)).map(row => toRecord(row));
  }

  /** Lets `event` happen and writes `patch` with it. False: it may not happen (any more), and nothing was written. */
  move(id: string, event: LastingEvent, patch: Omit<InstancePatch, 'status'> = {}): Promise<boolean> {
    const { from, to } = transitionOf(event);
    return updateInstance(this.#database, id, from, { ...patch, status: to });
  }

  /** Lets an event happen after which there is no instance. False: it may not happen (any more). */
  end(id: string, event: FinalEvent): Promise<boolean> {
    return deleteInstance(this.#database, id, transitionOf(event).from);
  }
}

function toRecord(row: StoredInstance): InstanceRecord;
function toRecord(row: StoredInstance | null): InstanceRecord | null;
function toRecord(row: StoredInstance | null): InstanceRecord | null {
  return row && { ...row, handle: row.handle === null ? null : (JSON.parse(row.handle) as SandboxHandle) };
}
