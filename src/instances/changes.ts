import type { InstanceSpec, OwnerKind } from '../core/instance.ts';
import type { AgentIdentity, StoredInstance } from '../storage/queries/instances.ts';
import type { FinalEvent, LastingEvent } from './state.ts';

/** Written change of an instance. `found` is not a change: an earlier server left the instance. */
export interface InstanceChange {
  readonly kind: 'found' | 'created' | 'ready' | 'paused' | 'resumed' | 'failed' | 'restarting' | 'stopping' | 'ended';
  readonly id: string;
  readonly owner: StoredInstance['owner'];
  readonly tenant: string;
  /** Namespace of an agent; `''` for an instance without a name. */
  readonly namespace: string;
  readonly name: string;
  /** Reason as a sentence; `''`: there is none. */
  readonly reason: string;
}

export type NotifyChange = (change: InstanceChange) => void;

/** Members that all changes of an instance have in common. */
export type ChangeIdentity = Omit<InstanceChange, 'kind' | 'reason'>;

/** `null`: the event is not published, because thousands of agents may sleep and wake all the time. */
const KINDS: Readonly<Record<LastingEvent | FinalEvent, InstanceChange['kind'] | null>> = {
  started: 'ready',
  paused: 'paused',
  resumed: 'resumed',
  slept: null,
  emptied: null,
  forgotten: 'ended',
  startFailed: 'failed',
  exited: 'failed',
  restart: 'restarting',
  end: 'stopping',
  removed: 'ended',
  discarded: 'ended',
};

/** Kinds whose changes are published. Jobs publish their own, and builds have no subscribers. */
const PUBLISHED: readonly OwnerKind[] = ['agent', 'function'];

/** Returns the identity of an instance; undefined: its changes are not published. */
export function identityOf(
  { id, owner, tenant }: Pick<StoredInstance, 'id' | 'owner' | 'tenant'>,
  agent?: Pick<AgentIdentity, 'namespace' | 'name'>,
): ChangeIdentity | undefined {
  if (!PUBLISHED.includes(owner.kind)) return undefined;
  return { id, owner, tenant, namespace: agent?.namespace ?? '', name: agent?.name ?? '' };
}

/** Returns the identity of a stored instance that an earlier server left. */
export function storedIdentityOf(stored: Omit<StoredInstance, 'handle'>): ChangeIdentity | undefined {
  return identityOf(stored, stored.owner.kind === 'agent' ? (JSON.parse(stored.spec) as InstanceSpec) : undefined);
}

/** Returns the changes to publish after `event` was written. */
export function changesOf(
  event: LastingEvent | FinalEvent,
  reason: string,
): readonly Pick<InstanceChange, 'kind' | 'reason'>[] {
  const kind = KINDS[event];
  if (kind === null) return [];
  if (event !== 'forgotten') return [{ kind, reason }];
  const ended = { kind, reason: '' };
  // A start that failed without leaving an instance has no other event with its reason.
  return reason === '' ? [ended] : [{ kind: 'failed', reason }, ended];
}

/** Returns true if no other change of the instance follows. */
export function isLast(event: LastingEvent | FinalEvent): boolean {
  return KINDS[event] === 'ended';
}
