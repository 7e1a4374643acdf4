import { JOB_STATUSES } from '../../core/job.ts';
import type { ExplainedJob } from '../../explain/job.ts';
import { age } from '../../lib/age.ts';
import { Client, type ClientOptions } from '../shared/client.ts';
import { CliError, usageError } from '../shared/exit.ts';
import { followLog } from '../shared/followed-log.ts';
import { type Io, pump } from '../shared/io.ts';
import { oneOf, printFields, printJson, printTable } from '../shared/print.ts';
import { printList, type WatchOptions } from '../wait/watched-list.ts';

/** A record of `GET /api/jobs/{id}`. */
export interface JobRecord extends ExplainedJob {
  readonly start_time: string;
  readonly end_time: string | null;
  readonly driver_exit_code: number | null;
  readonly driver_info: { readonly pid: string };
  readonly metadata: Readonly<Record<string, string>>;
  readonly runtime_env: Readonly<Record<string, unknown>>;
  readonly run_time?: string | null;
}

export function jobPath(id: string): string {
  return `/api/jobs/${encodeURIComponent(id)}`;
}

export async function listJobs(
  io: Io,
  options: WatchOptions & { readonly status?: string; readonly json?: boolean; readonly quiet?: boolean },
): Promise<void> {
  const { status } = options;
  if (status !== undefined && !JOB_STATUSES.some(each => each === status)) {
    throw usageError(`--status must be ${oneOf(JOB_STATUSES)}, not ${JSON.stringify(status)}.`);
  }
  await printList(io, options, ['job'], (out, client) => printJobs(out, client, options));
}

async function printJobs(
  io: Io,
  client: Client,
  options: { readonly status?: string; readonly json?: boolean; readonly quiet?: boolean },
): Promise<readonly JobRecord[]> {
  const all = JSON.parse(await client.text('GET', '/api/jobs')) as readonly JobRecord[];
  const jobs = options.status === undefined ? all : all.filter(({ status }) => status === options.status);
  if (options.json === true) printJson(io, jobs);
  else if (options.quiet === true) for (const job of jobs) io.out.write(`${job.submission_id}\n`);
  else {
    printTable(io, JOB_COLUMNS, jobs);
    if (all.length === 0) io.err.write('There is no job yet. "rookery job submit --help" shows how to make one.\n');
  }
  return jobs;
}

const JOB_COLUMNS = [
  { title: 'ID', text: (job: JobRecord) => job.submission_id },
  { title: 'STATUS', text: (job: JobRecord) => job.status, style: statusStyle },
  { title: 'EXIT', text: (job: JobRecord) => (job.driver_exit_code === null ? '-' : String(job.driver_exit_code)) },
  { title: 'AGE', text: (job: JobRecord) => age(momentOf(job.start_time)) },
  { title: 'COMMAND', text: (job: JobRecord) => job.entrypoint, isFlexible: true },
];

function statusStyle({ status }: JobRecord): 'green' | 'yellow' | 'red' {
  if (status === 'FAILED') return 'red';
  return status === 'SUCCEEDED' ? 'green' : 'yellow';
}

export async function getJob(io: Io, id: string, options: ClientOptions & { readonly json?: boolean }): Promise<void> {
  const client = await Client.open(options, io);
  const job = (await client.json('GET', jobPath(id))) as unknown as JobRecord;
  if (options.json === true) {
    printJson(io, job);
    return;
  }
  printFields(io, [
    ['id', job.submission_id],
    ['status', job.status],
    ['message', job.message],
    ['error', job.error_type],
    ['command', job.entrypoint],
    ['exit code', job.driver_exit_code ?? undefined],
    ['attempt', job.max_attempts === 1 ? undefined : `${job.attempt} of ${job.max_attempts}`],
    ['submitted', momentOf(job.start_time)],
    ['ended', job.end_time === null ? undefined : momentOf(job.end_time)],
    ['process', job.driver_info.pid],
    ...Object.entries(job.metadata).map(([key, value]) => ['metadata', `${key}=${value}`] as const),
    ['environment', Object.keys(job.runtime_env).length === 0 ? undefined : JSON.stringify(job.runtime_env)],
  ]);
}

export async function printJobLog(
  io: Io,
  id: string,
  options: ClientOptions & { readonly follow?: boolean },
): Promise<void> {
  const client = await Client.open(options, io);
  if (options.follow === true) await printFollowedLog(io, client, id);
  else io.out.write(String((await client.json('GET', `${jobPath(id)}/logs`)).logs));
}

/** Prints the log until the job has ended or the user interrupts. */
export async function printFollowedLog(io: Io, client: Client, id: string): Promise<void> {
  const command = `rookery job logs -f ${id}`;
  const log = { path: `${jobPath(id)}/logs`, query: new URLSearchParams(), command, isWhole: true };
  await pump(followLog(io, client, log), io.out, io.signal);
}

export async function stopJobs(io: Io, ids: readonly string[], options: ClientOptions): Promise<void> {
  await forEach(io, ids, options, async (client, id) => {
    const { stopped } = await client.json('POST', `${jobPath(id)}/stop`);
    if (stopped === true) io.out.write(`${id}\n`);
    else io.err.write(`${id} was over already.\n`);
  });
}

export async function deleteJobs(io: Io, ids: readonly string[], options: ClientOptions): Promise<void> {
  await forEach(io, ids, options, async (client, id) => {
    await client.json('DELETE', jobPath(id));
    io.out.write(`${id}\n`);
  });
}

/** Runs `work` for each job in sequence. A failure does not stop the others. */
export async function forEach(
  io: Io,
  ids: readonly string[],
  options: ClientOptions,
  work: (client: Client, id: string) => Promise<void>,
): Promise<void> {
  const client = await Client.open(options, io);
  const failures: CliError[] = [];
  for (const id of ids) {
    try {
      await work(client, id);
    } catch (error) {
      if (!(error instanceof CliError)) throw error;
      failures.push(error);
    }
  }
  const [first] = failures;
  if (first !== undefined) throw new CliError(failures.map(({ message }) => message).join('\n'), first.exitCode);
}

/** Returns decimal milliseconds as RFC 3339. */
export function momentOf(milliseconds: string): string {
  return new Date(Number(milliseconds)).toISOString();
}
