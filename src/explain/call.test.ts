import { expect, test } from 'vitest';
import { CALL_RULES, type ExplainedCall } from './call.ts';
import { applyRules } from './rules.ts';

const CALL: ExplainedCall = {
  ...{ id: 'c-1', kind: 'function', function: '0@demo@hello', version: 'v1', instance_id: 'i-1', mode: 'sync' },
  ...{
    caller: '',
    parent_id: null,
    trace_id: 't',
    outcome: 'error',
    error_code: null,
    start_time: '2026-01-31T12:00:00.5Z',
  },
  ...{
    duration_ms: 12,
    queue_ms: 0,
    place_ms: 0,
    start_ms: 0,
    load_ms: 0,
    run_ms: 12,
    input_bytes: 2,
    output_bytes: 0,
  },
};
const AGENT = { kind: 'agent', name: 'team/hello', agent_id: 'a-1' } as const;
const failure = (code: string) => `It started at 2026-01-31T12:00:00Z and failed after 12.0ms with ${code}: broken.`;
const SUCCESS = 'It started at 2026-01-31T12:00:00Z and succeeded after';

test.each<[string, Partial<ExplainedCall>, readonly string[], string]>([
  ['succeeded', { outcome: 'ok' }, [`${SUCCESS} 12.0ms.`], 'rookery call show c-1'],
  [
    'succeeded after a long wait',
    { outcome: 'ok', duration_ms: 3000, queue_ms: 2500, run_ms: 500 },
    [`${SUCCESS} 3.00s.`, '2.50s of this went by while it waited for a free instance, or for earlier calls.'],
    'rookery call show c-1',
  ],
  [
    'succeeded after a long start',
    { outcome: 'ok', duration_ms: 3000, start_ms: 1600, run_ms: 1400 },
    [`${SUCCESS} 3.00s.`, '1.60s of this went by while a new instance started.'],
    'rookery call show c-1',
  ],
  [
    'failed in its handler',
    { error_code: '4002', error: 'broken' },
    [failure('4002'), 'The handler raised, or an HTTP program answered invalid HTTP.'],
    'rookery call replay c-1 --code <repaired directory>',
  ],
  [
    'failed because the code does not load',
    { error_code: '4001', error: 'broken' },
    [failure('4001'), 'The entry cannot be loaded: its folder, module or symbol is missing, or it does not compile.'],
    'rookery function update demo@hello --code <directory>',
  ],
  [
    'failed because an agent did not load',
    { ...AGENT, error_code: '4201', error: 'broken' },
    [failure('4201'), 'The initializer failed, or there is no handler: empty user call code.'],
    'rookery explain agent hello -n team',
  ],
  [
    'found a full queue',
    { error_code: '150429', error: 'broken' },
    [failure('150429'), 'The queue is full, and the function has its maximum of instances.'],
    'rookery explain function demo@hello',
  ],
  [
    'found a full machine',
    { error_code: '150510', error: 'broken' },
    [
      failure('150510'),
      'The queue is full, and the machine or the tenant has no capacity for another instance; or the memory for the bodies of open calls is full.',
    ],
    'rookery top',
  ],
  [
    'timed out in a function',
    { error_code: '4010', error: 'broken' },
    [failure('4010'), 'The call timed out.'],
    'rookery function update demo@hello --timeout <longer>',
  ],
  [
    'timed out in an agent',
    { ...AGENT, error_code: 'deadline_exceeded', error: 'broken' },
    [failure('deadline_exceeded'), 'The call ran longer than its time limit.'],
    'rookery agent invoke hello -n team --timeout <longer> …',
  ],
  [
    'lost its agent',
    { ...AGENT, name: '', error_code: 'unavailable', error: 'broken' },
    [failure('unavailable'), 'The sandbox ended, or the service could not reach it.'],
    'rookery explain agent a-1',
  ],
  [
    'was cancelled',
    { error_code: 'cancelled', error: 'broken' },
    [failure('cancelled'), 'The client left before the answer.'],
    'rookery explain function demo@hello',
  ],
  [
    'failed with a word without a meaning, for a viewer',
    { error_code: 'internal' },
    ['It started at 2026-01-31T12:00:00Z and failed after 12.0ms with internal.'],
    'rookery explain function demo@hello',
  ],
])('explain names time, reason and command for a call that %s', (_, call, sentences, next) => {
  expect(applyRules(CALL_RULES, { ...CALL, ...call })).toEqual({ sentences, next });
});
