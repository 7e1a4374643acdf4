import type { Command } from 'commander';
import { usageError } from '../shared/exit.ts';
import type { Context } from '../shared/io.ts';

/** Adds the command `rookery stop`, which ends all services and local sandboxes of this machine. */
export function register(program: Command, context: Context): void {
  program
    .command('stop')
    .summary('end everything of Rookery on this machine')
    .description(
      'With --all: ends all services of this machine, their agents, jobs and functions in process, supervisor and docker sandboxes,\n' +
        'and those of removed data directories. pre_stop does not run: use serve --stop-agents for that.\n' +
        'Stop a service manager first (systemctl stop rookery). Pods of a cluster continue.',
    )
    .option('--all', 'everything, of all data directories')
    .action(async options => {
      if (options.all !== true) throw usageError('Say what is to end: rookery stop --all');
      const { stopAll } = await import('./machine-stop.ts');
      context.exitCode = await stopAll(context.io);
    });
}
