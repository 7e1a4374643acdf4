import type { Command } from 'commander';
import { addClientOptions } from '../shared/client.ts';
import type { Context } from '../shared/io.ts';

/** Adds the command `rookery deploy`, which creates or changes everything that rookery.yaml names. */
export function registerDeploy(program: Command, context: Context): void {
  addClientOptions(
    program
      .command('deploy')
      .summary('bring the service to what rookery.yaml says')
      .description(
        'Uploads code and creates or changes what rookery.yaml names; the rest stays. A changed agent is replaced:\n' +
          'a new one takes its name when it is ready. Returns 1 if something failed.\n\n' +
          '  rookery init python hello && cd hello\n' +
          '  rookery deploy --address https://rookery.example.com:8888',
      )
      .option('-f, --file <file>', 'what there should be', 'rookery.yaml')
      .option('--dry-run', 'say what would be done, and do nothing')
      .option('--rerun-failed', 'run failed one-off jobs again; otherwise the deploy returns 1')
      .option('--watch', 'repeat at each change of a file beside rookery.yaml, until Ctrl-C')
      .option('--json', 'print JSON'),
  ).action(async options => {
    const { deploy } = await import('./run.ts');
    context.exitCode = await deploy(context.io, options);
  });
}

/** Adds the command `rookery diff`, which compares rookery.yaml with the service and changes nothing. */
export function registerDiff(program: Command, context: Context): void {
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
