import { type Kysely, sql } from 'kysely';

/** Adds indexes so that a pass over the sandboxes of a node, and a list, do not read every ended agent. */
export async function up(db: Kysely<unknown>): Promise<void> {
  const ofNode = (name: string, condition: ReturnType<typeof sql<boolean>>) =>
    db.schema.createIndex(name).on('instances').column('node_id').where(condition).execute();
  await ofNode('instances_sandboxes', sql<boolean>`(owner_kind <> 'agent' or status <> 'FAILED')`);
  await ofNode('instances_restarts', sql<boolean>`restart_at_ms > 0`);
  await ofNode('instances_expiries', sql<boolean>`expires_at_ms > 0`);
  await db.schema.createIndex('instances_status').on('instances').columns(['tenant', 'status', 'id']).execute();
  await db.schema
    .createIndex('instances_tenant_name')
    .on('instances')
    .columns(['tenant', 'name', 'id'])
    .where(sql<boolean>`owner_kind = 'agent'`)
    .execute();
}
