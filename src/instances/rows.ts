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
  type OwnedInstanceRef,
  type StoredInstance,
  updateInstance,
} from '../storage/instances.ts';
import type { InstanceChanges } from './changes.ts';
import type { HeldNames } from './held-names.ts';
import { type FinalEvent, type LastingEvent, transitionOf } from './state.ts';

/** An instance as storage has it, and how to reach its sandbox (null before there is one). */
export type InstanceRecord = Omit<StoredInstance, 'handle'> & { readonly handle: SandboxHandle | null };

/**
 * The instances in storage. Their states change only by the events of `state.ts`, and each change names the sandbox that it is meant for
 * (id and epoch) and happens only to what this node looks after: one that comes too late changes nothing.
 */
export class InstanceRows {
  readonly #database: Database;
  readonly #nodeId: string;
  readonly #changes: InstanceChanges | null;
  readonly #names: HeldNames | null;

  /**
   * `nodeId`: the node whose instances are changed here. `changes` hears of everything that was written; null: nobody does. `names`: null where others
   * write rows too.
   */
  constructor(
    database: Database,
    nodeId: string,
    changes: InstanceChanges | null = null,
    names: HeldNames | null = null,
  ) {
    this.#database = database;
    this.#nodeId = nodeId;
    this.#changes = changes;
    this.#names = names;
  }

  /** False when its id, its name or its idempotency key is taken. */
  async insert(instance: StoredInstance, agent?: AgentIdentity): Promise<boolean> {
    if (agent !== undefined) this.#names?.hold(instance.id, { ...agent, tenant: instance.tenant });
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

  /** Somebody else wrote the row, in a transaction with more. */
  inserted(instance: StoredInstance, agent?: AgentIdentity): void {
    this.#changes?.created(instance, agent);
  }

  /** A first start has failed of which nothing was written. */
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

  /** Lets `event` happen and writes `patch` with it. False: it may not happen (any more), and nothing was written. */
  async move(ref: InstanceRef, event: LastingEvent, patch: Omit<InstancePatch, 'status'> = {}): Promise<boolean> {
    const { from, to } = transitionOf(event);
    const isWritten = await updateInstance(this.#database, this.#own(ref), from, { ...patch, status: to });
    if (isWritten) this.#changes?.happened(ref.id, event, patch.statusReason || patch.loadError || '');
    return isWritten;
  }

  /** Lets an event happen after which there is no instance; `reason` is for those who hear of it. False: it may not happen (any more). */
  async end(ref: InstanceRef, event: FinalEvent, reason = ''): Promise<boolean> {
    const isWritten = await deleteInstance(this.#database, this.#own(ref), transitionOf(event).from);
    if (isWritten) {
      this.#names?.release(ref.id);
      this.#changes?.happened(ref.id, event, reason);
    }
    return isWritten;
  }

  /** The same of an instance whose node is lost. */
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
 * Whether a server was killed after the first sandbox of an instance was written down, and before it was written that it runs: perhaps its
 * caller was answered.
 */
export function isCutOff({ status, epoch, concurrency, handle }: InstanceRecord): boolean {
  return status === 'CREATING' && epoch === 1 && concurrency > 0 && handle !== null;
}

/** Whether ports of its sandbox may be published; of one that is being made, nobody has written it down yet. */
export function mayHavePorts({ status, sandbox }: InstanceRecord): boolean {
  return status === 'CREATING' || sandbox.portMappings.length > 0;
}
