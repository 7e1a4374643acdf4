import type { Command } from 'commander';
import { append, SECRET_OPTION } from '../serve/config-flags.ts';
import { addClientOptions } from '../shared/client.ts';
import { usageError } from '../shared/exit.ts';
import type { Context } from '../shared/io.ts';

/** Describes the commands. `submit.ts`, `records.ts` and `schedules.ts` implement them. */
export function register(program: Command, context: Context): void {
  const job = program
    .command('job')
    .summary('submit batch jobs and look after them')
    .description('Batch jobs. `ray job` of the Ray client works with this service too.')
    .enablePositionalOptions();
  addSubmit(job, context);
  addList(job, context);
  addGet(job, context);
  addLogs(job, context);
  addRerun(job, context);
  addStop(job, context);
  addDelete(job, context);
  // Client options are added last, so that the help begins with the command's own options.
  for (const command of job.commands) addClientOptions(command);
  addSchedules(job, context);
}

function addSubmit(job: Command, context: Context): void {
  addJobOptions(job.command('submit'))
    .summary('submit a job')
    .description(
      'Submits a command as a job and prints its id. Options stand before the command:\n\n' +
        '  rookery job submit --working-dir . --follow -- python train.py',
    )
    .argument('<command...>', 'the command and its arguments')
    .option('--id <id>', 'its id; else one is made up')
    .option('-f, --follow', 'print its log until it is over; returns 1 if it failed')
    .option('--json', 'print JSON')
    .passThroughOptions()
    .action(async (words, _options, self: Command) => {
      const command = takeOptions(self, words);
      const { submitJob } = await import('./submit.ts');
      context.exitCode = await submitJob(context.io, command, self.opts());
    });
}

function addList(job: Command, { io }: Context): void {
  job
    .command('list')
    .alias('ls')
    .summary('list jobs')
    .description('Lists the jobs of the tenant, the newest first.')
    .option('--status <status>', 'PENDING, RUNNING, STOPPED, SUCCEEDED or FAILED')
    .option('-w, --watch', 'print it again at each change, until Ctrl-C')
    .option('--json', 'print JSON')
    .option('-q, --quiet', 'print ids only')
    .action(async options => {
      const { listJobs } = await import('./records.ts');
      await listJobs(io, options);
    });
}

function addGet(job: Command, { io }: Context): void {
  job
    .command('get')
    .summary('show a job')
    .description('Shows everything that the service knows about a job.')
    .argument('<job>', 'its id')
    .option('--json', 'print JSON')
    .action(async (id, options) => {
      const { getJob } = await import('./records.ts');
      await getJob(io, id, options);
    });
}

function addLogs(job: Command, { io }: Context): void {
  job
    .command('logs')
    .summary('print what a job wrote')
    .description('Prints what a job wrote to stdout and stderr.')
    .argument('<job>', 'its id')
    .option('-f, --follow', 'follow until the job ends or Ctrl-C')
    .action(async (id, options) => {
      const { printJobLog } = await import('./records.ts');
      await printJobLog(io, id, options);
    });
}

function addRerun(job: Command, context: Context): void {
  job
    .command('rerun')
    .summary('submit a job again')
    .description('Submits the request of a job again, as a new job, and prints its id.')
    .argument('<job>', 'the id of the job; it may wait, run or be over')
    .option('-f, --follow', 'print the log of the new job until it is over; returns 1 if it failed')
    .option('--json', 'print JSON')
    .action(async (id, options) => {
      const { rerunJob } = await import('./submit.ts');
      context.exitCode = await rerunJob(context.io, id, options);
    });
}

function addStop(job: Command, { io }: Context): void {
  job
    .command('stop')
    .summary('stop jobs')
    .description('Ends jobs that wait or run.')
    .argument('<jobs...>', 'ids')
    .action(async (ids, options) => {
      const { stopJobs } = await import('./records.ts');
      await stopJobs(io, ids, options);
    });
}

function addDelete(job: Command, { io }: Context): void {
  job
    .command('delete')
    .alias('rm')
    .summary('forget jobs that are over')
    .description('Forgets jobs that are over, and their logs.')
    .argument('<jobs...>', 'ids')
    .action(async (ids, options) => {
      const { deleteJobs } = await import('./records.ts');
      await deleteJobs(io, ids, options);
    });
}

/** Describes the commands below `job schedule`. `schedules.ts` implements them. */
function addSchedules(job: Command, context: Context): void {
  const schedule = job
    .command('schedule')
    .summary('submit jobs by the clock')
    .description('Jobs that are submitted by the clock.')
    .enablePositionalOptions();
  addScheduleCreate(schedule, context);
  addScheduleList(schedule, context);
  addScheduleDelete(schedule, context);
  for (const command of schedule.commands) addClientOptions(command);
}

function addScheduleCreate(schedule: Command, { io }: Context): void {
  addJobOptions(schedule.command('create'))
    .summary('submit a job again and again')
    .description(
      'Submits a command as a job at the times of a cron pattern:\n\n' +
        '  rookery job schedule create nightly "0 3 * * *" --timezone Europe/Berlin -- python report.py',
    )
    .argument('<schedule>', 'its id; the ids of its jobs begin with it')
    .argument('<cron>', 'minute, hour, day, month and day of the week; a sixth field in front is the second')
    .argument('<command...>', 'the command and its arguments')
    .option('--timezone <zone>', 'what the pattern is read in', 'UTC')
    .option('--overlap', 'submit also while the job before runs')
    .option('--replace', 'replace the schedule of this id')
    .option('--json', 'print JSON')
    .passThroughOptions()
    .action(async (id, cron, words, _options, self: Command) => {
      const command = takeOptions(self, words);
      const { createSchedule } = await import('./schedules.ts');
      await createSchedule(io, id, cron, command, self.opts());
    });
}

function addScheduleList(schedule: Command, { io }: Context): void {
  schedule
    .command('list')
    .alias('ls')
    .summary('list schedules')
    .description('Lists the schedules of the tenant.')
    .option('--json', 'print JSON')
    .action(async options => {
      const { listSchedules } = await import('./schedules.ts');
      await listSchedules(io, options);
    });
}

function addScheduleDelete(schedule: Command, { io }: Context): void {
  schedule
    .command('delete')
    .alias('rm')
    .summary('delete schedules')
    .description('Deletes schedules. Their jobs stay.')
    .argument('<schedules...>', 'ids')
    .action(async (ids, options) => {
      const { deleteSchedules } = await import('./schedules.ts');
      await deleteSchedules(io, ids, options);
    });
}

/**
 * Parses the options before a job's command, and returns the command. Options belong to the word that they
 * follow, but no command begins with an option.
 */
function takeOptions(self: Command, words: readonly string[]): readonly string[] {
  if (words[0]?.startsWith('-') !== true) return words;
  const { operands, unknown } = self.parseOptions([...words]);
  const [option] = unknown;
  if (option !== undefined) throw usageError(`There is no option ${option}; add --help for the options.`);
  if (operands.length === 0) throw usageError('The command is missing: write it after "--".');
  return operands;
}

function addJobOptions(command: Command): Command {
  return command
    .option('--working-dir <dir>', 'a directory to upload; the job runs in a copy')
    .option('-e, --env <name=value>', 'an environment variable; may be repeated', append)
    .option(...SECRET_OPTION, append)
    .option('--pip <requirement>', 'a Python package that it needs; may be repeated', append)
    .option('--metadata <key=value>', 'kept with the job; may be repeated', append)
    .option('--cpus <count>', 'processors that it needs')
    .option('--memory <mb>', 'memory that it needs, in MiB')
    .option('--retries <count>', 'how often it runs again after a failure')
    .option('--timeout <time>', 'how long one run may take: 90s, 2h')
    .option('--priority <number>', 'higher ones start first');
}
