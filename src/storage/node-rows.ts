import type { Database } from './database.ts';

/** The nodes whose instances and jobs are stored here: one, unless files of several installations were mixed. */
export async function listNodeIds(database: Database): Promise<readonly string[]> {
  const rows = await Promise.all([
    database.selectFrom('instances').select('node_id').distinct().execute(),
    database.selectFrom('jobs').select('node_id').distinct().execute(),
  ]);
  return [...new Set(rows.flat().map(({ node_id }) => node_id))].sort();
}

/** Ids of the sandboxes that are known. */
export async function listSandboxIds(database: Database): Promise<readonly string[]> {
  return (await database.selectFrom('instances').select('id').execute()).map(({ id }) => id);
}
