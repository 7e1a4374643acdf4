import type { Database } from '../database.ts';

/**
 * Returns the nodes with stored instances or jobs. More than one in SQLite means that files of several
 * installations were mixed.
 */
export async function listNodeIds(database: Database): Promise<readonly string[]> {
  const rows = await Promise.all([
    database.selectFrom('instances').select('node_id').distinct().execute(),
    database.selectFrom('jobs').select('node_id').distinct().execute(),
  ]);
  return [...new Set(rows.flat().map(({ node_id }) => node_id))].sort();
}

/** Returns the ids of recorded sandboxes, of a node or of all (null). */
export async function listSandboxIds(database: Database, nodeId: string | null = null): Promise<readonly string[]> {
  const query = database.selectFrom('instances').select('id');
  const rows = await (nodeId === null ? query : query.where('node_id', '=', nodeId)).execute();
  return rows.map(({ id }) => id);
}
