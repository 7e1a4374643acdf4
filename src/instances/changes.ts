import type { InstanceSpec, OwnerKind } from '../core/instance.ts';
import type { AgentIdentity, StoredInstance } from '../storage/instances.ts';
import type { FinalEvent, LastingEvent } from './state.ts';

/** A change of an instance that was written; `found`: it is no change, an earlier server left it. */
export interface InstanceChange {
  readonly kind: 'found' | 'created' | 'ready' | 'failed' | 'restarting' | 'stopping' | 'ended';
  readonly id: string;
  readonly owner: StoredInstance['owner'];
  readonly tenant: string;
  /** `''` where it has no name. */
  readonly namespace: string;
  readonly name: string;
  /** Why, a sentence; `''`: there is no more to say. */
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

/** Whose changes are told. Jobs tell of themselves, and builds are nobody's business. */
const TOLD: ReadonlySet<OwnerKind> = new Set(['agent', 'function']);

/**
 * Tells each change of an instance as soon as it is written. A change names an instance by its id only: whose it is, is kept here from its
 * first row to its last, so that telling asks no store.
 */
export class InstanceChanges {
  readonly #tell: TellChange;
  readonly #known = new Map<string, Omit<InstanceChange, 'kind' | 'reason'>>();

  constructor(tell: TellChange) {
    this.#tell = tell;
  }

  /** A row was written. */
  created(instance: StoredInstance, identity?: Pick<AgentIdentity, 'namespace' | 'name'>): void {
    if (!TOLD.has(instance.owner.kind)) return;
    this.#know(instance, identity);
    this.#emit(instance.id, 'created', '');
  }

  /** Rows of an earlier server were found. */
  found(instances: readonly StoredInstance[]): void {
    for (const instance of instances) {
      if (!TOLD.has(instance.owner.kind) || this.#known.has(instance.id)) continue;
      this.#know(instance, instance.owner.kind === 'agent' ? (JSON.parse(instance.spec) as InstanceSpec) : undefined);
      this.#emit(instance.id, 'found', '');
    }
  }

  happened(id: string, event: LastingEvent | FinalEvent, reason: string): void {
    // Nothing else would say why a start failed after which there is no instance.
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
