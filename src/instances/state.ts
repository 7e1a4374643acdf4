import type { InstanceStatus } from '../core/instance.ts';

/**
 * The life of an instance as a table: what may happen to it, in which states, and where that leads. The same table
 * guards the database (`from` is the condition of the write), so that of two events at the same moment one wins.
 */
export type InstanceEvent =
  /** Its sandbox runs. */
  | 'started'
  /** Its first start failed, or the server ended in the middle of it: nobody learned of it. */
  | 'forgotten'
  /** A later start failed, or the server ended in the middle of it. */
  | 'startFailed'
  /** The sandbox ended by itself, or cannot be reached any more. */
  | 'exited'
  /** It gets another sandbox: its next epoch begins. */
  | 'restart'
  | 'end'
  /** Nothing of it is left. */
  | 'removed'
  /** Its owner needs neither it nor a record of its end, and nothing of it is left. */
  | 'discarded';

export type InstanceState = InstanceStatus | 'GONE';

const TRANSITIONS = {
  started: { from: ['CREATING'], to: 'RUNNING' },
  forgotten: { from: ['CREATING'], to: 'GONE' },
  startFailed: { from: ['CREATING'], to: 'FAILED' },
  exited: { from: ['RUNNING'], to: 'FAILED' },
  restart: { from: ['RUNNING', 'FAILED'], to: 'CREATING' },
  end: { from: ['CREATING', 'RUNNING', 'FAILED'], to: 'STOPPING' },
  removed: { from: ['STOPPING'], to: 'GONE' },
  discarded: { from: ['RUNNING', 'FAILED', 'STOPPING'], to: 'GONE' },
} as const satisfies Record<InstanceEvent, { from: readonly InstanceStatus[]; to: InstanceState }>;

export type LastingEvent = Exclude<InstanceEvent, FinalEvent>;
/** Events after which there is no instance. */
export type FinalEvent = 'forgotten' | 'removed' | 'discarded';

export function transitionOf<E extends InstanceEvent>(event: E): (typeof TRANSITIONS)[E] {
  return TRANSITIONS[event];
}

/** Whether `event` may happen in `state`. Where it matters storage asks again, in the write itself. */
export function isAllowed(state: InstanceState, event: InstanceEvent): boolean {
  return (TRANSITIONS[event].from as readonly InstanceState[]).includes(state);
}
