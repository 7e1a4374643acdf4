import type { Command } from 'commander';
import { addClientOptions } from './client.ts';
import { append } from './config-flags.ts';
import type { Context } from './io.ts';

/** Describes the commands; what they do stands in `pool-calls.ts`. */
export function register(program: Command, context: Context): void {
  const { io } = context;
  const pool = program
    .command('pool')
    .summary('create and look after warm pools')
    .description('Pools of warm pods, for a service on Kubernetes.');
  const add = (usage: string): Command => pool.command(usage);

  add('create')
    .summary('create pools')
    .description(
      'Creates a pool, or all pools of a file. Everything that is wrong with them is reported at once, and then nothing is sent. What is sent ' +
        'stands alone: those that the service could create are printed, whatever became of the others.\n\n' +
        '  rookery pool create small --size 2 --cpu 500m --memory 512Mi\n' +
        '  rookery pool create -f pools.yaml',
    )
    .argument('[id]', 'lowercase letters, digits and "-"; unique in the cluster')
    .option('-f, --file <file>', 'a pool, a list of pools, or {pools: […]}, as YAML or JSON; - is stdin')
    .option('--size <count>', 'how many pods there are')
    .option('--max-size <count>', 'how many there may be')
    .option('--group <group>', 'its group')
    .option('--cpu <quantity>', 'of each pod, such as 500m')
    .option('--memory <quantity>', 'of each pod, such as 512Mi or 1Gi')
    .option('--image <reference>', 'the image of its pods')
    .option('-l, --label <name=value>', 'may be repeated', append)
    .option('-e, --env <name=value>', 'may be repeated', append)
    .option('--json', 'print JSON')
    .action(async (id, options) => {
      const { createPools } = await import('./pool-calls.ts');
      await createPools(io, id, options);
    });

  add('list')
    .alias('ls')
    .summary('list pools')
    .description('Lists the pools of the cluster, the newest change first.')
    .option('--id <id>', 'only this one')
    .option('--group <group>', 'only those of this group')
    .option('--json', 'print JSON')
    .option('-q, --quiet', 'print ids only')
    .action(async options => {
      const { listPools } = await import('./pool-calls.ts');
      await listPools(io, options);
    });

  add('update')
    .summary('change the size of a pool')
    .description(
      'Changes what is given; everything else is kept. Whether a pool can grow above its size is fixed when it is created.',
    )
    .argument('<id>', 'the pool')
    .option('--size <count>', 'how many pods there are')
    .option('--max-size <count>', 'how many there may be')
    .option('--hpa <json>', 'the HorizontalPodAutoscalerSpec: JSON, @file, or - for stdin; an empty text: none')
    .option('--json', 'print JSON')
    .action(async (id, options) => {
      const { updatePool } = await import('./pool-calls.ts');
      await updatePool(io, id, options);
    });

  add('delete')
    .alias('rm')
    .summary('delete pools')
    .description('Deletes pools by their ids, or all of a group; with both, those of the ids that are in the group.')
    .argument('[ids...]', 'the pools')
    .option('--group <group>', 'all pools of this group')
    .option('--json', 'print JSON')
    .action(async (ids, options) => {
      const { deletePools } = await import('./pool-calls.ts');
      await deletePools(io, ids, options);
    });

  // Last, so that the help begins with what is the command's own.
  for (const command of pool.commands) addClientOptions(command);
}
