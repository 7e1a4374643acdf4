import { sql } from 'kysely';
import { afterAll, afterEach, beforeAll, beforeEach, expect, test, vi } from 'vitest';
import { startPostgres, type TestPostgres } from '../../test/parts/postgres.ts';
import { note, Replicas } from '../../test/parts/replicas.ts';
import { describeWith } from '../../test/probe.ts';
import { nodeFence } from '../storage/queries/nodes.ts';

describeWith(['postgres'], 'the membership of replicas', () => {
  let server: TestPostgres;
  let replicas: Replicas;
  beforeAll(async () => {
    server = await startPostgres();
  });
  afterAll(() => server?.close());
  beforeEach(async () => {
    replicas = await Replicas.open(server);
  });
  afterEach(async () => {
    vi.useRealTimers();
    await replicas.close();
  });

  const idsSeenBy = (replica: { membership: { living(): readonly { id: string }[] } }) =>
    replica.membership.living().map(({ id }) => id);
  const write = (life: Parameters<typeof nodeFence>[1], text: string) =>
    replicas.write(async transaction => {
      await nodeFence(transaction, life);
      await note(transaction, text);
    });

  test('all replicas see a joining node immediately, with its address and roles', async () => {
    const { replica: a } = await replicas.start('a');
    const { replica: b } = await replicas.start('b', { roles: ['frontend'] });
    expect(idsSeenBy(b)).toEqual(['a', 'b']);
    await vi.waitFor(() => expect(idsSeenBy(a)).toEqual(['a', 'b']));
    expect(a.membership.living()[1]).toMatchObject({ advertise: 'b:1', roles: ['frontend'], version: '1', epoch: 1 });
    expect(a.membership.isMember()).toBe(true);
  });

  test('a leaving node is removed immediately, before its ttl has passed', async () => {
    const times = { ttlMs: 600_000, heartbeatMs: 300_000 };
    const { replica: a } = await replicas.start('a', { times });
    const { replica: b } = await replicas.start('b', { times });
    await vi.waitFor(() => expect(idsSeenBy(a)).toEqual(['a', 'b']));
    const life = b.membership.fence();
    await b.leave();
    await vi.waitFor(() => expect(idsSeenBy(a)).toEqual(['a']));
    await expect(write(life, 'late')).rejects.toThrow('lost its place');
  });

  test('heartbeats keep a node alive beyond its ttl, and a killed process is removed after its ttl', async () => {
    const { replica: a } = await replicas.start('a');
    const killed = await replicas.spawn('b');
    await vi.waitFor(() => expect(idsSeenBy(a)).toEqual(['a', 'b']));
    await killed.kill();
    await vi.waitFor(() => expect(idsSeenBy(a)).toEqual(['a']));
    expect(a.membership.life()).toEqual({ nodeId: 'a', nodeEpoch: 1 });
  });

  test('a second process with the same node id fences the first, and the first does not displace the second', async () => {
    const { replica: first, warnings } = await replicas.start('a');
    const life = first.membership.fence();
    await write(life, 'before');
    const { replica: second } = await replicas.start('a');
    await expect(write(life, 'after')).rejects.toMatchObject({ code: 'unavailable', retryAfterSeconds: 1 });
    await vi.waitFor(() => expect(warnings).toContain('heartbeat failed; retrying'));
    expect(first.membership.isMember()).toBe(false);
    expect(() => first.membership.fence()).toThrow('lost its place');
    expect(second.membership.life()).toEqual({ nodeId: 'a', nodeEpoch: 2 });
    await write(second.membership.fence(), 'second');
    expect(await replicas.notes()).toEqual(['before', 'second']);
    await second.leave();
    await vi.waitFor(() => expect(first.membership.life()).toEqual({ nodeId: 'a', nodeEpoch: 3 }));
  });

  test('twin finds a live process with the same node id, but no killed, stopped or departed one', async () => {
    const look = async () => (await replicas.make('a')).replica.membership.twin();
    expect(await look()).toBeNull();
    const killed = await replicas.spawn('a');
    for (let times = 0; times < 3; times += 1)
      expect(await look()).toMatchObject({ id: 'a', advertise: 'a:1', epoch: 1 });
    await killed.kill();
    expect(await look()).toBeNull();
    const frozen = await replicas.spawn('a');
    frozen.stop();
    expect(await look()).toBeNull();
    frozen.resume();
    await frozen.kill();
    const { replica: left } = await replicas.start('a');
    expect(await look()).toMatchObject({ id: 'a' });
    await left.leave();
    expect(await look()).toBeNull();
  });

  test('a join waits for in-flight writes of the previous epoch', async () => {
    const { replica: first } = await replicas.start('a');
    let joined: Promise<unknown> = Promise.resolve();
    let isJoined = false;
    const second = await replicas.make('a', { times: { queryTimeoutMs: 20_000 } });
    await replicas.write(async transaction => {
      await nodeFence(transaction, first.membership.fence());
      joined = second.replica.join().then(() => {
        isJoined = true;
      });
      // The join waits for the lock of the row.
      await vi.waitFor(async () => {
        const { rows } = await sql`select 1 from pg_stat_activity where wait_event_type = 'Lock'`.execute(
          replicas.database,
        );
        expect(rows).toHaveLength(1);
      });
      expect(isJoined).toBe(false);
      await note(transaction, 'in flight');
    });
    await joined;
    expect(second.replica.membership.life()).toEqual({ nodeId: 'a', nodeEpoch: 2 });
  });

  test('heartbeats do not wait for in-flight writes', async () => {
    const { replica } = await replicas.start('a');
    await replicas.write(async transaction => {
      await nodeFence(transaction, replica.membership.fence());
      const { rows } = await sql<{ at: string }>`select expires_at_ms as at from nodes`.execute(replicas.database);
      await vi.waitFor(async () => {
        const later = await sql<{ at: string }>`select expires_at_ms as at from nodes`.execute(replicas.database);
        expect(Number(later.rows[0]?.at)).toBeGreaterThan(Number(rows[0]?.at));
      });
    });
    expect(replica.membership.life()?.nodeEpoch).toBe(1);
  });

  test('membership does not depend on the clock of the machine', async () => {
    const { replica: a } = await replicas.start('a');
    for (const hours of [-1000, 1000]) {
      vi.useFakeTimers({ toFake: ['Date'], now: Date.now() + hours * 3_600_000 });
      const sentAgo = a.membership.heartbeatAgeMs();
      await vi.waitFor(() => expect(a.membership.heartbeatAgeMs()).toBeLessThan(sentAgo + 1));
      expect(a.membership.life()).toEqual({ nodeId: 'a', nodeEpoch: 1 });
      vi.useRealTimers();
    }
  });

  test('a node that counted as dead joins again with a new epoch', async () => {
    const { replica } = await replicas.start('a');
    const life = replica.membership.fence();
    await sql`update nodes set expires_at_ms = 0`.execute(replicas.database);
    await expect(write(life, 'late')).rejects.toThrow('lost its place');
    await vi.waitFor(() => expect(replica.membership.life()).toEqual({ nodeId: 'a', nodeEpoch: 2 }));
    await write(replica.membership.fence(), 'anew');
    expect(await replicas.notes()).toEqual(['anew']);
  });

  test('a node gives up its membership while the database does not answer, and joins again afterwards', async () => {
    await using own = await Replicas.open();
    const { replica } = await own.start('a', { times: { queryTimeoutMs: 500 } });
    for (const [away, back] of [
      [() => own.server.pause(), () => own.server.resume()],
      [() => own.server.kill(), () => own.server.start()],
    ] as const) {
      await vi.waitFor(() => expect(replica.membership.isMember()).toBe(true));
      await away();
      await vi.waitFor(() => expect(replica.membership.isMember()).toBe(false));
      expect(replica.feed.behindMs()).toBeGreaterThan(0);
      await back();
      await vi.waitFor(() => expect(replica.membership.isMember()).toBe(true));
      await vi.waitFor(() => expect(replica.feed.behindMs()).toBe(0));
    }
  });
});
