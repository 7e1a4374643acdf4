import type { Command } from 'commander';
import { addClientOptions } from '../shared/client.ts';
import type { Context } from '../shared/io.ts';

export function register(program: Command, context: Context): void {
  addClientOptions(
    program
      .command('diff')
      .summary('say what a deploy would change')
      .description('Compares rookery.yaml with what the service has. Changes nothing and uploads nothing.')
      .option('-f, --file <file>', 'what there should be', 'rookery.yaml')
      .option('--exit-code', 'end with 1 when something would change')
      .option('--json', 'print JSON'),
  ).action(async options => {
    const { diff } = await import('./run.ts');
    context.exitCode = await diff(context.io, options);
  });
}
