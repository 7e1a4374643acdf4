import type { Database } from './database.ts';

/** The nodes whose instances and jobs are stored here: one, unless files of several installations were mixed. */
export async function listNodeIds(database: Database): Promise<readonly string[]> {
  const rows = await Promise.all([
    database.selectFrom('instances').select('node_id').distinct().execute(),
    database.selectFrom('service_instances').select('node_id').distinct().execute(),
    database.selectFrom('jobs').select('node_id').distinct().execute(),
  ]);
  return [...new Set(rows.flat().map(({ node_id }) => node_id))].sort();
}

/** Ids of the sandboxes that are known: of agents, of instances of functions, of jobs that are not over. */
export async function listSandboxIds(database: Database): Promise<readonly string[]> {
  const [agents, instances, jobs] = await Promise.all([
    database.selectFrom('instances').select('id').execute(),
    database.selectFrom('service_instances').select('id').execute(),
    database
      .selectFrom('jobs')
      .select('instance_id as id')
      .where('status', 'in', ['PENDING', 'RUNNING'])
      .where('instance_id', '!=', '')
      .execute(),
  ]);
  return [...agents, ...instances, ...jobs].map(({ id }) => id);
}
