import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { type InstanceEvent, type InstanceState, isAllowed, transitionOf } from './state.ts';

const EVENTS = [
  'started',
  'forgotten',
  'startFailed',
  'slept',
  'emptied',
  'exited',
  'restart',
  'end',
  'removed',
  'discarded',
] as const satisfies InstanceEvent[];
const STATES = ['CREATING', 'RUNNING', 'SLEEPING', 'STOPPING', 'FAILED', 'GONE'] as const satisfies InstanceState[];

const ALLOWED: Partial<Record<InstanceState, Partial<Record<InstanceEvent, InstanceState>>>> = {
  CREATING: { started: 'RUNNING', forgotten: 'GONE', startFailed: 'FAILED', end: 'STOPPING' },
  RUNNING: { slept: 'SLEEPING', exited: 'FAILED', restart: 'CREATING', end: 'STOPPING', discarded: 'GONE' },
  SLEEPING: { emptied: 'SLEEPING', restart: 'CREATING', end: 'STOPPING', discarded: 'GONE' },
  FAILED: { restart: 'CREATING', end: 'STOPPING', discarded: 'GONE' },
  STOPPING: { removed: 'GONE', discarded: 'GONE' },
};

describe.each(STATES)('an instance in state %s', state => {
  test.each(EVENTS)('event %s leads to the expected state or is refused', event => {
    const to = ALLOWED[state]?.[event];
    expect(isAllowed(state, event)).toBe(to !== undefined);
    if (to !== undefined) expect(transitionOf(event).to).toBe(to);
  });
});

test('random events lead only to allowed states, and no event is allowed in state GONE', () => {
  fc.assert(
    fc.property(fc.array(fc.constantFrom(...EVENTS), { maxLength: 50 }), events => {
      let state: InstanceState = 'CREATING';
      for (const event of events) {
        if (!isAllowed(state, event)) continue;
        expect(state).not.toBe('GONE');
        expect(ALLOWED[state]).toHaveProperty(event);
        state = transitionOf(event).to;
        expect(STATES).toContain(state);
      }
    }),
  );
});

test('event end is allowed in CREATING, RUNNING, SLEEPING and FAILED only', () => {
  expect(STATES.filter(state => isAllowed(state, 'end'))).toEqual(['CREATING', 'RUNNING', 'SLEEPING', 'FAILED']);
});
