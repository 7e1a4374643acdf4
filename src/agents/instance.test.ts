import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { type InstanceEvent, type InstanceState, isAllowed, transitionOf } from './instance.ts';

const EVENTS = [
  'started',
  'createFailed',
  'restartFailed',
  'exited',
  'restart',
  'delete',
  'removed',
] as const satisfies InstanceEvent[];
const STATES = ['CREATING', 'RUNNING', 'STOPPING', 'FAILED', 'GONE'] as const satisfies InstanceState[];

const ALLOWED: Partial<Record<InstanceState, Partial<Record<InstanceEvent, InstanceState>>>> = {
  CREATING: { started: 'RUNNING', createFailed: 'GONE', restartFailed: 'FAILED', delete: 'STOPPING' },
  RUNNING: { exited: 'FAILED', restart: 'CREATING', delete: 'STOPPING' },
  FAILED: { restart: 'CREATING', delete: 'STOPPING' },
  STOPPING: { removed: 'GONE' },
};

describe.each(STATES)('an instance that is %s', state => {
  test.each(EVENTS)('%s', event => {
    const to = ALLOWED[state]?.[event];
    expect(isAllowed(state, event)).toBe(to !== undefined);
    if (to !== undefined) expect(transitionOf(event).to).toBe(to);
  });
});

test('random events never lead out of the allowed states, and nothing follows GONE', () => {
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

test('an instance can be deleted in every state but while it is already going', () => {
  expect(STATES.filter(state => isAllowed(state, 'delete'))).toEqual(['CREATING', 'RUNNING', 'FAILED']);
});
