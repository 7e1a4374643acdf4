import { type Kysely, sql } from 'kysely';
import type { LeaseFence } from '../../core/lease.ts';
import type { Tables, WriteTransaction } from '../database.ts';
import { DATABASE_NOW_MS, fenced, type NodeLife, nodeFence } from './nodes.ts';

export interface LeaseRecord {
  readonly name: string;
  readonly epoch: number;
  /** The life of the node that holds the lease; null: the lease is free, or its holder is dead. */
  readonly holder: NodeLife | null;
}

/** A particular holding of a lease, which a take-over compares before it changes the lease. */
export interface LeaseEpoch {
  readonly name: string;
  readonly epoch: number;
}

export async function listLeases(queries: Kysely<Tables>): Promise<LeaseRecord[]> {
  const rows = await queries
    .selectFrom('leases')
    .leftJoin('nodes', join =>
      join
        .onRef('nodes.id', '=', 'leases.node_id')
        .onRef('nodes.epoch', '=', 'leases.node_epoch')
        .on('nodes.expires_at_ms', '>', DATABASE_NOW_MS),
    )
    .select(['leases.name', 'leases.node_id', 'leases.node_epoch', 'leases.epoch', 'nodes.id as living'])
    .execute();
  return rows.map(row => ({
    name: row.name,
    epoch: Number(row.epoch),
    holder: row.living === null ? null : { nodeId: row.node_id, nodeEpoch: Number(row.node_epoch) },
  }));
}

/**
 * Takes those leases of `wanted` that are free or have a dead holder, and returns them with their new epochs.
 * Does not wait for locks. Skips a lease that a running write holds by its fence, or that another node is
 * taking. Also skips a lease while its holder is sending a heartbeat.
 */
export async function takeLeases(
  transaction: WriteTransaction,
  taker: NodeLife,
  wanted: readonly LeaseEpoch[],
): Promise<LeaseEpoch[]> {
  await nodeFence(transaction, taker);
  const names = wanted.map(({ name }) => name);
  // The order matters: after the lock, the next statement reads the record again and sees changes committed
  // meanwhile.
  const locked = await transaction
    .selectFrom('leases')
    .select(['name', 'epoch', 'node_id'])
    .where('name', 'in', names)
    .orderBy('name')
    .forUpdate()
    .skipLocked()
    .execute();
  const epochs = new Map(wanted.map(({ name, epoch }) => [name, epoch]));
  const same = locked.filter(({ name, epoch }) => epochs.get(name) === Number(epoch));
  if (same.length === 0) return [];
  const holders = [...new Set(same.map(row => row.node_id))];
  // An uncommitted heartbeat holds a lock on its node's record. The lock is shared, so that nodes that take
  // from the same dead node do not wait for each other.
  const seen = await transaction
    .selectFrom('nodes')
    .select('id')
    .where('id', 'in', holders)
    .orderBy('id')
    .forShare()
    .skipLocked()
    .execute();
  const all = await transaction.selectFrom('nodes').select('id').where('id', 'in', holders).execute();
  const held = new Set(seen.map(({ id }) => id));
  const busy = new Set(all.map(({ id }) => id).filter(id => !held.has(id)));
  const free = same.filter(row => !busy.has(row.node_id)).map(({ name }) => name);
  if (free.length === 0) return [];
  const taken = await transaction
    .updateTable('leases')
    .set({ node_id: taker.nodeId, node_epoch: taker.nodeEpoch, epoch: sql`epoch + 1` })
    .where('name', 'in', free)
    .where(({ not, exists, selectFrom }) =>
      not(
        exists(
          selectFrom('nodes')
            .select('id')
            .whereRef('nodes.id', '=', 'leases.node_id')
            .whereRef('nodes.epoch', '=', 'leases.node_epoch')
            .where('expires_at_ms', '>', DATABASE_NOW_MS),
        ),
      ),
    )
    .returning(['name', 'epoch'])
    .execute();
  return taken.map(({ name, epoch }) => ({ name, epoch: Number(epoch) }));
}

/**
 * Passes a lease to another life, or frees it (null), after all running writes under it. Also frees it when
 * that life has ended or retires, so that a retiring node gets no lease after its retirement is written.
 * Returns false when the giver no longer held it.
 */
export async function passLease(
  transaction: WriteTransaction,
  { name, epoch, nodeId, nodeEpoch }: LeaseFence,
  to: NodeLife | null,
): Promise<boolean> {
  const { numUpdatedRows } = await transaction
    .updateTable('leases')
    .set({ node_id: to?.nodeId ?? '', node_epoch: to?.nodeEpoch ?? 0, epoch: epoch + 1 })
    .where('name', '=', name)
    .where('epoch', '=', epoch)
    .where('node_id', '=', nodeId)
    .where('node_epoch', '=', nodeEpoch)
    .executeTakeFirst();
  if (numUpdatedRows !== 1n) return false;
  if (to === null || (await canReceive(transaction, to))) return true;
  await transaction
    .updateTable('leases')
    .set({ node_id: '', node_epoch: 0 })
    .where('name', '=', name)
    .where('epoch', '=', epoch + 1)
    .execute();
  return true;
}

/**
 * Tells whether the life can get a lease. The lock delays its retirement until the transaction ends. It comes
 * last, because it also delays the node's heartbeats.
 */
async function canReceive(transaction: WriteTransaction, { nodeId, nodeEpoch }: NodeLife): Promise<boolean> {
  const row = await transaction
    .selectFrom('nodes')
    .select('id')
    .where('id', '=', nodeId)
    .where('epoch', '=', nodeEpoch)
    .where('roles', '!=', '')
    .forShare()
    .executeTakeFirst();
  return row !== undefined;
}

/**
 * Checks at the start of an owner's write that the lease is held as in the fence. No other node can take the
 * lease before the transaction ends. Does nothing with null: an embedded database has one owner. Fails with
 * `unavailable`; the caller must then write nothing.
 */
export async function fence(transaction: WriteTransaction, held: LeaseFence | null): Promise<void> {
  if (held === null) return;
  const row = await transaction
    .selectFrom('nodes')
    .innerJoin('leases', join =>
      join.onRef('leases.node_id', '=', 'nodes.id').onRef('leases.node_epoch', '=', 'nodes.epoch'),
    )
    .select('nodes.id')
    .where('nodes.id', '=', held.nodeId)
    .where('nodes.epoch', '=', held.nodeEpoch)
    .where('nodes.expires_at_ms', '>', DATABASE_NOW_MS)
    .where('leases.name', '=', held.name)
    .where('leases.epoch', '=', held.epoch)
    // The weaker lock, so that heartbeats are not blocked.
    .forKeyShare('nodes')
    .forShare('leases')
    .executeTakeFirst();
  if (row === undefined) throw fenced(`this replica does not own "${held.name}" any more: nothing was written`);
}

/** Feed topic: leases changed their holders. */
export const TOPIC_LEASES = 'leases';
