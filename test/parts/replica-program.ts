import type { LeaseFence } from '../../src/cluster/contract.ts';
import { ClusterReplica } from '../../src/cluster/replicas.ts';
import { publish } from '../../src/storage/queries/feed.ts';
import { fence } from '../../src/storage/queries/leases.ts';
import type { DurableWrites } from '../../src/storage/writes/durable.ts';
import { connectTo, note, type ReplicaOrder, type SpawnOptions } from './replicas.ts';

/**
 * A replica that holds leases, writes under them and publishes by order of its parent process. It ends with
 * its parent.
 */
const [url = '', id = '', given = '{}'] = process.argv.slice(2);
const options = JSON.parse(given) as SpawnOptions;
const database = connectTo(url);
const log = { info: () => undefined, warn: () => undefined, error: () => undefined };
const replica = await ClusterReplica.open({
  url,
  self: { id, advertise: `${id}:1`, roles: ['frontend', 'meta', 'worker'], version: '1' },
  log,
  ...options,
});
const writes: DurableWrites = replica.feed.publishing({
  write: (operation, ...args) => database.transaction().execute(transaction => operation(transaction, ...args)),
  problem: () => null,
  close: () => database.destroy(),
});
let armed: LeaseFence | null = null;

async function done(order: ReplicaOrder): Promise<unknown> {
  switch (order.do) {
    case 'arm':
      armed = replica.shards.fence(order.lease);
      return null;
    case 'write': {
      const held = order.lease === 'armed' ? armed : replica.shards.fence(order.lease);
      await writes.write(async transaction => {
        await fence(transaction, held);
        await note(transaction, order.text);
      });
      return null;
    }
    case 'publish': {
      let next = 0;
      const one = async () => {
        while (next < order.count) {
          const key = `${order.name}-${next++}-${Date.now()}`;
          await writes.write(transaction => publish(transaction, 'things', key));
          if (order.everyMs > 0) await new Promise(resolve => setTimeout(resolve, order.everyMs));
        }
      };
      await Promise.all(Array.from({ length: order.atOnce }, one));
      return null;
    }
    case 'held':
      return replica.shards.count();
  }
}

const started = replica.join().then(() => {
  replica.setLeaseOwner({ onAcquired: () => undefined, onReleasing: async () => undefined, onLost: () => undefined });
});
process.on('message', async ({ id: number, order }: { id: number; order: ReplicaOrder }) => {
  try {
    await started;
    process.send?.({ id: number, result: await done(order) });
  } catch (error) {
    process.send?.({ id: number, error: (error as Error).message });
  }
});
process.on('disconnect', () => process.exit());
