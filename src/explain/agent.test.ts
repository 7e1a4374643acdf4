import { expect, test } from 'vitest';
import { AGENT_RULES, type ExplainedAgent } from './agent.ts';
import type { FailedCall } from './failures.ts';
import { applyRules } from './rules.ts';

const NOW = '2026-01-31T12:00:00Z';
const AGENT: ExplainedAgent = {
  instance_id: 'i-1',
  namespace: 'default',
  name: 'hello',
  status: 'RUNNING',
  restarts: 0,
};
const CALL = { id: 'c-1', error_code: '4002', error: 'ValueError: broken\nmore', start_time: '2026-01-31T11:59:50Z' };

const explain = (agent: Partial<ExplainedAgent>, calls: readonly object[] = [], hasMore = false) =>
  applyRules(AGENT_RULES, {
    agent: { ...AGENT, ...agent },
    failed: { calls: calls as readonly FailedCall[], hasMore },
    nowMs: Date.parse(NOW),
  });

test.each<[string, Partial<ExplainedAgent>, readonly string[], string | null]>([
  ['runs', {}, ['Its code is loaded, and it takes calls.'], null],
  [
    'starts',
    { status: 'CREATING' },
    ['It starts: it waits for its sandbox, its code and its initializer.'],
    'rookery wait agent hello',
  ],
  [
    'starts again',
    { status: 'CREATING', restarts: 1 },
    ['It starts again: it waits for its new sandbox, its code and its initializer.', 'It was restarted once.'],
    'rookery wait agent hello',
  ],
  [
    'failed without a policy',
    { status: 'FAILED', status_reason: 'instance exited: exit code 7' },
    ['Reason: instance exited: exit code 7.', 'Nothing starts it again, because it has no restart policy.'],
    'rookery agent restart hello',
  ],
  [
    'failed with the policy never',
    { status: 'FAILED', status_reason: 'x', restart_policy: { policy: 'never' } },
    ['Reason: x.', 'Nothing starts it again, because it has no restart policy.'],
    'rookery agent restart hello',
  ],
  [
    'failed and waits for its policy',
    {
      ...{ status: 'FAILED', status_reason: 'instance exited: signal SIGKILL', restarts: 2 },
      restart_policy: { policy: 'on-failure', max_restarts: 3 },
      restart_at: '2026-01-31T12:00:09.123Z',
    },
    [
      'Reason: instance exited: signal SIGKILL.',
      'It waits for its restart policy (on-failure, at most 3 in a row), which starts it again at 2026-01-31T12:00:09Z.',
      'It was restarted 2 times.',
    ],
    'rookery agent logs hello',
  ],
  [
    'failed for good in spite of a policy',
    { status: 'FAILED', status_reason: 'instance exited: exit code 0', restart_policy: { policy: 'on-failure' } },
    ['Reason: instance exited: exit code 0.', 'Its restart policy (on-failure) does not start it again.'],
    'rookery agent restart hello',
  ],
  [
    'failed for want of memory',
    {
      ...{ status: 'FAILED', status_reason: 'instance exited: signal SIGKILL (out of memory)' },
      resources: { memory: 64 },
    },
    [
      'Reason: instance exited: signal SIGKILL (out of memory).',
      'It needed more memory than its limit of 64 MB.',
      'Nothing starts it again, because it has no restart policy.',
    ],
    'rookery agent create hello … --replace --memory <more MB>',
  ],
  [
    'has code that does not load',
    { load_error: 'No module named x' },
    [
      'Its sandbox runs, but its code could not be loaded: No module named x.',
      'Every call fails with this until the code is repaired and the agent is started again.',
    ],
    'rookery agent restart hello',
  ],
  [
    'may have ended',
    { status_reason: 'docker does not answer' },
    ['The service cannot tell whether it still runs: docker does not answer.'],
    'rookery doctor',
  ],
  [
    'is paused',
    { status: 'PAUSED', expires_at: '2026-01-31T13:00:00Z', on_expiry: 'delete' },
    [
      'Its processes are frozen and keep their memory. It waits for a resume, and calls fail until then.',
      'Its time to live ends at 2026-01-31T13:00:00Z; then the service deletes it.',
    ],
    'rookery agent resume hello',
  ],
  [
    'sleeps',
    { status: 'SLEEPING' },
    ['It has no sandbox. Its next call starts it with its saved state.'],
    'rookery agent wake hello',
  ],
  [
    'is being deleted',
    { status: 'STOPPING', namespace: 'a b' },
    ['It is being deleted: it waits for its pre_stop and for the end of its processes.'],
    "rookery wait agent hello -n 'a b' --for deleted",
  ],
  [
    'expires and is paused then',
    { expires_at: '2026-01-31T13:00:00.5Z', on_expiry: 'pause' },
    [
      'Its code is loaded, and it takes calls.',
      'Its time to live ends at 2026-01-31T13:00:00Z; then the service pauses it.',
    ],
    null,
  ],
])('explain names state, reason and command for an agent that %s', (_, agent, sentences, next) => {
  expect(explain(agent)).toEqual({ sentences, next });
});

test.each([
  [[CALL], false, '1 call failed in the last hour, the last one 10s ago: 4002: ValueError: broken.'],
  [[CALL, CALL], true, 'More than 2 calls failed in the last hour, the last one 10s ago: 4002: ValueError: broken.'],
  [[{ ...CALL, error: undefined }], false, '1 call failed in the last hour, the last one 10s ago: 4002.'],
])(
  'explain counts the calls of an agent that failed lately and names the last one (%#)',
  (calls, hasMore, sentence) => {
    expect(explain({}, calls, hasMore)).toEqual({
      sentences: ['Its code is loaded, and it takes calls.', sentence],
      next: 'rookery explain call c-1',
    });
  },
);

test('the command for an agent without a name has its id', () => {
  expect(explain({ name: '', status: 'SLEEPING' }).next).toBe('rookery agent wake i-1');
});
