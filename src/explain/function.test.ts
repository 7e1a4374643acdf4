import { expect, test } from 'vitest';
import type { FailedCall } from './failures.ts';
import { FUNCTION_RULES, type FunctionFacts } from './function.ts';
import { applyRules } from './rules.ts';

const FN = {
  ...{ functionVersionUrn: 'sn:x', name: '0@demo@hello', versionNumber: '$latest', kind: 'faas' },
  ...{ minInstance: 0, maxInstance: 2, concurrentNum: 1 },
};
const ready = (calls: number) => ({ status: 'ready', running_calls: calls });
const STARTING = { status: 'starting', running_calls: 0 };
const NOW = '2026-01-31T12:00:00Z';
const call = (code: string) =>
  ({ id: 'c-1', error_code: code, error: 'broken', start_time: '2026-01-31T11:59:50Z' }) as FailedCall;

const explain = ({
  fn,
  served,
  calls = [],
}: Partial<Omit<FunctionFacts, 'failed'>> & { readonly calls?: readonly FailedCall[] }) =>
  applyRules(FUNCTION_RULES, {
    fn: { ...FN, ...fn },
    served: { instances: [], ...served },
    failed: { calls, hasMore: false },
    nowMs: Date.parse(NOW),
  });

const IDLE = 'No instance runs, because no call needs one. The next call starts one.';
const failures = (code: string) => `1 call failed in the last hour, the last one 10s ago: ${code}: broken.`;

test.each<[string, Parameters<typeof explain>[0], readonly string[], string | null]>([
  [
    'is for calls and agents, without a minimum',
    { fn: { ...FN, kind: 'agent', minInstance: 2 } },
    [IDLE, 'Agents can be created from it, too.'],
    'rookery function invoke demo@hello',
  ],
  [
    'is only stored',
    { fn: { ...FN, kind: 'yrlib' } },
    ['It is only stored: functions of the kind yrlib take no calls.'],
    null,
  ],
  ['is idle', {}, [IDLE], 'rookery function invoke demo@hello'],
  [
    'waits for its minimum',
    { fn: { ...FN, minInstance: 2 } },
    ['It waits for its minimum of 2 instances: none runs yet.'],
    'rookery wait function demo@hello',
  ],
  [
    'cannot start',
    { served: { instances: [], waiting_calls: 1, warnings: ['the last start of an instance failed: no image'] } },
    ['No instance starts: the last start of an instance failed: no image.', '1 call waits for an instance.'],
    'rookery doctor',
  ],
  [
    'cannot start because its code does not load',
    { served: { instances: [], warnings: ['the last start of an instance failed: x'] }, calls: [call('4001')] },
    [
      'No instance starts: the last start of an instance failed: x.',
      failures('4001'),
      'Calls fail until the code is repaired.',
    ],
    'rookery function update demo@hello --code <directory>',
  ],
  [
    'starts',
    { served: { instances: [STARTING], waiting_calls: 2 } },
    ['1 instance started, but none is ready yet. Calls wait for them.', '2 calls wait for an instance.'],
    'rookery wait function demo@hello',
  ],
  [
    'is ready',
    { served: { instances: [ready(1), ready(0)], waiting_calls: 0 } },
    ['It takes calls: 2 of 2 instances are ready and run 1 call.'],
    null,
  ],
  [
    'is at its limit',
    { served: { instances: [ready(1), ready(1)], waiting_calls: 3 } },
    [
      'It is at its limit: 2 of 2 instances run, each with 1 of 1 calls. Further calls wait.',
      '3 calls wait for an instance.',
    ],
    'rookery function update demo@hello --max 4',
  ],
  [
    'is at its limit of one instance',
    { fn: { ...FN, maxInstance: 1 }, served: { instances: [ready(1)] }, calls: [call('150429')] },
    ['It is at its limit: 1 of 1 instances run, each with 1 of 1 calls. Further calls wait.', failures('150429')],
    'rookery function update demo@hello --max 2',
  ],
  [
    'has reserved instances',
    { served: { instances: [ready(1), ready(1), { ...ready(0), label: 'gold' }] } },
    [
      'It is at its limit: 2 of 2 instances run, each with 1 of 1 calls. Further calls wait.',
      'It has 1 reserved instance in addition, for calls with a label.',
    ],
    'rookery function update demo@hello --max 4',
  ],
  [
    'has no room for another instance',
    { served: { instances: [ready(1)], waiting_calls: 1 } },
    [
      'It takes calls: 1 of 2 instances are ready and run 1 call.',
      '1 call waits for an instance.',
      'No further instance starts now: the machine or the tenant may have no room for one.',
    ],
    'rookery top',
  ],
  [
    'has code that does not load',
    { calls: [call('4001')] },
    [IDLE, failures('4001'), 'Calls fail until the code is repaired.'],
    'rookery function update demo@hello --code <directory>',
  ],
  [
    'has a handler that fails',
    { served: { instances: [ready(0)] }, calls: [call('4002')] },
    ['It takes calls: 1 of 2 instances are ready and run 0 calls.', failures('4002')],
    'rookery explain call c-1',
  ],
])('explain names state, reason and command for a function that %s', (_, facts, sentences, next) => {
  expect(explain(facts)).toEqual({ sentences, next });
});
