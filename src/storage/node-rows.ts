import type { Database } from './database.ts';

/** The nodes whose instances and jobs are stored here: one, unless files of several installations were mixed. */
export async function listNodeIds(database: Database): Promise<readonly string[]> {
  const rows = await Promise.all([
    database.selectFrom('instances').select('node_id').distinct().execute(),
    database.selectFrom('jobs').select('node_id').distinct().execute(),
  ]);
  return [...new Set(rows.flat().map(({ node_id }) => node_id))].sort();
}

/** Ids of the sandboxes that are known, of one node or of all (null). */
export async function listSandboxIds(database: Database, nodeId: string | null = null): Promise<readonly string[]> {
  const query = database.selectFrom('instances').select('id');
  const rows = await (nodeId === null ? query : query.where('node_id', '=', nodeId)).execute();
  return rows.map(({ id }) => id);
}
