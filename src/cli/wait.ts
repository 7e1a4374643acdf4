import { Argument, type Command } from 'commander';
import { addClientOptions } from './client.ts';
import type { Context } from './io.ts';
import { WAITS } from './wait-names.ts';

export function register(program: Command, context: Context): void {
  const states = Object.entries(WAITS).map(
    ([
      kind,
      {
        states: [first, ...others],
      },
    ]) => {
      return `  ${kind}: ${first} (by default), ${others.join(', ')}`;
    },
  );
  addClientOptions(
    program
      .command('wait')
      .summary('wait until an agent, a function or a job is in a state')
      .description(
        'Waits until something is in a state, by the events of the service, and prints the state. It need not be there yet, unless it is a job.\n\n' +
          `${states.join('\n')}\n\n` +
          'Ends with 0 when it is, with 1 when it cannot come any more (the job is over, the agent has failed for good), with 124 at the timeout.',
      )
      .addArgument(new Argument('<kind>', 'what it is').choices(Object.keys(WAITS)))
      .argument('<name>', 'the name or id of an agent, the name or URN of a function, the id of a job')
      .option('-n, --namespace <namespace>', 'the namespace of an agent that is named by its name', 'default')
      .option('--for <state>', 'which state; else the first of its kind')
      .option('--timeout <time>', 'the longest that it may take: 30s, 10m', '5m')
      .option('-q, --quiet', 'print nothing'),
  ).action(async (kind, name, options) => {
    const { waitFor } = await import('./wait-run.ts');
    context.exitCode = await waitFor(context.io, kind, name, options);
  });
}
