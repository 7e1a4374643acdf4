import { describe, expect, test } from 'vitest';
import { AGENT_CREATE } from './agent.ts';
import { failAtFirst } from './json.ts';
import { LIMITS } from './limits.ts';
import { type End, nextRestart, type RestartPolicy, shownPolicy } from './restart-policy.ts';

const read = (restart_policy: unknown) =>
  AGENT_CREATE.read({ namespace: 'n', name: 'a', urn: 'u', restart_policy }, '', failAtFirst)?.restart_policy;

describe('restart policy of a create', () => {
  test.each([
    ['never', { policy: 'never' }],
    ['on-failure', { policy: 'on-failure', max_restarts: 5, backoff_seconds: 1 }],
    ['always', { policy: 'always', max_restarts: null, backoff_seconds: 1 }],
    [
      { policy: 'on-failure', max_restarts: 2, backoff_seconds: 0.5 },
      { policy: 'on-failure', max_restarts: 2, backoff_seconds: 0.5 },
    ],
    [
      { policy: 'always', max_restarts: 7 },
      { policy: 'always', max_restarts: 7, backoff_seconds: 1 },
    ],
  ])('a restart policy is accepted as a word or an object: %j', (given, shown) => {
    expect(shownPolicy(read(given) as RestartPolicy)).toEqual(shown);
  });

  test('the restart policy is undefined when the request has none', () => {
    expect([read(undefined), read(null)]).toEqual([undefined, undefined]);
  });

  test.each([
    ['sometimes', 'restart_policy must be one of'],
    [{}, 'restart_policy.policy is required'],
    [{ policy: 'always', max_restarts: 0 }, 'restart_policy.max_restarts must be between 1 and'],
    [{ policy: 'always', backoff_seconds: 0 }, 'restart_policy.backoff_seconds must be between 0.1 and'],
    [5, 'restart_policy must be an object'],
  ])('a restart policy is refused when it is invalid: %j', (given, text) => {
    expect(() => read(given)).toThrow(text);
  });
});

describe('nextRestart', () => {
  const policy = (change: Partial<RestartPolicy> = {}): RestartPolicy => ({
    ...{ policy: 'on-failure', maxRestarts: 3, backoffMs: 1000 },
    ...change,
  });
  const end = (change: Partial<End> = {}): End => ({ exitCode: 1, ranMs: 10, restartsInRow: 0, ...change });

  test('nextRestart returns null without a policy and for policy never', () => {
    expect(nextRestart(undefined, end())).toBeNull();
    expect(nextRestart(policy({ policy: 'never' }), end())).toBeNull();
  });

  test('nextRestart plans a restart after exit code 0 with policy always, and not with on-failure', () => {
    expect(nextRestart(policy(), end({ exitCode: 0 }))).toBeNull();
    expect(nextRestart(policy({ policy: 'always' }), end({ exitCode: 0 }))).toMatchObject({ inRow: 1 });
  });

  test('nextRestart treats an unknown exit code as a failure', () => {
    expect(nextRestart(policy(), end({ exitCode: null }))).toMatchObject({ inRow: 1 });
  });

  test('nextRestart doubles the pause with each restart in a row, up to the limit', () => {
    const always = policy({ policy: 'always', maxRestarts: null });
    const pauses = [0, 1, 2, 3, 20, 5000].map(restartsInRow => nextRestart(always, end({ restartsInRow })));
    const longest = LIMITS.longestRestartPauseMs;
    expect(pauses.map(next => (next as { pauseMs: number }).pauseMs)).toEqual([
      1000,
      2000,
      4000,
      8000,
      longest,
      longest,
    ]);
  });

  test('nextRestart returns "enough" when the agent has restarted max_restarts times in a row', () => {
    expect(nextRestart(policy(), end({ restartsInRow: 2 }))).toMatchObject({ inRow: 3 });
    expect(nextRestart(policy(), end({ restartsInRow: 3 }))).toBe('enough');
  });

  test('nextRestart starts counting again when the agent has run for the reset time', () => {
    const ranMs = LIMITS.restartResetMs;
    expect(nextRestart(policy(), end({ restartsInRow: 3, ranMs }))).toEqual({ inRow: 1, pauseMs: 1000 });
  });
});
