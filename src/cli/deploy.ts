import type { Command } from 'commander';
import { addClientOptions } from './client.ts';
import type { Context } from './io.ts';

export function register(program: Command, context: Context): void {
  addClientOptions(
    program
      .command('deploy')
      .summary('bring the service to what rookery.yaml says')
      .description(
        'Packs and uploads the code that rookery.yaml names, creates what is missing, changes what differs, and leaves the rest as it is. ' +
          'What the file does not name stays. An agent cannot be changed: it is replaced. Ends with 1 when something could not be done.\n\n' +
          '  rookery init python hello && cd hello\n' +
          '  rookery deploy --address https://rookery.example.com:8888',
      )
      .option('-f, --file <file>', 'what there should be', 'rookery.yaml')
      .option('--dry-run', 'say what would be done, and do nothing')
      .option('--watch', 'do it again whenever a file below the directory of rookery.yaml changes, until Ctrl-C')
      .option('--json', 'print JSON'),
  ).action(async options => {
    const { deploy } = await import('./deploy-run.ts');
    context.exitCode = await deploy(context.io, options);
  });
}
