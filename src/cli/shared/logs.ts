import type { Command } from 'commander';
import { addClientOptions } from './client.ts';
import type { Context } from './io.ts';

/** Registers `logs`, a short form of `agent logs`. */
export function register(program: Command, context: Context): void {
  addClientOptions(addLogs(program, context));
}

/** Describes the command. `agent/logs.ts` implements it. */
export function addLogs(parent: Command, { io }: Context): Command {
  return parent
    .command('logs')
    .summary('print what the code of agents wrote')
    .description(
      'Prints what the code of agents wrote to stdout and stderr. For several agents each line begins with a name.',
    )
    .argument('<agents...>', 'ids or names')
    .option(
      '-n, --namespace <namespace>',
      'the namespace of the names; a number that is no namespace means --tail',
      'default',
    )
    .option('-f, --follow', 'follow, also across restarts and deploys, until deletion or Ctrl-C')
    .option('--tail <lines>', 'only the last lines of each')
    .option('--since <time>', 'only lines since then: 10m, or an RFC 3339 time')
    .option('--previous [run]', 'of an earlier run; 1 is the last before this one')
    .action(async (agents, options) => {
      const { printLogs } = await import('../agent/logs.ts');
      await printLogs(io, agents, options);
    });
}
