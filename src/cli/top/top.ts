import { type Command, Option } from 'commander';
import { addClientOptions } from '../shared/client.ts';
import type { Context } from '../shared/io.ts';
import { SORTS } from './top-sorts.ts';

/** Adds the command `rookery top`, which shows the resource usage of agents, functions and the machine. */
export function register(program: Command, { io }: Context): void {
  addClientOptions(
    program
      .command('top')
      .summary('show what agents, functions and the machine use')
      .description(
        'Shows CPU and memory of the machine, agents and functions, and the calls of the last minute, every two seconds;\n' +
          'once with --once or without a terminal. Only tenants of metrics.tenants see the machine.\n\n' +
          'Keys: q ends; c, m, k, e and n sort by CPU, memory, calls, errors and name; h shows the keys.',
      )
      .option('--once', 'print it once')
      .option('--interval <time>', 'how often: 2s, 10s', '2s')
      .addOption(new Option('--sort <column>', 'what the rows are sorted by').choices(SORTS).default('cpu'))
      .option('--limit <count>', 'at most so many agents, and so many functions', '50')
      .option('--json', 'print JSON, once'),
  ).action(async options => {
    const { showTop } = await import('./top-run.ts');
    await showTop(io, options);
  });
}
