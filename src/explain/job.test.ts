import { expect, test } from 'vitest';
import { type ExplainedJob, JOB_RULES } from './job.ts';
import { applyRules } from './rules.ts';

const NOT_STARTED = 'Job has not started yet.';
const JOB: ExplainedJob = {
  ...{ submission_id: 'j-1', status: 'RUNNING', message: 'Job is currently running.', entrypoint: 'python a.py' },
  ...{ error_type: '', start_time: '0', end_time: null, driver_exit_code: null, driver_info: { pid: '' } },
  ...{ metadata: {}, runtime_env: {}, attempt: 1, max_attempts: 1 },
};
const failed = (errorType: string, message: string) => ({ status: 'FAILED', error_type: errorType, message });

test.each<[string, Partial<ExplainedJob>, readonly string[], string | null]>([
  ['runs', {}, ['Its command runs: python a.py.'], 'rookery job logs -f j-1'],
  [
    'runs again',
    { attempt: 2, max_attempts: 3 },
    ['Its command runs: python a.py.', 'This is attempt 2 of 3.'],
    'rookery job logs -f j-1',
  ],
  ['waits', { status: 'PENDING', message: NOT_STARTED }, [NOT_STARTED], 'rookery wait job j-1 --for running'],
  [
    'waits for room',
    { status: 'PENDING', message: NOT_STARTED, waits_for: '2 free CPUs of the 4 for jobs' },
    ['It waits for 2 free CPUs of the 4 for jobs.'],
    'rookery wait job j-1 --for running',
  ],
  [
    'can never start',
    {
      status: 'PENDING',
      message: `${NOT_STARTED} It is waiting for resources (CPUs) to become available: it asks for 9 CPUs, and there are 2.`,
    },
    [
      `${NOT_STARTED} It is waiting for resources (CPUs) to become available: it asks for 9 CPUs, and there are 2.`,
      'It can never start here, because the service does not have what it asks for.',
    ],
    'rookery job stop j-1',
  ],
  [
    'waits for its next attempt',
    {
      ...{ status: 'PENDING', attempt: 2, max_attempts: 3 },
      message:
        'Attempt 1 of 3 failed; the next one starts in 1000 ms. Job entrypoint command failed with exit code 3. No logs available.',
    },
    [
      'Attempt 1 of 3 failed; the next one starts in 1000 ms. Job entrypoint command failed with exit code 3.',
      'This is attempt 2 of 3.',
    ],
    'rookery wait job j-1 --for running',
  ],
  ['succeeded', { status: 'SUCCEEDED' }, ['Its command ended with exit code 0.'], 'rookery job logs j-1'],
  [
    'succeeded after failed attempts',
    { status: 'SUCCEEDED', attempt: 3, max_attempts: 3 },
    ['Its command ended with exit code 0.', '2 attempts failed before.'],
    'rookery job logs j-1',
  ],
  ['was stopped', { status: 'STOPPED' }, ['A user stopped it.'], null],
  [
    'failed with a log',
    failed(
      'JOB_ENTRYPOINT_COMMAND_ERROR',
      'Job entrypoint command failed with exit code 3, last available logs (truncated to 20,000 chars):\nout of memory',
    ),
    ['Reason: Job entrypoint command failed with exit code 3.'],
    'rookery job logs j-1',
  ],
  [
    'failed for want of memory',
    failed(
      'JOB_ENTRYPOINT_COMMAND_ERROR',
      'Job entrypoint command failed with exit code -9 (signal SIGKILL (out of memory)). No logs available.',
    ),
    [
      'Reason: Job entrypoint command failed with exit code -9 (signal SIGKILL (out of memory)).',
      'It needed more memory than its limit.',
    ],
    'rookery job submit --memory <more MiB> … -- <command>',
  ],
  [
    'ran into its timeout',
    failed('JOB_ENTRYPOINT_COMMAND_ERROR', 'Job was stopped because it ran longer than its timeout of 5 ms.'),
    ['Reason: Job was stopped because it ran longer than its timeout of 5 ms.'],
    'rookery job submit --timeout <longer> … -- <command>',
  ],
  [
    'could not be prepared',
    failed('RUNTIME_ENV_SETUP_FAILURE', 'runtime_env setup failed: no such package'),
    [
      'Reason: runtime_env setup failed: no such package.',
      'Its command never ran, because its packages or files could not be prepared.',
    ],
    'rookery job submit --pip <requirement> … -- <command>',
  ],
  [
    'could not be started',
    failed('JOB_SUPERVISOR_ACTOR_START_FAILURE', 'Job could not be started: no runtime'),
    [
      'Reason: Job could not be started: no runtime.',
      'Its command never ran, because its sandbox could not be started.',
    ],
    'rookery doctor',
  ],
  [
    'ended with an unknown result',
    failed('JOB_SUPERVISOR_ACTOR_DIED', 'Job has ended with an unknown result: its sandbox does not exist.'),
    [
      'Reason: Job has ended with an unknown result: its sandbox does not exist.',
      'The service does not know how its command ended.',
    ],
    'rookery job logs j-1',
  ],
])('explain names reason and command for a job that %s', (_, job, sentences, next) => {
  expect(applyRules(JOB_RULES, { ...JOB, ...job })).toEqual({ sentences, next });
});
