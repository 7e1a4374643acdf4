/** States of each kind to wait for, the default first, and the events that report them. */
export const WAITS = {
  agent: {
    states: ['running', 'failed', 'creating', 'stopping', 'deleted'],
    events: ['created', 'ready', 'paused', 'resumed', 'failed', 'restarting', 'stopping', 'ended'],
  },
  function: {
    states: ['ready', 'idle', 'registered', 'deleted'],
    events: ['created', 'ready', 'failed', 'ended', 'scaled'],
  },
  job: { states: ['succeeded', 'failed', 'stopped', 'over', 'running'], events: ['job'] },
} as const;

export type WaitKind = keyof typeof WAITS;
