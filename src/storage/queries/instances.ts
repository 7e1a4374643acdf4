import type { Selectable } from 'kysely';
import type { InstanceStatus, Labels, OwnerKind, SandboxFacts, SandboxType } from '../../core/instance.ts';
import type { LeaseFence } from '../../core/lease.ts';
import { chunksOf } from '../../lib/split.ts';
import { MAY_HAVE_SANDBOX } from '../conditions.ts';
import type { Database, WriteTransaction } from '../database.ts';
import { type Prepared, prepare, type Queries } from '../prepared.ts';
import type { InstanceTable } from '../schema.ts';
import { labelColumn } from './labels.ts';
import { fence } from './leases.ts';

/** An instance as stored; `spec` and `handle` are JSON. */
export interface StoredInstance {
  readonly id: string;
  readonly owner: { readonly kind: OwnerKind; readonly key: string };
  readonly tenant: string;
  readonly status: InstanceStatus;
  /** The reason of FAILED, a sentence; `''` otherwise. */
  readonly statusReason: string;
  /** The reason why the code could not be loaded; `''` when it was loaded. */
  readonly loadError: string;
  readonly epoch: number;
  readonly nodeId: string;
  readonly sandboxType: SandboxType;
  readonly cpuMillis: number;
  readonly memoryMb: number;
  /** 0: the instance takes no calls. */
  readonly concurrency: number;
  readonly maxCallMs: number;
  readonly spec: string;
  readonly sandbox: SandboxFacts;
  readonly handle: string | null;
  readonly secret: string;
  readonly createdAtMs: number;
  /** Start of the current sandbox; 0 before that. */
  readonly startedAtMs: number;
  /** Consecutive restarts by the restart policy. */
  readonly restartsInRow: number;
  /** Time of the next restart by the restart policy; 0: none. */
  readonly restartAtMs: number;
  /** Time to live that was requested last; 0: none. */
  readonly ttlMs: number;
  /** End of the agent; 0: none, or the agent has not started yet. */
  readonly expiresAtMs: number;
  /** Start of the pause or of the sleep; meaningful in the states PAUSED and SLEEPING only. */
  readonly pausedAtMs: number;
  /** Number of starts that ended a sleep. */
  readonly wakes: number;
}

/** A particular sandbox of an instance: the target of a change. */
export interface InstanceRef {
  readonly id: string;
  readonly epoch: number;
}

/** A sandbox with its node, since another node may have taken over the instance. */
export interface OwnedInstanceRef extends InstanceRef {
  readonly nodeId: string;
}

/** The additional columns of an agent: its name and its create request. */
export interface AgentIdentity {
  readonly namespace: string;
  readonly name: string;
  readonly idempotency: { readonly key: string; readonly requestHash: string } | undefined;
  /** Another agent keeps the name until `takeAgentName` moves it. */
  readonly isCandidate?: boolean;
  readonly labels?: Labels | undefined;
  readonly template?: string | undefined;
}

/** The columns that a change may write; absent members stay unchanged. */
export interface InstancePatch {
  readonly status?: InstanceStatus;
  readonly statusReason?: string;
  readonly loadError?: string;
  readonly epoch?: number;
  readonly sandbox?: SandboxFacts;
  readonly handle?: string | null;
  readonly secret?: string;
  readonly startedAtMs?: number;
  readonly restartsInRow?: number;
  readonly restartAtMs?: number;
  readonly ttlMs?: number;
  readonly expiresAtMs?: number;
  readonly pausedAtMs?: number;
  readonly wakes?: number;
  readonly spec?: string;
  readonly cpuMillis?: number;
  readonly memoryMb?: number;
  readonly maxCallMs?: number;
}

/** A record to insert. */
type NewRow = Omit<
  Selectable<InstanceTable>,
  'restarts_in_row' | 'restart_at_ms' | 'expires_at_ms' | 'paused_at_ms' | 'wakes'
>;

const insertPrepared = prepare((db, p: NewRow) =>
  db
    .insertInto('instances')
    .values({
      id: p.id,
      owner_kind: p.owner_kind,
      owner_key: p.owner_key,
      tenant: p.tenant,
      namespace: p.namespace,
      name: p.name,
      status: p.status,
      status_reason: p.status_reason,
      load_error: p.load_error,
      epoch: p.epoch,
      node_id: p.node_id,
      sandbox_type: p.sandbox_type,
      cpu_millis: p.cpu_millis,
      memory_mb: p.memory_mb,
      concurrency: p.concurrency,
      max_call_ms: p.max_call_ms,
      spec: p.spec,
      sandbox: p.sandbox,
      handle: p.handle,
      secret: p.secret,
      created_at_ms: p.created_at_ms,
      started_at_ms: p.started_at_ms,
      idempotency_key: p.idempotency_key,
      request_hash: p.request_hash,
      labels: p.labels,
      template: p.template,
      ttl_ms: p.ttl_ms,
    })
    .onConflict(conflict => conflict.doNothing())
    .returning('id'),
);

/**
 * Inserts an instance. Returns false and writes nothing when its id, name or idempotency key is taken: the
 * database decides races.
 */
export async function insertInstance(
  queries: Queries,
  instance: StoredInstance,
  agent: AgentIdentity = NAMELESS,
): Promise<boolean> {
  const inserted = await insertPrepared(queries, {
    id: instance.id,
    owner_kind: instance.owner.kind,
    owner_key: instance.owner.key,
    tenant: instance.tenant,
    namespace: agent.namespace,
    name: agent.isCandidate === true ? namelessName(instance.id) : agent.name,
    status: instance.status,
    status_reason: instance.statusReason,
    load_error: instance.loadError,
    epoch: instance.epoch,
    node_id: instance.nodeId,
    sandbox_type: instance.sandboxType,
    cpu_millis: instance.cpuMillis,
    memory_mb: instance.memoryMb,
    concurrency: instance.concurrency,
    max_call_ms: instance.maxCallMs,
    spec: instance.spec,
    sandbox: JSON.stringify(instance.sandbox),
    handle: instance.handle,
    secret: instance.secret,
    created_at_ms: instance.createdAtMs,
    started_at_ms: instance.startedAtMs,
    idempotency_key: agent.idempotency?.key ?? null,
    request_hash: agent.idempotency?.requestHash ?? null,
    labels: labelColumn(agent.labels),
    template: agent.template ?? '',
    ttl_ms: instance.ttlMs,
  });
  return inserted.length === 1;
}

/**
 * Inserts an instance for an owner that acts under a lease. Returns false as `insertInstance` does. Fails
 * with `Fenced` when the lease is lost.
 */
export async function insertInstanceUnder(
  transaction: WriteTransaction,
  lease: LeaseFence | null,
  instance: StoredInstance,
): Promise<boolean> {
  await fence(transaction, lease);
  return await insertInstance(transaction, instance);
}

/**
 * Returns a placeholder for the unique name column of an agent without its name. No request can contain it:
 * names have no control characters.
 */
export function namelessName(id: string): string {
  return `\u0001${id}`;
}

const NAMELESS: AgentIdentity = { namespace: '', name: '', idempotency: undefined };

const ofId = prepare((db, p: { id: string }) => db.selectFrom('instances').selectAll().where('id', '=', p.id));

export async function findInstance(database: Database, id: string): Promise<StoredInstance | null> {
  const [row] = await ofId(database, { id });
  return row ? toStored(row) : null;
}

/** Returns the node that owns the instance; null: no such instance. */
export async function nodeOfInstance(database: Database, id: string): Promise<string | null> {
  const row = await database.selectFrom('instances').select('node_id').where('id', '=', id).executeTakeFirst();
  return row?.node_id ?? null;
}

/** Most ids in one query. */
export const MAX_IDS = 250;

/** Returns the instances that exist among these ids, at most `MAX_IDS` at a time. */
export async function* findInstances(database: Database, ids: readonly string[]): AsyncIterable<StoredInstance[]> {
  for (const some of chunksOf(ids, MAX_IDS)) {
    const rows = await database.selectFrom('instances').selectAll().where('id', 'in', some).execute();
    yield rows.map(toStored);
  }
}

/** Returns the instances of a node that may have a sandbox, or those of one kind. */
export async function listInstancesWithSandbox(
  database: Database,
  nodeId: string,
  kind: OwnerKind | null = null,
): Promise<StoredInstance[]> {
  const query = database.selectFrom('instances').selectAll().where('node_id', '=', nodeId).where(MAY_HAVE_SANDBOX);
  return (await (kind === null ? query : query.where('owner_kind', '=', kind)).execute()).map(toStored);
}

/** Returns the ids of the instances of a node that may have a sandbox. */
export async function listIdsWithSandbox(database: Database, nodeId: string): Promise<readonly string[]> {
  const query = database.selectFrom('instances').select('id').where('node_id', '=', nodeId).where(MAY_HAVE_SANDBOX);
  return (await query.execute()).map(({ id }) => id);
}

/** Returns all instances of a node, including ended agents. */
export async function listInstancesOfNode(database: Database, nodeId: string): Promise<StoredInstance[]> {
  const rows = await database.selectFrom('instances').selectAll().where('node_id', '=', nodeId).execute();
  return rows.map(toStored);
}

type States = readonly InstanceStatus[];

/** Prepares queries once for each list of states, of which only a few exist. */
function forStates<T>(build: (from: States) => T): (from: States) => T {
  const known = new WeakMap<States, T>();
  return from => {
    const prepared = known.get(from) ?? build(from);
    known.set(from, prepared);
    return prepared;
  };
}

/** Columns of an update, and the conditions `whereId`, `whereEpoch` and `whereNodeId`. */
type UpdateParameters = Readonly<Record<string, string | number | null>>;

/** Prepares one query for each list of states and set of columns: building it costs more than running it. */
const updateFrom = forStates(from => {
  const known = new Map<string, Prepared<UpdateParameters, unknown>>();
  const updateColumns = (columns: readonly string[]) =>
    prepare((db, p: UpdateParameters) =>
      db
        .updateTable('instances')
        .set(Object.fromEntries(columns.map(column => [column, p[column]])))
        .where('id', '=', p.whereId as string)
        .where('epoch', '=', p.whereEpoch as number)
        .where('node_id', '=', p.whereNodeId as string)
        .where('status', 'in', from)
        .returning('id'),
    );
  return (columns: readonly string[]) => {
    const key = columns.join();
    const prepared = known.get(key) ?? updateColumns(columns);
    known.set(key, prepared);
    return prepared;
  };
});

const deleteFrom = forStates(from =>
  prepare((db, p: OwnedInstanceRef) =>
    db
      .deleteFrom('instances')
      .where('id', '=', p.id)
      .where('epoch', '=', p.epoch)
      .where('node_id', '=', p.nodeId)
      .where('status', 'in', from)
      .returning('id'),
  ),
);

/**
 * Writes `patch` if the instance still has this sandbox and this node, and is in one of the states `from`.
 * Returns false otherwise.
 */
export async function updateInstance(
  queries: Queries,
  { id, epoch, nodeId }: OwnedInstanceRef,
  from: States,
  patch: InstancePatch,
): Promise<boolean> {
  const columns = Object.entries(toColumns(patch)).filter(([, value]) => value !== undefined);
  const update = updateFrom(from)(columns.map(([column]) => column));
  const conditions = { whereId: id, whereEpoch: epoch, whereNodeId: nodeId };
  return (await update(queries, { ...(Object.fromEntries(columns) as UpdateParameters), ...conditions })).length === 1;
}

/** Deletes the instance under the conditions of `updateInstance`. Returns false when they do not hold. */
export async function deleteInstance(
  queries: Queries,
  { id, epoch, nodeId }: OwnedInstanceRef,
  from: States,
): Promise<boolean> {
  return (await deleteFrom(from)(queries, { id, epoch, nodeId })).length === 1;
}

export function toStored(row: Selectable<InstanceTable>): StoredInstance {
  return {
    id: row.id,
    owner: { kind: row.owner_kind, key: row.owner_key },
    tenant: row.tenant,
    status: row.status,
    statusReason: row.status_reason,
    loadError: row.load_error,
    epoch: row.epoch,
    nodeId: row.node_id,
    sandboxType: row.sandbox_type,
    cpuMillis: row.cpu_millis,
    memoryMb: row.memory_mb,
    concurrency: row.concurrency,
    maxCallMs: row.max_call_ms,
    spec: row.spec,
    sandbox: JSON.parse(row.sandbox) as SandboxFacts,
    handle: row.handle,
    secret: row.secret,
    createdAtMs: row.created_at_ms,
    startedAtMs: row.started_at_ms,
    restartsInRow: Number(row.restarts_in_row),
    restartAtMs: Number(row.restart_at_ms),
    ttlMs: Number(row.ttl_ms),
    expiresAtMs: Number(row.expires_at_ms),
    pausedAtMs: Number(row.paused_at_ms),
    wakes: Number(row.wakes),
  };
}

/** Absent members become `undefined`. */
function toColumns(patch: InstancePatch) {
  return {
    status: patch.status,
    status_reason: patch.statusReason,
    load_error: patch.loadError,
    epoch: patch.epoch,
    sandbox: patch.sandbox && JSON.stringify(patch.sandbox),
    handle: patch.handle,
    secret: patch.secret,
    started_at_ms: patch.startedAtMs,
    restarts_in_row: patch.restartsInRow,
    restart_at_ms: patch.restartAtMs,
    ttl_ms: patch.ttlMs,
    expires_at_ms: patch.expiresAtMs,
    paused_at_ms: patch.pausedAtMs,
    wakes: patch.wakes,
    spec: patch.spec,
    cpu_millis: patch.cpuMillis,
    memory_mb: patch.memoryMb,
    max_call_ms: patch.maxCallMs,
  };
}
