import { type Kysely, sql } from 'kysely';
import { ServiceError } from '../core/error.ts';
import type { Tables, WriteTransaction } from './database.ts';

/** Row of `nodes`: one for each replica that ever was. It lives until `expires_at_ms`, by the clock of the database. */
export interface NodeTable {
  id: string;
  /** One more with each join. The node no longer owns the leases of its earlier epochs. */
  epoch: number;
  /** `host:port` where other replicas reach it; empty: nobody does. */
  advertise: string;
  /** Names with commas between. */
  roles: string;
  version: string;
  joined_at_ms: number;
  expires_at_ms: number;
}

/** A life of a node, as what it writes names it. */
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
  /** When it was read. */
  readonly expiresInMs: number;
}

export interface Joining {
  readonly id: string;
  readonly advertise: string;
  readonly roles: readonly string[];
  readonly version: string;
}

/** Milliseconds since 1970 by the clock of the database, the only one that all replicas share. Not that of the transaction's begin. */
export const DATABASE_NOW_MS = sql<number>`(extract(epoch from clock_timestamp()) * 1000)::bigint`;

type Queries = Kysely<Tables>;

/**
 * A new life of the node, after all writes of its former ones: it waits for those in flight. Answers its epoch. With `after`, the epoch of the
 * life that this process lost, null when another process lives under the same id: it is not to be pushed out by one that was replaced.
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
  // An update alone would not wait for `key share`, with which fences hold the row.
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

/** False: this life is over. An expired life does not come back. */
export async function prolongNode(queries: Queries, life: NodeLife, ttlMs: number): Promise<boolean> {
  const { numUpdatedRows } = await ofLife(queries.updateTable('nodes').set({ expires_at_ms: expiry(ttlMs) }), life)
    .where('expires_at_ms', '>', DATABASE_NOW_MS)
    .executeTakeFirst();
  return numUpdatedRows === 1n;
}

/** It lives on, and gets no more leases. */
export async function retireNode(transaction: WriteTransaction, life: NodeLife): Promise<void> {
  await ofLife(transaction.updateTable('nodes').set({ roles: '' }), life).execute();
}

/** The end of this life, at once. */
export async function endNode(transaction: WriteTransaction, life: NodeLife): Promise<void> {
  await ofLife(transaction.updateTable('nodes').set({ expires_at_ms: DATABASE_NOW_MS }), life).execute();
}

export async function listLivingNodes(queries: Queries): Promise<LivingNode[]> {
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

/** Forgets nodes whose last life ended so long ago and that hold nothing: in a cluster of pods each has a new name. */
export async function removeDeadNodes(queries: Queries, forMs: number): Promise<void> {
  await queries
    .deleteFrom('nodes')
    .where('expires_at_ms', '<', sql<number>`${DATABASE_NOW_MS} - ${sql.lit(forMs)}`)
    .where(({ not, exists, selectFrom }) =>
      not(exists(selectFrom('leases').select('name').whereRef('leases.node_id', '=', 'nodes.id'))),
    )
    .execute();
}

/**
 * For writes of a node about what is its own, at their beginning: the life is not over, and no later one of the node begins before the
 * transaction ends. Nothing with null: an embedded database has one node. Fails with `Fenced` (`unavailable`).
 */
export async function nodeFence(transaction: WriteTransaction, life: NodeLife | null): Promise<void> {
  if (life === null) return;
  const row = await ofLife(transaction.selectFrom('nodes').select('id'), life)
    .where('expires_at_ms', '>', DATABASE_NOW_MS)
    .forKeyShare()
    .executeTakeFirst();
  if (row === undefined) throw fenced(`this replica has lost its place in the cluster: nothing was written`);
}

/** Error of a write whose writer is not the owner any more. Nothing was written, and no second try would write it. */
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

/** The topic of the feed that tells that nodes came or went. */
export const TOPIC_NODES = 'nodes';
