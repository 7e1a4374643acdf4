import type { Command } from 'commander';
import { addClientOptions } from './client.ts';
import type { Context } from './io.ts';

/** `logs`, which is `agent logs` for those who look at several. */
export function register(program: Command, context: Context): void {
  addClientOptions(addLogs(program, context));
}

/** Describes the command; what it does stands in `agent-logs.ts`. */
export function addLogs(parent: Command, { io }: Context): Command {
  return parent
    .command('logs')
    .summary('print what the code of agents wrote')
    .description(
      'Prints what the code of agents wrote to stdout and stderr. Of several agents each line begins with the name of its agent.',
    )
    .argument('<agents...>', 'ids or names')
    .option('-n, --namespace <namespace>', 'the namespace of agents that are named by their names', 'default')
    .option('-f, --follow', 'go on until the agents end or Ctrl-C')
    .option('--tail <lines>', 'only the last lines of each')
    .option('--since <time>', 'only lines since then: 10m, or an RFC 3339 time')
    .option('--previous [run]', 'of an earlier run, before its restart: 1 is the one before')
    .action(async (agents, options) => {
      const { printLogs } = await import('./agent-logs.ts');
      await printLogs(io, agents, options);
    });
}
