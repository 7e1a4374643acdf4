import { sql } from 'kysely';
import { afterAll, afterEach, beforeAll, beforeEach, expect, test, vi } from 'vitest';
import { startPostgres, type TestPostgres } from '../../test/parts/postgres.ts';
import { note, Replicas, type TestReplica } from '../../test/parts/replicas.ts';
import { describeWith } from '../../test/probe.ts';
import { SHARD_NAMES } from '../core/lease.ts';
import { fence, passLease } from '../storage/queries/leases.ts';
import type { LeaseFence, LeaseName } from './contract.ts';

describeWith(['postgres'], 'the leases of replicas', () => {
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

  const shards = (...all: readonly TestReplica[]) => all.map(({ replica }) => replica.shards.count().shard);
  const holding = (count: number, ...all: readonly TestReplica[]) =>
    vi.waitFor(() => expect(shards(...all).every(each => each === count)).toBe(true));
  const write = (held: LeaseFence, text: string) =>
    replicas.write(async transaction => {
      await fence(transaction, held);
      await note(transaction, text);
    });
  const end = (id: string) => sql`update nodes set expires_at_ms = 0 where id = ${id}`.execute(replicas.database);

  test('all leases belong to one node, are shared by three, and by two when one has left', async () => {
    const a = await replicas.start('a');
    await holding(64, a);
    expect(a.replica.shards.count()).toEqual({ shard: 64, jobs: 1, sweeper: 1 });
    const b = await replicas.start('b');
    const c = await replicas.start('c');
    await vi.waitFor(() => expect(shards(a, b, c).toSorted()).toEqual([21, 21, 22]));
    await c.replica.retire();
    await c.replica.leave();
    await holding(32, a, b);
    const named = (['jobs', 'sweeper'] as const).map(name =>
      [a, b].filter(({ replica }) => replica.shards.holds(name)),
    );
    expect(named.map(holders => holders.length)).toEqual([1, 1]);
    // All nodes know the same owners.
    await vi.waitFor(() => {
      for (const name of SHARD_NAMES) {
        const owners = [a, b].map(({ replica }) => replica.shards.ownerOf(name)?.id);
        expect(owners[0]).toBe(owners[1]);
        expect([a, b].filter(({ replica }) => replica.shards.holds(name)).map(({ replica }) => replica.nodeId)).toEqual(
          [owners[0]],
        );
      }
    });
  });

  test('only workers hold shards and jobs, and the sweeper lease moves to a worker when one exists', async () => {
    const front = await replicas.start('a', { roles: ['frontend', 'meta'] });
    await vi.waitFor(() => expect(front.replica.shards.count()).toEqual({ shard: 0, jobs: 0, sweeper: 1 }));
    expect(front.replica.shards.ownerOf('jobs')).toBeNull();
    const worker = await replicas.start('b', { roles: ['worker'] });
    await holding(64, worker);
    await vi.waitFor(() => expect(front.replica.shards.ownerOf('jobs')?.id).toBe('b'));
    await vi.waitFor(() => expect(worker.replica.shards.count()).toEqual({ shard: 64, jobs: 1, sweeper: 1 }));
    expect(front.replica.shards.count()).toEqual({ shard: 0, jobs: 0, sweeper: 0 });
    // Another node without the worker role does not get the sweeper lease.
    const meta = await replicas.start('c', { roles: ['meta'] });
    await vi.waitFor(() => expect(meta.replica.shards.ownerOf('sweeper')?.id).toBe('b'));
    await worker.replica.retire();
    await worker.replica.leave();
    await vi.waitFor(() => expect(front.replica.shards.count().sweeper + meta.replica.shards.count().sweeper).toBe(1));
  });

  test('a lease is transferred only when its owner has released it, and its fence is valid until then', async () => {
    const a = await replicas.start('a', { times: { releaseWaitMs: 60_000 } });
    await holding(64, a);
    const releasing: LeaseName[] = [];
    let letGo: () => void = () => undefined;
    const gate = new Promise<void>(resolve => {
      letGo = resolve;
    });
    a.onReleasing = name => {
      releasing.push(name);
      return gate;
    };
    const b = await replicas.start('b');
    await vi.waitFor(() => expect(releasing.length).toBeGreaterThan(0));
    const [name = 'shard-00'] = releasing;
    expect(a.replica.shards.holds(name)).toBe(true);
    expect(b.replica.shards.holds(name)).toBe(false);
    const held = a.replica.shards.fence(name);
    await write(held, 'while it is asked to let go');
    letGo();
    await holding(32, a, b);
    expect(b.events).toContainEqual(['acquired', name]);
    expect(a.events.filter(event => event[1] === name).map(([kind]) => kind)).toEqual(['acquired', 'releasing']);
    expect(a.events.some(([kind]) => kind === 'lost')).toBe(false);
    await expect(write(held, 'late')).rejects.toMatchObject({ code: 'unavailable', retryAfterSeconds: 1 });
    expect(() => a.replica.shards.fence(name)).toThrow(`does not own "${name}"`);
    expect(await replicas.notes()).toEqual(['while it is asked to let go']);
  });

  test('a node that does not release a lease in time, or fails to, loses the lease', async () => {
    const a = await replicas.start('a', { times: { releaseWaitMs: 20, maxReleasing: 64 } });
    await holding(64, a);
    let calls = 0;
    a.onReleasing = () => (calls++ % 2 === 0 ? new Promise(() => undefined) : Promise.reject(new Error('no')));
    const b = await replicas.start('b');
    await holding(32, a, b);
    expect(a.warnings).toContain('transferring lease before its work has ended');
  });

  test('a retiring node transfers all leases while still a member, and acquires none', async () => {
    const a = await replicas.start('a');
    await holding(64, a);
    const b = await replicas.start('b');
    const c = await replicas.start('c', { roles: ['worker'] });
    await vi.waitFor(() => expect(shards(a, b, c).toSorted()).toEqual([21, 21, 22]));
    await a.replica.retire();
    expect(a.replica.shards.count()).toEqual({ shard: 0, jobs: 0, sweeper: 0 });
    expect(a.replica.membership.isMember()).toBe(true);
    await holding(32, b, c);
    expect(a.replica.shards.ownerOf('jobs')?.id).toMatch(/^[bc]$/);
    await vi.waitFor(() => expect(b.replica.shards.count().jobs + c.replica.shards.count().jobs).toBe(1));
    expect(a.events.filter(([kind]) => kind === 'lost')).toEqual([]);
  });

  test('a lease that is being passed to a retiring node is released before its retirement ends', async () => {
    const [a, b] = [await replicas.start('a'), await replicas.start('b')];
    await holding(32, a, b);
    const name = SHARD_NAMES.find(each => a.replica.shards.holds(each)) ?? 'shard-00';
    const life = b.replica.membership.life();
    let retired: Promise<void> | undefined;
    await replicas.write(async transaction => {
      expect(await passLease(transaction, a.replica.shards.fence(name), life)).toBe(true);
      retired = b.replica.retire();
      await vi.waitFor(async () => {
        const { rows } = await sql`select 1 from pg_stat_activity where wait_event_type = 'Lock'
          and datname = current_database()`.execute(replicas.database);
        expect(rows).not.toHaveLength(0);
      });
    });
    await retired;
    expect(b.replica.shards.count()).toEqual({ shard: 0, jobs: 0, sweeper: 0 });
    await holding(64, a);
  });

  test('a lease that is passed to a retired node is free', async () => {
    const [a, b] = [await replicas.start('a'), await replicas.start('b')];
    await holding(32, a, b);
    const life = b.replica.membership.life();
    await b.replica.retire();
    await holding(64, a);
    await replicas.write(async transaction => {
      expect(await passLease(transaction, a.replica.shards.fence('shard-00'), life)).toBe(true);
      const lease = await transaction
        .selectFrom('leases')
        .selectAll()
        .where('name', '=', 'shard-00')
        .executeTakeFirst();
      expect(lease).toMatchObject({ node_id: '' });
    });
  });

  test('the shards of a killed process are spread over all other nodes, each to exactly one', async () => {
    const killed = await replicas.spawn('dead');
    const [a, b] = [await replicas.start('a'), await replicas.start('b')];
    await vi.waitFor(async () => {
      const held = (await killed.ask({ do: 'held' })) as { shard: number };
      expect([held.shard, ...shards(a, b)].toSorted()).toEqual([21, 21, 22]);
    });
    await killed.kill();
    await holding(32, a, b);
    for (const name of SHARD_NAMES) expect(a.replica.shards.holds(name)).toBe(!b.replica.shards.holds(name));
    expect(a.events.concat(b.events).filter(([kind]) => kind === 'lost')).toEqual([]);
  });

  test('a takeover waits for an in-flight writer, and only for the lease of that writer', async () => {
    const a = await replicas.start('a');
    await holding(64, a);
    const b = await replicas.start('b', { times: { ttlMs: 60_000, heartbeatMs: 200 } });
    await holding(32, a, b);
    const name = SHARD_NAMES.find(each => a.replica.shards.holds(each)) as LeaseName;
    const held = a.replica.shards.fence(name);
    await replicas.write(async transaction => {
      await fence(transaction, held);
      // Node a never returns in this epoch: its heartbeats find another epoch.
      await sql`update nodes set expires_at_ms = 0, epoch = epoch + 100 where id = 'a'`
        .execute(replicas.database)
        .catch(() => end('a'));
      await vi.waitFor(() => expect(b.replica.shards.count().shard).toBe(63));
      await vi.waitFor(() => expect(a.replica.membership.life()?.nodeEpoch).not.toBe(held.nodeEpoch));
      expect(b.replica.shards.holds(name)).toBe(false);
      expect(a.replica.shards.holds(name)).toBe(false);
      await note(transaction, 'in flight');
    });
    await vi.waitFor(() => expect(a.replica.shards.holds(name) || b.replica.shards.holds(name)).toBe(true));
    expect(await replicas.notes()).toEqual(['in flight']);
    await expect(write(held, 'late')).rejects.toThrow(`does not own "${name}" any more`);
  });

  test('a node that lost its membership drops every lease immediately, and gets new epochs later', async () => {
    const a = await replicas.start('a');
    await holding(64, a);
    const held = a.replica.shards.fence('shard-07');
    await end('a');
    await vi.waitFor(() => expect(a.events).toContainEqual(['lost', 'shard-07']));
    await holding(64, a);
    expect(a.events.filter(event => event[1] === 'shard-07').map(([kind]) => kind)).toEqual([
      'acquired',
      'lost',
      'acquired',
    ]);
    expect(a.replica.shards.fence('shard-07').epoch).toBeGreaterThan(held.epoch);
    await expect(write(held, 'late')).rejects.toThrow('any more');
    await write(a.replica.shards.fence('shard-07'), 'anew');
  });

  test('epochs follow the database even when the database returns to lower ones', async () => {
    const a = await replicas.start('a');
    await holding(64, a);
    const setEpochs = (epoch: number) => sql`update leases set epoch = ${epoch}`.execute(replicas.database);
    await setEpochs(1000);
    await vi.waitFor(() => expect(a.replica.shards.fence('shard-07').epoch).toBe(1000));
    await setEpochs(5);
    await sql`delete from feed`.execute(replicas.database);
    await sql`update feed_counter set seq = 0`.execute(replicas.database);
    await vi.waitFor(() => expect(a.replica.shards.fence('shard-07').epoch).toBe(5));
    await write(a.replica.shards.fence('shard-07'), 'as it is now');
  });
});
