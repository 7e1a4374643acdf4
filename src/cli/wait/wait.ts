import { Argument, type Command } from 'commander';
import { addClientOptions } from '../shared/client.ts';
import type { Context } from '../shared/io.ts';
import { WAITS } from './wait-names.ts';

/** Adds the command `rookery wait`, which waits until a resource reaches a state. */
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
        'Waits until something is in a state, and prints the state. An agent or function need not exist yet.\n\n' +
          `${states.join('\n')}\n\n` +
          'Returns 0 when it is, 1 when it can no longer be (the job is over, the agent has failed for good), 124 at the timeout.',
      )
      .addArgument(new Argument('<kind>', 'what it is').choices(Object.keys(WAITS)))
      .argument('<name>', 'the name or id of an agent, the name or URN of a function, the id of a job')
      .option('-n, --namespace <namespace>', 'the namespace of the name', 'default')
      .option('--for <state>', 'which state; else the first of its kind')
      .option('--timeout <time>', 'the time limit: 30s, 10m', '5m')
      .option('-q, --quiet', 'print nothing'),
  ).action(async (kind, name, options) => {
    const { waitFor } = await import('./wait-run.ts');
    context.exitCode = await waitFor(context.io, kind, name, options);
  });
}
