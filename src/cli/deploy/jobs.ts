import { createHash } from 'node:crypto';
import { type JobRecord, jobPath } from '../job/records.ts';
import { CliError } from '../shared/exit.ts';
import type { DeployedJob } from './file.ts';
import { differences, nothing, type Planning, type Step } from './step.ts';

const SCHEDULES = '/api/job_schedules';

/**
 * Plans the step for a job. With a schedule, the step writes the schedule. Without one, each change submits a
 * run whose id names the change.
 */
export async function planJob(planning: Planning, name: string, job: DeployedJob): Promise<Step> {
  const submission = {
    entrypoint: job.command,
    metadata: job.retries === 0 ? {} : { 'rookery.retries': String(job.retries) },
    runtime_env: {
      ...(job.code === undefined ? {} : { working_dir: await planning.jobDirectory(job.code) }),
      ...(Object.keys(job.env).length === 0 ? {} : { env_vars: job.env }),
      ...(job.pip.length === 0 ? {} : { pip: job.pip }),
    },
  };
  return job.schedule === undefined
    ? await planRun(planning, name, submission)
    : await planSchedule(planning, name, job, submission);
}

async function planRun({ client, rerunsFailed }: Planning, name: string, submission: object): Promise<Step> {
  const hash = createHash('sha256').update(JSON.stringify(submission)).digest('hex').slice(0, 12);
  const id = `${name}-${hash}`;
  const step = { kind: 'job', name, changes: [] } as const;
  const found = (await orNull(client.json('GET', jobPath(id)))) as JobRecord | null;
  const submit = async () => {
    const body = JSON.stringify({ ...submission, submission_id: id });
    return String((await client.json('POST', '/api/jobs/', { body })).submission_id);
  };
  if (found === null) return { ...step, action: 'create', apply: submit };
  if (found.status !== 'FAILED') return { ...step, action: 'unchanged', apply: nothing };
  const changes = [
    `it FAILED: ${found.driver_exit_code === null ? found.message : `exit code ${found.driver_exit_code}`}`,
  ];
  if (!rerunsFailed)
    return {
      ...{ ...step, action: 'unchanged', changes, isFailed: true },
      apply: async () => 'rookery deploy --rerun-failed runs it again',
    };
  return {
    ...{ ...step, action: 'replace', changes },
    async apply() {
      await client.json('DELETE', jobPath(id));
      return await submit();
    },
  };
}

async function planSchedule({ client }: Planning, name: string, job: DeployedJob, submission: object): Promise<Step> {
  const wanted = {
    cron: job.schedule,
    timezone: job.timezone,
    overlap: job.mayOverlap ? 'allow' : 'skip',
    job: submission,
  };
  const path = `${SCHEDULES}/${encodeURIComponent(name)}`;
  const put = async () => {
    await client.json('PUT', path, { body: JSON.stringify(wanted) });
    return `${job.schedule} ${job.timezone}`;
  };
  const step = { kind: 'job', name } as const;
  const found = await orNull(client.json('GET', path));
  if (found === null) return { ...step, action: 'create', changes: [], apply: put };
  const { changes, hidden } = differences(wanted, found);
  if (changes.length === 0 && hidden.length === 0) return { ...step, action: 'unchanged', changes, apply: nothing };
  return {
    ...step,
    action: 'replace',
    changes,
    hidden,
    async apply() {
      try {
        return await put();
      } catch (error) {
        // Without a refusal, the result is unknown.
        if (!(error instanceof CliError) || error.status === null || error.status >= 500) throw error;
        const sentence = `the former schedule stays in force; the new one failed: ${error.message}`;
        throw new CliError(sentence, error.exitCode, error.status);
      }
    },
  };
}

async function orNull(asked: Promise<Record<string, unknown>>): Promise<Record<string, unknown> | null> {
  try {
    return await asked;
  } catch (error) {
    if (error instanceof CliError && error.status === 404) return null;
    throw error;
  }
}
