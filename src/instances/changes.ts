import type { InstanceSpec, OwnerKind } from '../core/instance.ts';
import type { AgentIdentity, StoredInstance } from '../storage/queries/instances.ts';
import type { FinalEvent, LastingEvent } from './state.ts';

/** Written change of an instance. `found` is not a change: an earlier server left the instance. */
export interface InstanceChange {
  readonly kind: 'found' | 'created' | 'ready' | 'failed' | 'restarting' | 'stopping' | 'ended';
  readonly id: string;
  readonly owner: StoredInstance['owner'];
  readonly tenant: string;
  /** Namespace of an agent; `''` for an instance without a name. */
  readonly namespace: string;
  readonly name: string;
  /** Reason as a sentence; `''`: there is none. */
  readonly reason: string;
}

export type TellChange = (change: InstanceChange) => void;

const KINDS: Readonly<Record<LastingEvent | FinalEvent, InstanceChange['kind']>> = {
  started: 'ready',
  forgotten: 'ended',
  startFailed: 'failed',
  exited: 'failed',
  restart: 'restarting',
  end: 'stopping',
  removed: 'ended',
  discarded: 'ended',
};

/** Kinds whose changes are published. Jobs publish their own, and builds have no subscribers. */
const TOLD: ReadonlySet<OwnerKind> = new Set(['agent', 'function']);

/**
 * Publishes each change of an instance once it is written. A change names only the id of the instance. Tenant
 * and name are kept here from the first record to the last, so that no change reads storage.
 */
export class InstanceChanges {
  readonly #tell: TellChange;
  readonly #known = new Map<string, Omit<InstanceChange, 'kind' | 'reason'>>();

  constructor(tell: TellChange) {
    this.#tell = tell;
  }

  /** Publishes a new record. */
  created(instance: StoredInstance, identity?: Pick<AgentIdentity, 'namespace' | 'name'>): void {
    if (!TOLD.has(instance.owner.kind)) return;
    this.#know(instance, identity);
    this.#emit(instance.id, 'created', '');
  }

  /** Publishes records that an earlier server left. */
  found(instances: readonly StoredInstance[]): void {
    for (const instance of instances) {
      if (!TOLD.has(instance.owner.kind) || this.#known.has(instance.id)) continue;
      this.#know(instance, instance.owner.kind === 'agent' ? (JSON.parse(instance.spec) as InstanceSpec) : undefined);
      this.#emit(instance.id, 'found', '');
    }
  }

  happened(id: string, event: LastingEvent | FinalEvent, reason: string): void {
    // A start that failed without leaving an instance has no other event with its reason.
    if (event === 'forgotten' && reason !== '') this.#emit(id, 'failed', reason);
    const kind = KINDS[event];
    this.#emit(id, kind, kind === 'ended' && event === 'forgotten' ? '' : reason);
    if (kind === 'ended') this.#known.delete(id);
  }

  #know({ id, owner, tenant }: StoredInstance, identity?: Pick<AgentIdentity, 'namespace' | 'name'>): void {
    this.#known.set(id, {
      id,
      owner,
      tenant,
      namespace: identity?.namespace ?? '',
      name: identity?.name ?? '',
    });
  }

  #emit(id: string, kind: InstanceChange['kind'], reason: string): void {
    const known = this.#known.get(id);
    if (known !== undefined) this.#tell({ ...known, kind, reason });
  }
}
