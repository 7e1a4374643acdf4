import type { InstanceStatus } from '../core/instance.ts';

/**
 * Transitions of an instance: the states in which an event may happen, and the state that follows. The same
 * table guards the database: `from` is the condition of the write, so that one of two concurrent events wins.
 */
export type InstanceEvent =
  /** The sandbox runs. */
  | 'started'
  /** The first start failed or was interrupted by the end of the server; no client received the id. */
  | 'forgotten'
  /** A later start failed or was interrupted by the end of the server. */
  | 'startFailed'
  /** The processes of the sandbox stand still, or are about to. */
  | 'paused'
  | 'resumed'
  /** The instance sleeps, and its sandbox is about to be removed. */
  | 'slept'
  /** The sandbox of a sleeping instance is removed. */
  | 'emptied'
  /** The sandbox ended by itself or is unreachable. */
  | 'exited'
  /** The instance gets another sandbox, with the next epoch. */
  | 'restart'
  | 'end'
  /** The sandbox and its residue are removed. */
  | 'removed'
  /** The owner needs neither the instance nor a record of its end, and the sandbox is removed. */
  | 'discarded';

export type InstanceState = InstanceStatus | 'GONE';

const TRANSITIONS = {
  started: { from: ['CREATING'], to: 'RUNNING' },
  forgotten: { from: ['CREATING'], to: 'GONE' },
  startFailed: { from: ['CREATING'], to: 'FAILED' },
  paused: { from: ['RUNNING'], to: 'PAUSED' },
  resumed: { from: ['PAUSED'], to: 'RUNNING' },
  slept: { from: ['RUNNING', 'PAUSED'], to: 'SLEEPING' },
  emptied: { from: ['SLEEPING'], to: 'SLEEPING' },
  exited: { from: ['RUNNING', 'PAUSED'], to: 'FAILED' },
  restart: { from: ['RUNNING', 'PAUSED', 'SLEEPING', 'FAILED'], to: 'CREATING' },
  end: { from: ['CREATING', 'RUNNING', 'PAUSED', 'SLEEPING', 'FAILED'], to: 'STOPPING' },
  removed: { from: ['STOPPING'], to: 'GONE' },
  discarded: { from: ['RUNNING', 'SLEEPING', 'FAILED', 'STOPPING'], to: 'GONE' },
} as const satisfies Record<InstanceEvent, { from: readonly InstanceStatus[]; to: InstanceState }>;

export type LastingEvent = Exclude<InstanceEvent, FinalEvent>;
/** Events after which the instance no longer exists. */
export type FinalEvent = 'forgotten' | 'removed' | 'discarded';

export function transitionOf<E extends InstanceEvent>(event: E): (typeof TRANSITIONS)[E] {
  return TRANSITIONS[event];
}

/**
 * Returns true if `event` may happen in `state`. Where a race matters, the write checks the condition again.
 */
export function isAllowed(state: InstanceState, event: InstanceEvent): boolean {
  return (TRANSITIONS[event].from as readonly InstanceState[]).includes(state);
}
