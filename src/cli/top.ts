import type { Command } from 'commander';
import { addClientOptions } from './client.ts';
import type { Context } from './io.ts';

export function register(program: Command, { io }: Context): void {
  addClientOptions(
    program
      .command('top')
      .summary('show what agents, functions and the machine use')
      .description(
        'Shows CPU and memory of the machine, of agents and of functions, and the calls of the last minute, anew every two seconds. Once, ' +
          'with --once and where stdout is no terminal. The machine is shown to the tenants of metrics.tenants only.',
      )
      .option('--once', 'print it once')
      .option('--interval <time>', 'how often: 2s, 10s', '2s')
      .option('--limit <count>', 'at most so many agents, and so many functions', '50')
      .option('--json', 'print JSON, once'),
  ).action(async options => {
    const { showTop } = await import('./top-run.ts');
    await showTop(io, options);
  });
}
