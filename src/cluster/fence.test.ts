import { sql } from 'kysely';
import { afterAll, afterEach, beforeAll, beforeEach, expect, test, vi } from 'vitest';
import { startPostgres, type TestPostgres } from '../../test/parts/postgres.ts';
import { Random } from '../../test/parts/random.ts';
import { Replicas, type TestReplica } from '../../test/parts/replicas.ts';
import { describeWith } from '../../test/probe.ts';
import { ServiceError } from '../core/error.ts';
import { SHARD_NAMES } from '../core/lease.ts';
import { fence } from '../storage/queries/leases.ts';
import type { LeaseFence, LeaseName } from './contract.ts';

describeWith(['postgres'], 'writes under a lease', () => {
  let server: TestPostgres;
  let replicas: Replicas;
  beforeAll(async () => {
    server = await startPostgres();
  });
  afterAll(() => server?.close());
  beforeEach(async () => {
    replicas = await Replicas.open(server);
  });
  afterEach(() => replicas.close());

  const own = SHARD_NAMES[5] as LeaseName;

  test('a process that slept past its ttl cannot write under its old leases after waking', async () => {
    const slept = await replicas.spawn('slept');
    await vi.waitFor(async () => expect(await slept.ask({ do: 'held' })).toMatchObject({ shard: 64 }));
    await slept.ask({ do: 'arm', lease: own });
    await slept.ask({ do: 'write', lease: own, text: 'before' });
    const other = await replicas.start('other');
    // The other replica may hold some shards already. A stopped process releases none.
    slept.stop();
    await vi.waitFor(() => expect(other.replica.shards.count().shard).toBe(64));
    // First writes of the process when it resumes.
    const late = [
      slept.ask({ do: 'write', lease: 'armed', text: 'with what it had before' }),
      slept.ask({ do: 'write', lease: own, text: 'with what it believes' }),
    ];
    slept.resume();
    for (const result of await Promise.allSettled(late)) expect(result).toMatchObject({ status: 'rejected' });
    expect(await replicas.notes()).toEqual(['before']);
    // The process joins with a new epoch, and its old fences stay invalid.
    await vi.waitFor(async () => expect(await slept.ask({ do: 'held' })).toMatchObject({ shard: 32 }));
    await expect(slept.ask({ do: 'write', lease: 'armed', text: 'later' })).rejects.toThrow('any more');
    expect(await replicas.notes()).toEqual(['before']);
  });

  test('a process that stops during a write delays a takeover only briefly, and its write is rolled back', async () => {
    const a = await replicas.start('a');
    await vi.waitFor(() => expect(a.replica.shards.count().shard).toBe(64));
    const held = a.replica.shards.fence(own);
    const stopped = replicas.write(async transaction => {
      await sql`set local idle_in_transaction_session_timeout = 200`.execute(transaction);
      await fence(transaction, held);
      await sql`update nodes set expires_at_ms = 0`.execute(replicas.database);
      await vi.waitFor(() => expect(a.replica.shards.fence(own).epoch).toBeGreaterThan(held.epoch));
      await sql`insert into notes (text) values ('late')`.execute(transaction);
    });
    await expect(stopped).rejects.toThrow();
    expect(await replicas.notes()).toEqual([]);
  });

  test('no lease has two writing holders at a time under random failures of nodes and connections', async () => {
    const seed = Number(process.env.SEED ?? Date.now() % 1_000_000);
    const random = new Random(seed);
    await sql`create table history (id bigserial primary key, lease text, epoch bigint, node text, life bigint)`.execute(
      replicas.database,
    );
    const times = { ttlMs: 1000, heartbeatMs: 100, marginMs: 100, retryMs: 20, releaseWaitMs: 200, pollMs: 100 };
    const nodes = new Map<string, TestReplica>();
    const start = async (id: string) => void nodes.set(id, await replicas.start(id, { times }));
    for (const id of ['a', 'b', 'c']) await start(id);
    let isOver = false;
    let written = 0;
    let refused = 0;
    const old: LeaseFence[] = [];
    const leases = SHARD_NAMES.slice(0, 6);
    const writer = async (mine: Random) => {
      while (!isOver) {
        const held = fenceOf(mine);
        if (held === undefined) {
          await new Promise(resolve => setImmediate(resolve));
          continue;
        }
        old.push(held);
        if (old.length > 50) old.shift();
        const { name, epoch, nodeId, nodeEpoch } = held;
        try {
          await replicas.write(async transaction => {
            await fence(transaction, held);
            if (mine.chance(0.2)) await sql`select pg_sleep(${mine.next() * 0.05})`.execute(transaction);
            await sql`insert into history (lease, epoch, node, life) values (${name}, ${epoch}, ${nodeId}, ${nodeEpoch})`.execute(
              transaction,
            );
          });
          written++;
        } catch (error) {
          if (error instanceof ServiceError) refused++;
        }
      }
    };
    /** Returns a current or earlier fence of a random node; undefined if the node does not hold the lease. */
    const fenceOf = (mine: Random): LeaseFence | undefined => {
      if (mine.chance(0.3)) return mine.pickAny(old);
      const shards = mine.pickAny([...nodes.values()])?.replica.shards;
      const name = mine.pick(leases);
      return shards?.holds(name) === true ? shards.fence(name) : undefined;
    };
    const writers = [1, 2, 3, 4].map(offset => writer(new Random(seed + offset)));
    for (let step = 0; step < 40; step++) {
      const id = random.pick(['a', 'b', 'c']);
      const node = nodes.get(id);
      const chosen = random.below(4);
      if (chosen === 0) await sql`update nodes set expires_at_ms = 0 where id = ${id}`.execute(replicas.database);
      else if (chosen === 1 && node !== undefined) {
        if (random.chance(0.5)) await node.replica.retire();
        await node.replica.leave();
        nodes.delete(id);
      } else if (chosen === 2 && node === undefined) await start(id);
      else {
        // Terminates about 30 % of the connections, except the one of this query.
        await sql`select pg_terminate_backend(pid) from pg_stat_activity
          where datname = current_database() and pid <> pg_backend_pid() and random() < 0.3`
          .execute(replicas.database)
          .catch(() => undefined);
      }
      if (nodes.size === 0) await start(id);
      await new Promise(resolve => setTimeout(resolve, random.below(60)));
    }
    // In the end every shard has an owner again.
    await vi.waitFor(() => {
      const counts = [...nodes.values()].map(({ replica }) => replica.shards.count().shard);
      expect(counts.reduce((sum, count) => sum + count, 0)).toBe(64);
    });
    isOver = true;
    await Promise.all(writers);
    const { rows } = await sql<{ id: number; lease: string; epoch: string; node: string; life: string }>`
      select * from history order by id`.execute(replicas.database);
    expect(rows.length, `seed ${seed}`).toBeGreaterThan(50);
    expect(refused, `seed ${seed}`).toBeGreaterThan(0);
    const last = new Map<string, { epoch: number; holder: string }>();
    for (const row of rows) {
      const before = last.get(row.lease);
      const [epoch, holder] = [Number(row.epoch), `${row.node} ${row.life}`];
      if (before !== undefined) {
        expect(epoch, `seed ${seed}, ${row.lease}`).toBeGreaterThanOrEqual(before.epoch);
        if (epoch === before.epoch) expect(holder, `seed ${seed}, ${row.lease}`).toBe(before.holder);
      }
      last.set(row.lease, { epoch, holder });
    }
    process.stdout.write(
      `fenced writes: ${written} done, ${refused} refused, ${new Set(rows.map(row => `${row.lease} ${row.epoch}`)).size} holdings\n`,
    );
  });
});
