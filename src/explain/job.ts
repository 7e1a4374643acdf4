import type { Rule } from './rules.ts';
import { counted, sentence } from './words.ts';

/** The fields of a job's record that its explanation uses. A service of another version may omit some. */
export interface ExplainedJob {
  readonly submission_id: string;
  readonly status: string;
  readonly message: string;
  readonly entrypoint: string;
  readonly error_type: string;
  readonly attempt?: number;
  readonly max_attempts?: number;
  readonly waits_for?: string;
}

const hasStatus = (status: string) => (job: ExplainedJob) => job.status === status;
const isAttempt = ({ attempt = 1, max_attempts: most = 1 }: ExplainedJob) => attempt > 1 || most > 1;
/** Returns the part of a message before the end of the log. */
export const reasonOf = ({ message }: Pick<ExplainedJob, 'message'>) =>
  message.split(/\. No logs available\.|, last available logs/, 1)[0] ?? '';

/** The sentences about a job, and the command that helps. */
export const JOB_RULES: readonly Rule<ExplainedJob>[] = [
  { when: job => job.status === 'PENDING' && job.waits_for === undefined, says: job => sentence(reasonOf(job)) },
  { when: job => job.waits_for !== undefined, says: job => sentence(`It waits for ${job.waits_for}`) },
  {
    when: job => job.status === 'PENDING' && /waiting for resources/.test(job.message),
    says: () => 'It can never start here, because the service does not have what it asks for.',
    next: ({ submission_id: id }) => `rookery job stop ${id}`,
  },
  { when: hasStatus('PENDING'), next: ({ submission_id: id }) => `rookery wait job ${id} --for running` },
  {
    when: hasStatus('RUNNING'),
    says: ({ entrypoint }) => sentence(`Its command runs: ${entrypoint}`),
    next: ({ submission_id: id }) => `rookery job logs -f ${id}`,
  },
  {
    when: hasStatus('SUCCEEDED'),
    says: () => 'Its command ended with exit code 0.',
    next: ({ submission_id: id }) => `rookery job logs ${id}`,
  },
  { when: hasStatus('STOPPED'), says: () => 'A user stopped it.' },
  { when: hasStatus('FAILED'), says: job => sentence(`Reason: ${reasonOf(job)}`) },
  {
    when: ({ error_type: type }) => type === 'RUNTIME_ENV_SETUP_FAILURE',
    says: () => 'Its command never ran, because its packages or files could not be prepared.',
    next: () => 'rookery job submit --pip <requirement> … -- <command>',
  },
  {
    when: ({ error_type: type }) => type === 'JOB_SUPERVISOR_ACTOR_START_FAILURE',
    says: () => 'Its command never ran, because its sandbox could not be started.',
    next: () => 'rookery doctor',
  },
  {
    when: ({ error_type: type }) => type === 'JOB_SUPERVISOR_ACTOR_DIED',
    says: () => 'The service does not know how its command ended.',
  },
  {
    when: ({ status, message }) => status === 'FAILED' && /out of memory/.test(reasonOf({ message })),
    says: () => 'It needed more memory than its limit.',
    next: () => 'rookery job submit --memory <more MiB> … -- <command>',
  },
  {
    when: ({ status, message }) => status === 'FAILED' && /longer than its timeout/.test(message),
    next: () => 'rookery job submit --timeout <longer> … -- <command>',
  },
  {
    when: job => isAttempt(job) && job.status !== 'SUCCEEDED',
    says: ({ attempt, max_attempts: most }) => `This is attempt ${attempt} of ${most}.`,
  },
  {
    when: job => job.status === 'SUCCEEDED' && (job.attempt ?? 1) > 1,
    says: ({ attempt }) => `${counted((attempt ?? 1) - 1, 'attempt')} failed before.`,
  },
  { when: hasStatus('FAILED'), next: ({ submission_id: id }) => `rookery job logs ${id}` },
];
