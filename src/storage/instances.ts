import type { Selectable } from 'kysely';
import type { Instance, InstanceSpec, InstanceStatus, SandboxFacts } from '../core/instance.ts';
import type { Database } from './database.ts';

/** Row of `instances`. JSON columns hold text. */
export interface InstanceTable {
  id: string;
  tenant: string;
  namespace: string;
  name: string;
  status: InstanceStatus;
  status_reason: string;
  load_error: string;
  restarts: number;
  node_id: string;
  /** `InstanceSpec` */
  spec: string;
  /** `SandboxFacts` */
  sandbox: string;
  /** `SandboxHandle` of the sandbox that it has, null before there is one. Only the scheduler and drivers read it. */
  handle: string | null;
  /** Opens connections to its runtime. */
  secret: string;
  created_at_ms: number;
  started_at_ms: number;
  idempotency_key: string | null;
  /** SHA-256 of the create request that came with the key. */
  request_hash: string | null;
}

/** An instance with what only the scheduler may know of it. */
export interface StoredInstance {
  readonly instance: Instance;
  /** JSON of the driver's handle, null before there is a sandbox. */
  readonly handle: string | null;
  readonly secret: string;
  readonly requestHash: string | null;
}

export interface NewInstance {
  readonly instance: Instance;
  readonly secret: string;
  readonly idempotency: { readonly key: string; readonly requestHash: string } | undefined;
}

/** What a change of an instance may write; absent members stay as they are. */
export interface InstancePatch {
  readonly status?: InstanceStatus;
  readonly statusReason?: string;
  readonly loadError?: string;
  readonly restarts?: number;
  readonly sandbox?: SandboxFacts;
  readonly handle?: string | null;
  readonly secret?: string;
  readonly startedAtMs?: number;
}

export interface InstanceFilter {
  readonly tenant: string;
  readonly namespace?: string | undefined;
  readonly name?: string | undefined;
  readonly status?: InstanceStatus | undefined;
  readonly limit: number;
  /** Only ids after this one. */
  readonly afterId: string | null;
}

/** False, and nothing written, when its name or its idempotency key is taken: the database decides races. */
export async function insertInstance(database: Database, { instance, secret, idempotency }: NewInstance) {
  const { numInsertedOrUpdatedRows } = await database
    .insertInto('instances')
    .values({
      id: instance.id,
      tenant: instance.spec.tenant,
      namespace: instance.spec.namespace,
      name: instance.spec.name,
      status: instance.status,
      status_reason: instance.statusReason,
      load_error: instance.loadError,
      restarts: instance.restarts,
      node_id: instance.nodeId,
      spec: JSON.stringify(instance.spec),
      sandbox: JSON.stringify(instance.sandbox),
      handle: null,
      secret,
      created_at_ms: instance.createdAtMs,
      started_at_ms: instance.startedAtMs,
      idempotency_key: idempotency?.key ?? null,
      request_hash: idempotency?.requestHash ?? null,
    })
    .onConflict(conflict => conflict.doNothing())
    .executeTakeFirst();
  return numInsertedOrUpdatedRows === 1n;
}

export async function findInstance(database: Database, id: string): Promise<StoredInstance | null> {
  const row = await database.selectFrom('instances').selectAll().where('id', '=', id).executeTakeFirst();
  return row ? toStored(row) : null;
}

export async function findInstanceByName(
  database: Database,
  tenant: string,
  namespace: string,
  name: string,
): Promise<StoredInstance | null> {
  const row = await database
    .selectFrom('instances')
    .selectAll()
    .where('tenant', '=', tenant)
    .where('namespace', '=', namespace)
    .where('name', '=', name)
    .executeTakeFirst();
  return row ? toStored(row) : null;
}

export async function findInstanceByIdempotencyKey(
  database: Database,
  tenant: string,
  key: string,
): Promise<StoredInstance | null> {
  const row = await database
    .selectFrom('instances')
    .selectAll()
    .where('tenant', '=', tenant)
    .where('idempotency_key', '=', key)
    .executeTakeFirst();
  return row ? toStored(row) : null;
}

/** One page of a tenant's instances, ordered by id. */
export async function listInstances(database: Database, filter: InstanceFilter): Promise<Instance[]> {
  let query = database.selectFrom('instances').selectAll().where('tenant', '=', filter.tenant);
  if (filter.namespace !== undefined) query = query.where('namespace', '=', filter.namespace);
  if (filter.name !== undefined) query = query.where('name', '=', filter.name);
  if (filter.status !== undefined) query = query.where('status', '=', filter.status);
  if (filter.afterId !== null) query = query.where('id', '>', filter.afterId);
  const rows = await query.orderBy('id').limit(filter.limit).execute();
  return rows.map(toInstance);
}

/** Everything that one node has to look after. */
export async function listInstancesOfNode(database: Database, nodeId: string): Promise<StoredInstance[]> {
  const rows = await database.selectFrom('instances').selectAll().where('node_id', '=', nodeId).execute();
  return rows.map(toStored);
}

/** Writes `patch` if the instance is in one of the states `from`. False: it is not, or there is no such instance. */
export async function updateInstance(
  database: Database,
  id: string,
  from: readonly InstanceStatus[],
  patch: InstancePatch,
): Promise<boolean> {
  const { numUpdatedRows } = await database
    .updateTable('instances')
    .set(toColumns(patch))
    .where('id', '=', id)
    .where('status', 'in', from)
    .executeTakeFirst();
  return numUpdatedRows === 1n;
}

/** The key may be used for another request; the instance stays. */
export async function forgetIdempotencyKey(database: Database, id: string): Promise<void> {
  await database
    .updateTable('instances')
    .set({ idempotency_key: null, request_hash: null })
    .where('id', '=', id)
    .execute();
}

/** Deletes the instance if it is in one of the states `from`. False: it is not, or there is no such instance. */
export async function deleteInstance(
  database: Database,
  id: string,
  from: readonly InstanceStatus[],
): Promise<boolean> {
  const { numDeletedRows } = await database
    .deleteFrom('instances')
    .where('id', '=', id)
    .where('status', 'in', from)
    .executeTakeFirst();
  return numDeletedRows === 1n;
}

type Row = Selectable<InstanceTable>;

function toStored(row: Row): StoredInstance {
  return { instance: toInstance(row), handle: row.handle, secret: row.secret, requestHash: row.request_hash };
}

function toInstance(row: Row): Instance {
  return {
    id: row.id,
    spec: JSON.parse(row.spec) as InstanceSpec,
    status: row.status,
    statusReason: row.status_reason,
    loadError: row.load_error,
    restarts: row.restarts,
    createdAtMs: row.created_at_ms,
    startedAtMs: row.started_at_ms,
    nodeId: row.node_id,
    sandbox: JSON.parse(row.sandbox) as SandboxFacts,
  };
}

/** Absent members become `undefined`, which Kysely leaves out. */
function toColumns(patch: InstancePatch) {
  return {
    status: patch.status,
    status_reason: patch.statusReason,
    load_error: patch.loadError,
    restarts: patch.restarts,
    sandbox: patch.sandbox && JSON.stringify(patch.sandbox),
    handle: patch.handle,
    secret: patch.secret,
    started_at_ms: patch.startedAtMs,
  };
}
