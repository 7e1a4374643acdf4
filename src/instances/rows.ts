import type { SandboxHandle } from '../sandbox/driver.ts';
import type { Database } from '../storage/database.ts';
import { type AgentName, type TakenName, takeAgentName } from '../storage/queries/agents.ts';
import {
  type AgentIdentity,
  deleteInstance,
  findInstance,
  type InstancePatch,
  type InstanceRef,
  insertInstance,
  listInstancesOfNode,
  type OwnedInstanceRef,
  type StoredInstance,
  updateInstance,
} from '../storage/queries/instances.ts';
import type { DurableWrites } from '../storage/writes/durable.ts';
import type { InstanceChanges } from './changes.ts';
import type { HeldNames } from './held-names.ts';
import { type FinalEvent, type LastingEvent, transitionOf } from './state.ts';

/** Stored instance with the handle of its sandbox; the handle is null before the first sandbox. */
export type InstanceRecord = Omit<StoredInstance, 'handle'> & { readonly handle: SandboxHandle | null };

/**
 * Stored instances. Their states change only by the events of `state.ts`. Each change names its sandbox (id
 * and epoch) and applies only to records of this node. So a late change has no effect.
 */
export class InstanceRows {
  readonly #database: Database;
  readonly #nodeId: string;
  readonly #changes: InstanceChanges | null;
  readonly #names: HeldNames | null;
  readonly #writes: Pick<DurableWrites, 'write'>;

  /**
   * Creates an access to the records of `nodeId`. `changes` is notified of every write; null: no
   * notifications. `names` is null if other processes write records too.
   */
  constructor(
    database: Database,
    nodeId: string,
    changes: InstanceChanges | null = null,
    names: HeldNames | null = null,
    writes: Pick<DurableWrites, 'write'> = inDatabase(database),
  ) {
    this.#database = database;
    this.#nodeId = nodeId;
    this.#changes = changes;
    this.#names = names;
    this.#writes = writes;
  }

  /** Returns false if the id, the name or the idempotency key is taken. */
  async insert(instance: StoredInstance, agent?: AgentIdentity): Promise<boolean> {
    if (agent !== undefined && agent.isCandidate !== true)
      this.#names?.hold(instance.id, { ...agent, tenant: instance.tenant });
    let isWritten: boolean;
    try {
      isWritten = await insertInstance(this.#database, instance, agent);
    } catch (error) {
      this.#names?.doubt(instance.id);
      throw error;
    }
    if (isWritten) this.inserted(instance, agent);
    else this.#names?.refuse(instance.id);
    return isWritten;
  }

  /** Notifies `changes` of a record that another part wrote in a larger transaction. */
  inserted(instance: StoredInstance, agent?: AgentIdentity): void {
    this.#changes?.created(instance, agent);
  }

  /** Notifies `changes` of a first start that failed before a record was written. */
  neverInserted(instance: StoredInstance, agent: AgentIdentity | undefined, reason: string): void {
    this.#changes?.created(instance, agent);
    this.#changes?.happened(instance.id, 'forgotten', reason);
  }

  async find(id: string): Promise<InstanceRecord | null> {
    const stored = await findInstance(this.#database, id);
    return stored && toRecord(stored);
  }

  async listOfNode(nodeId: string): Promise<InstanceRecord[]> {
    const stored = await listInstancesOfNode(this.#database, nodeId);
    this.#changes?.found(stored);
    return stored.map(toRecord);
  }

  /**
   * Applies `event` and writes `patch` with it. Returns false if the state does not allow the event; nothing
   * is written then.
   */
  async move(ref: InstanceRef, event: LastingEvent, patch: Omit<InstancePatch, 'status'> = {}): Promise<boolean> {
    const { from, to } = transitionOf(event);
    const isWritten = await updateInstance(this.#database, this.#own(ref), from, { ...patch, status: to });
    if (isWritten) this.#changes?.happened(ref.id, event, patch.statusReason || notLoaded(patch.loadError));
    return isWritten;
  }

  /**
   * Applies an event that deletes the record; subscribers receive `reason`. Returns false if the state does
   * not allow it.
   */
  async end(ref: InstanceRef, event: FinalEvent, reason = ''): Promise<boolean> {
    const isWritten = await deleteInstance(this.#database, this.#own(ref), transitionOf(event).from);
    if (isWritten) {
      this.#names?.release(ref.id);
      this.#changes?.happened(ref.id, event, reason);
    }
    return isWritten;
  }

  /** Writes that an agent runs and has this name. The agent that had the name is STOPPING afterwards. */
  async takeName(ref: InstanceRef, patch: Omit<InstancePatch, 'status'>, name: AgentName): Promise<TakenName> {
    const { tenant, namespace, name: wanted } = name;
    const taken = await this.#writes.write(takeAgentName, this.#own(ref), patch, { tenant, namespace, name: wanted });
    if (taken.isWritten) {
      this.#names?.hold(ref.id, name);
      if (taken.replaced !== null) this.#names?.release(taken.replaced.id);
      this.#changes?.happened(ref.id, 'started', '');
      if (taken.replaced !== null) this.#changes?.happened(taken.replaced.id, 'end', 'replaced');
    }
    return taken;
  }

  /** Applies an event that deletes the record of an instance whose node is lost. */
  endElsewhere(record: InstanceRecord, event: FinalEvent): Promise<boolean> {
    return deleteInstance(this.#database, record, transitionOf(event).from);
  }

  #own({ id, epoch }: InstanceRef): OwnedInstanceRef {
    return { id, epoch, nodeId: this.#nodeId };
  }
}

export function toRecord(stored: StoredInstance): InstanceRecord {
  return { ...stored, handle: stored.handle === null ? null : (JSON.parse(stored.handle) as SandboxHandle) };
}

/**
 * Returns true if a server may have died between recording the first sandbox and recording RUNNING. The
 * client may have received a response.
 */
export function isCutOff({ status, epoch, concurrency, handle }: InstanceRecord): boolean {
  return status === 'CREATING' && epoch === 1 && concurrency > 0 && handle !== null;
}

/**
 * Returns true if ports of the sandbox may be published. The record of a CREATING instance does not list them
 * yet.
 */
export function mayHavePorts({ status, sandbox }: InstanceRecord): boolean {
  return status === 'CREATING' || sandbox.portMappings.length > 0;
}

/** Returns the reason for a running instance without code: the event `ready` alone would hide the failure. */
function notLoaded(loadError: string | undefined): string {
  return loadError ? `code not loaded: ${loadError}` : '';
}

/** Runs each write operation in a transaction of its own, without a writer thread. */
function inDatabase(database: Database): Pick<DurableWrites, 'write'> {
  return {
    write: (operation, ...args) => database.transaction().execute(transaction => operation(transaction, ...args)),
  };
}
