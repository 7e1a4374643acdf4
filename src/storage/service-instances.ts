import type { SandboxType } from '../core/instance.ts';
import type { Database } from './database.ts';

/** Row of `service_instances`: what it takes to find one again after a restart, and nothing more. */
export interface ServiceInstanceTable {
  id: string;
  node_id: string;
  tenant: string;
  urn: string;
  revision_id: string;
  /** JSON of its group's key. */
  group_key: string;
  sandbox_type: SandboxType;
  /** JSON of the driver's handle. */
  handle: string;
  /** Opens connections to its runtime. */
  secret: string;
  concurrency: number;
  max_call_ms: number;
  stop_grace_ms: number;
  /** Host path that is mounted as its code. */
  code_source: string;
  started_at_ms: number;
}

export async function insertServiceInstance(database: Database, row: ServiceInstanceTable): Promise<void> {
  await database.insertInto('service_instances').values(row).execute();
}

export async function deleteServiceInstance(database: Database, id: string): Promise<void> {
  await database.deleteFrom('service_instances').where('id', '=', id).execute();
}

export async function listServiceInstances(database: Database, nodeId: string): Promise<ServiceInstanceTable[]> {
  return await database.selectFrom('service_instances').selectAll().where('node_id', '=', nodeId).execute();
}

export async function hasServiceInstance(database: Database, id: string): Promise<boolean> {
  const row = await database.selectFrom('service_instances').select('id').where('id', '=', id).executeTakeFirst();
  return row !== undefined;
}
