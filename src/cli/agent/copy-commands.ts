import type { Command } from 'commander';
import type { Context } from '../shared/io.ts';

/** Adds the commands that export and import agents. `exporting`: `export` without its arguments. */
export function addCopies(agent: Command, { io }: Context, exporting: Command): void {
  exporting
    .summary('export a durable agent')
    .description('Writes settings, saved state and alarms of a durable agent to a tar file. The agent goes on.')
    .argument('<agent>', 'the id of the agent, or its name')
    .argument('<file>', 'the file: user-7.tar')
    .action(async (id, file, options) => {
      const { exportAgent } = await import('./copies.ts');
      await exportAgent(io, id, file, options);
    });
  agent
    .command('import')
    .summary('make a sleeping agent of an export')
    .description('Makes a durable agent of an export, and prints its id. It sleeps until its first use.')
    .argument('<file>', 'the file of the export')
    .option('-n, --namespace <namespace>', 'another namespace than that of the export')
    .option('--name <name>', 'another name than that of the export')
    .option('--json', 'print JSON')
    .action(async (file, options) => {
      const { importAgent } = await import('./copies.ts');
      await importAgent(io, file, options);
    });
}
