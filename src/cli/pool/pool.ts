import type { Command } from 'commander';
import { append } from '../serve/config-flags.ts';
import { addClientOptions } from '../shared/client.ts';
import type { Context } from '../shared/io.ts';

/** Describes the commands. `pool-calls.ts` implements them. */
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
      'Creates a pool, or all pools of a file. It reports all mistakes of a file and then sends nothing. The service creates each pool on its own.\n\n' +
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
    .description('Changes what is given and keeps the rest. A pool that was created without room to grow stays fixed.')
    .argument('<id>', 'the pool')
    .option('--size <count>', 'how many pods there are')
    .option('--max-size <count>', 'how many there may be')
    .option('--hpa <json>', 'the HorizontalPodAutoscalerSpec: JSON, @file, - for stdin; empty: none')
    .option('--json', 'print JSON')
    .action(async (id, options) => {
      const { updatePool } = await import('./pool-calls.ts');
      await updatePool(io, id, options);
    });

  add('delete')
    .alias('rm')
    .summary('delete pools')
    .description('Deletes pools by their ids, or all of a group.')
    .argument('[ids...]', 'the pools')
    .option('--group <group>', 'all pools of this group')
    .option('--json', 'print JSON')
    .action(async (ids, options) => {
      const { deletePools } = await import('./pool-calls.ts');
      await deletePools(io, ids, options);
    });

  // Client options are added last, so that the help begins with the command's own options.
  for (const command of pool.commands) addClientOptions(command);
}
