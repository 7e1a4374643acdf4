import { Client, type ClientOptions } from '../shared/client.ts';
import { CliError } from '../shared/exit.ts';
import type { Io } from '../shared/io.ts';
import { printJson, printTable } from '../shared/print.ts';
import { forEach, momentOf } from './records.ts';
import { type JobOptions, jobBody } from './submit.ts';

interface Schedule {
  readonly schedule_id: string;
  readonly cron: string;
  readonly timezone: string;
  readonly next_run_time: string | null;
  readonly job: { readonly entrypoint: string };
}

const PATH = '/api/job_schedules';

/** Creates or replaces a schedule of jobs: `rookery job schedule create`. */
export async function createSchedule(
  io: Io,
  id: string,
  cron: string,
  command: readonly string[],
  options: JobOptions & {
    readonly timezone: string;
    readonly overlap?: boolean;
    readonly replace?: boolean;
    readonly json?: boolean;
  },
): Promise<void> {
  const client = await Client.open(options, io);
  const body = {
    schedule_id: id,
    cron,
    timezone: options.timezone,
    overlap: options.overlap === true ? 'allow' : 'skip',
    job: await jobBody(io, client, command, options),
  };
  const [method, path] = options.replace === true ? ['PUT', pathOf(id)] : ['POST', PATH];
  const answer = await client.json(method, path, { body: JSON.stringify(body) }).catch((error: unknown) => {
    if (!(error instanceof CliError) || error.status !== 409) throw error;
    throw new CliError(`${error.message}\nUse --replace to replace it.`, error.exitCode, error.status);
  });
  if (options.json === true) printJson(io, answer);
  else io.out.write(`${id}\n`);
}

/** Prints the schedules of jobs: `rookery job schedule list`. */
export async function listSchedules(io: Io, options: ClientOptions & { readonly json?: boolean }): Promise<void> {
  const client = await Client.open(options, io);
  const schedules = JSON.parse(await client.text('GET', PATH)) as readonly Schedule[];
  if (options.json === true) printJson(io, schedules);
  else printTable(io, COLUMNS, schedules);
}

const COLUMNS = [
  { title: 'ID', text: (schedule: Schedule) => schedule.schedule_id },
  { title: 'CRON', text: (schedule: Schedule) => schedule.cron },
  { title: 'TIMEZONE', text: (schedule: Schedule) => schedule.timezone },
  {
    title: 'NEXT',
    text: ({ next_run_time: next }: Schedule) => (next === null ? '-' : momentOf(next)),
  },
  { title: 'COMMAND', text: (schedule: Schedule) => schedule.job.entrypoint, isFlexible: true },
];

/** Deletes schedules of jobs: `rookery job schedule delete`. */
export async function deleteSchedules(io: Io, ids: readonly string[], options: ClientOptions): Promise<void> {
  await forEach(io, ids, options, async (client, id) => {
    await client.json('DELETE', pathOf(id));
    io.out.write(`${id}\n`);
  });
}

function pathOf(id: string): string {
  return `${PATH}/${encodeURIComponent(id)}`;
}
