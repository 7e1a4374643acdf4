import type { InstanceStatus } from '../core/instance.ts';

/**
 * The life of an instance as a table: what may happen to it, in which states, and where that leads. The same table
 * guards the database (`from` is the condition of the write), so that of two events at the same moment one wins.
 */
export type InstanceEvent =
  /** Its sandbox runs and its runtime was initialized. */
  | 'started'
  /** The create failed, or the server ended in the middle of it: nobody was told of it. */
  | 'createFailed'
  /** A restart failed, or the server ended in the middle of it. */
  | 'restartFailed'
  /** The sandbox ended by itself, or cannot be reached any more. */
  | 'exited'
  | 'restart'
  | 'delete'
  /** Nothing of it is left. */
  | 'removed';

export type InstanceState = InstanceStatus | 'GONE';

const TRANSITIONS = {
  started: { from: ['CREATING'], to: 'RUNNING' },
  createFailed: { from: ['CREATING'], to: 'GONE' },
  restartFailed: { from: ['CREATING'], to: 'FAILED' },
  exited: { from: ['RUNNING'], to: 'FAILED' },
  restart: { from: ['RUNNING', 'FAILED'], to: 'CREATING' },
  delete: { from: ['CREATING', 'RUNNING', 'FAILED'], to: 'STOPPING' },
  removed: { from: ['STOPPING'], to: 'GONE' },
} as const satisfies Record<InstanceEvent, { from: readonly InstanceStatus[]; to: InstanceState }>;

export type LastingEvent = Exclude<InstanceEvent, FinalEvent>;
/** Events after which there is no instance. */
export type FinalEvent = 'createFailed' | 'removed';

export function transitionOf<E extends InstanceEvent>(event: E): (typeof TRANSITIONS)[E] {
  return TRANSITIONS[event];
}

/** Whether `event` may happen in `state`. Where it matters storage asks again, in the write itself. */
export function isAllowed(state: InstanceState, event: InstanceEvent): boolean {
  return (TRANSITIONS[event].from as readonly InstanceState[]).includes(state);
}
