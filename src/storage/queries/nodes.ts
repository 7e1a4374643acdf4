import { type Kysely, sql } from 'kysely';
import { internal, ServiceError } from '../../core/error.ts';
import type { Database, Tables, WriteTransaction } from '../database.ts';

/** A life of a node, named by everything that the node writes. */
export interface NodeLife {
  readonly nodeId: string;
  readonly nodeEpoch: number;
}

export interface LivingNode {
  readonly id: string;
  readonly epoch: number;
  readonly advertise: string;
  readonly roles: readonly string[];
  readonly version: string;
  readonly joinedAtMs: number;
  /** Remaining time at the moment of the read. */
  readonly expiresInMs: number;
}

export interface Joining {
  readonly id: string;
  readonly advertise: string;
  readonly roles: readonly string[];
  readonly version: string;
}

/**
 * Milliseconds since 1970 by the clock of the database, the only one that all replicas share. Uses the
 * current time, not the start of the transaction.
 */
export const DATABASE_NOW_MS = sql<number>`(extract(epoch from clock_timestamp()) * 1000)::bigint`;

type NodeQueries = Kysely<Tables>;

/**
 * Starts a new life of the node, after all running writes of its former lives. Returns its epoch. `after` is
 * the epoch of the life that this process lost. With `after`, returns null when another live process has the
 * id: a replaced process must not displace it.
 */
export async function joinNode(
  transaction: WriteTransaction,
  { id, advertise, roles, version }: Joining,
  ttlMs: number,
  after: number | null,
): Promise<number | null> {
  const none = { id, epoch: 0, advertise: '', roles: '', version: '', joined_at_ms: 0, expires_at_ms: 0 };
  await transaction
    .insertInto('nodes')
    .values(none)
    .onConflict(conflict => conflict.doNothing())
    .execute();
  // An update alone would not wait for the `key share` locks of fences.
  const before = await transaction
    .selectFrom('nodes')
    .select(['epoch', sql<boolean>`expires_at_ms > ${DATABASE_NOW_MS}`.as('is_alive')])
    .where('id', '=', id)
    .forUpdate()
    .executeTakeFirstOrThrow();
  const epoch = Number(before.epoch);
  if (after !== null && epoch !== after && before.is_alive) return null;
  await transaction
    .updateTable('nodes')
    .set({
      epoch: epoch + 1,
      advertise,
      roles: roles.join(','),
      version,
      joined_at_ms: DATABASE_NOW_MS,
      expires_at_ms: expiry(ttlMs),
    })
    .where('id', '=', id)
    .execute();
  return epoch + 1;
}

/** Extends a life. Returns false when it has ended: an expired life cannot continue. */
export async function prolongNode(queries: NodeQueries, life: NodeLife, ttlMs: number): Promise<boolean> {
  const { numUpdatedRows } = await ofLife(queries.updateTable('nodes').set({ expires_at_ms: expiry(ttlMs) }), life)
    .where('expires_at_ms', '>', DATABASE_NOW_MS)
    .executeTakeFirst();
  return numUpdatedRows === 1n;
}

/** Keeps the node alive without roles, so that it gets no more leases. */
export async function retireNode(transaction: WriteTransaction, life: NodeLife): Promise<void> {
  await ofLife(transaction.updateTable('nodes').set({ roles: '' }), life).execute();
}

/** Ends this life at once. */
export async function endNode(transaction: WriteTransaction, life: NodeLife): Promise<void> {
  await ofLife(transaction.updateTable('nodes').set({ expires_at_ms: DATABASE_NOW_MS }), life).execute();
}

export async function listLivingNodes(queries: NodeQueries): Promise<LivingNode[]> {
  const rows = await queries
    .selectFrom('nodes')
    .selectAll()
    .select(sql<number>`expires_at_ms - ${DATABASE_NOW_MS}`.as('expires_in_ms'))
    .where('expires_at_ms', '>', DATABASE_NOW_MS)
    .execute();
  return rows
    .map(row => ({
      id: row.id,
      epoch: Number(row.epoch),
      advertise: row.advertise,
      roles: row.roles === '' ? [] : row.roles.split(','),
      version: row.version,
      joinedAtMs: Number(row.joined_at_ms),
      expiresInMs: Number(row.expires_in_ms),
    }))
    .sort((one, other) => (one.id < other.id ? -1 : 1));
}

/**
 * Deletes nodes that died more than `forMs` ago and hold no lease. In a cluster of pods each replica has a
 * new name.
 */
export async function removeDeadNodes(queries: NodeQueries, forMs: number): Promise<void> {
  await queries
    .deleteFrom('nodes')
    .where('expires_at_ms', '<', sql<number>`${DATABASE_NOW_MS} - ${sql.lit(forMs)}`)
    .where(({ not, exists, selectFrom }) =>
      not(exists(selectFrom('leases').select('name').whereRef('leases.node_id', '=', 'nodes.id'))),
    )
    .execute();
}

/**
 * Checks at the start of a node's write that its life has not ended. No later life of the node can begin
 * before the transaction ends. Does nothing with null: an embedded database has one node. Fails with `Fenced`
 * (`unavailable`).
 */
export async function nodeFence(transaction: WriteTransaction, life: NodeLife | null): Promise<void> {
  if (life === null) return;
  const row = await ofLife(transaction.selectFrom('nodes').select('id'), life)
    .where('expires_at_ms', '>', DATABASE_NOW_MS)
    .forKeyShare()
    .executeTakeFirst();
  if (row === undefined) throw fenced(`this replica has lost its place in the cluster: nothing was written`);
}

/** Error of a write by a former owner. Nothing was written, and a retry would fail too. */
export class Fenced extends ServiceError {
  constructor(message: string) {
    super('unavailable', message, { retryAfterSeconds: 1 });
  }
}

export function fenced(message: string): Error {
  return new Fenced(message);
}

function expiry(ttlMs: number) {
  return sql<number>`${DATABASE_NOW_MS} + ${sql.lit(ttlMs)}`;
}

// biome-ignore lint/suspicious/noExplicitAny: builders of Kysely have no type in common.
function ofLife<Q extends { where(column: any, operator: any, value: any): Q }>(query: Q, life: NodeLife): Q {
  return query.where('id', '=', life.nodeId).where('epoch', '=', life.nodeEpoch);
}

/** Feed topic: nodes joined or left. */
export const TOPIC_NODES = 'nodes';

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

/** Returns the id that all replicas over this database share and that no other installation has. */
export async function readInstallationId(database: Database): Promise<string> {
  const row = await database.selectFrom('installation').select('id').where('singleton', '=', 1).executeTakeFirst();
  if (row === undefined) throw internal('the id of the installation is missing in the database');
  return row.id;
}

/** Returns the key that signs links to public URLs. Fails with `internal` when the database has none. */
export async function readAddressKey(database: Database): Promise<Buffer> {
  const row = await database.selectFrom('address_key').select('key').where('singleton', '=', 1).executeTakeFirst();
  if (row === undefined) throw internal('the key of addresses is missing in the database');
  return Buffer.from(row.key, 'base64url');
}
