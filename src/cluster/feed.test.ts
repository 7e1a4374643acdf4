import { setTimeout as delay } from 'node:timers/promises';
import { sql } from 'kysely';
import { afterAll, afterEach, beforeAll, beforeEach, expect, test, vi } from 'vitest';
import { startPostgres, type TestPostgres } from '../../test/parts/postgres.ts';
import { note, Replicas } from '../../test/parts/replicas.ts';
import { describeWith } from '../../test/probe.ts';
import { openDatabase } from '../storage/database.ts';
import { publish, trimFeed } from '../storage/queries/feed.ts';
import type { DurableWrites, WriteOperation } from '../storage/writes/durable.ts';
import type { ClusterReplica } from './replicas.ts';

const MISSING = 'changes of other replicas may be missing: everything is read anew';

describeWith(['postgres'], 'the feed of changes', () => {
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

  /** Durable writes of a replica over connections of the test. */
  const writesOf = (replica: ClusterReplica): DurableWrites =>
    replica.feed.publishing({
      write: <A extends readonly unknown[], R>(operation: WriteOperation<A, R>, ...args: A) =>
        replicas.write(transaction => operation(transaction, ...args)),
      problem: () => null,
      close: async () => undefined,
    });
  const heard = (replica: ClusterReplica, topic = 'things') => {
    const keys: (string | null)[] = [];
    replica.feed.subscribe(topic, key => void keys.push(key));
    return keys;
  };
  const stored = async () => {
    const { rows } = await sql<{
      seq: string;
      key: string;
    }>`select seq, key from feed where topic = 'things' order by seq`.execute(replicas.database);
    return rows;
  };

  test('other replicas receive a change with topic and key after its commit, the own replica does not', async () => {
    const times = { pollMs: 600_000 };
    const [a, b] = [await replicas.start('a', { times }), await replicas.start('b', { times })];
    const [keysA, keysB, others] = [heard(a.replica), heard(b.replica), heard(b.replica, 'others')];
    await writesOf(a.replica).write(async transaction => {
      await note(transaction, 'x');
      await publish(transaction, 'things', 'x');
      await publish(transaction, 'others', null);
      await delay(20);
      expect(keysB).toEqual([]);
    });
    await vi.waitFor(() => expect([keysB, others]).toEqual([['x'], [null]]));
    await writesOf(b.replica).write(transaction => publish(transaction, 'things', 'y'));
    await vi.waitFor(() => expect(keysA).toEqual(['y']));
    expect(keysB).toEqual(['x']);
  });

  test('a rolled-back change reaches no replica and leaves no gap', async () => {
    const [a, b] = [await replicas.start('a'), await replicas.start('b')];
    const keys = heard(b.replica);
    const writes = writesOf(a.replica);
    for (const name of ['one', 'two', 'three']) {
      const undone = writes.write(async transaction => {
        await publish(transaction, 'things', `not ${name}`);
        throw new Error('no');
      });
      await expect(undone).rejects.toThrow('no');
      await writes.write(transaction => publish(transaction, 'things', name));
    }
    await vi.waitFor(() => expect(keys).toEqual(['one', 'two', 'three']));
    expect(b.warnings).not.toContain(MISSING);
  });

  test('changes arrive in the order of their commits even when an earlier transaction commits late', async () => {
    const [a, b] = [await replicas.start('a'), await replicas.start('b')];
    const keys = heard(b.replica);
    const writes = writesOf(a.replica);
    let finish: () => void = () => undefined;
    const gate = new Promise<void>(resolve => {
      finish = resolve;
    });
    const slow = writes.write(async transaction => {
      await note(transaction, 'began first');
      await gate;
      await publish(transaction, 'things', 'slow');
    });
    await Promise.all(
      Array.from({ length: 20 }, (_, index) =>
        writes.write(async transaction => {
          await note(transaction, String(index));
          await publish(transaction, 'things', String(index));
        }),
      ),
    );
    finish();
    await slow;
    const committed = (await stored()).map(({ key }) => key);
    expect(committed.at(-1)).toBe('slow');
    await vi.waitFor(() => expect(keys).toEqual(committed));
  });

  test('all replicas receive a change that is published without a feed', async () => {
    const [a, b] = [await replicas.start('a'), await replicas.start('b')];
    const [keysA, keysB] = [heard(a.replica), heard(b.replica)];
    await replicas.write(transaction => publish(transaction, 'things', 'x'));
    await vi.waitFor(() => expect([keysA, keysB]).toEqual([['x'], ['x']]));
  });

  test('publish writes nothing to an embedded database', async () => {
    const database = await openDatabase(':memory:');
    await database.transaction().execute(transaction => publish(transaction, 'things', 'x'));
    expect(await database.selectFrom('feed').selectAll().execute()).toEqual([]);
    await database.destroy();
  });

  test('a replica that missed removed changes is notified that anything may have changed', async () => {
    const [a, b] = [
      await replicas.start('a'),
      await replicas.start('b', { times: { pollMs: 100 }, hasWakeUps: false }),
    ];
    const keys = heard(b.replica);
    const writes = writesOf(a.replica);
    // One transaction, so that no replica reads between the changes.
    await writes.write(async transaction => {
      for (const key of ['1', '2', '3']) await publish(transaction, 'things', key);
      await sql`delete from feed`.execute(transaction);
      await publish(transaction, 'things', '4');
    });
    await vi.waitFor(() => expect(keys).toEqual([null]));
    expect(b.warnings).toContain(MISSING);
    await writes.write(transaction => publish(transaction, 'things', '5'));
    await vi.waitFor(() => expect(keys).toEqual([null, '5']));
  });

  test('the feed reports that anything may have changed after a database restart, and continues', async () => {
    await using own = await Replicas.open();
    const a = await own.start('a', { times: { queryTimeoutMs: 1000 } });
    const keys = heard(a.replica);
    for (const end of [() => own.server.stop(), () => own.server.kill()]) {
      await end();
      await own.server.start();
      await vi.waitFor(() => expect(keys.at(-1)).toBe(null));
      await vi.waitFor(() => expect(a.replica.feed.behindMs()).toBe(0));
      keys.length = 0;
    }
    const b = await own.start('b');
    const writes = b.replica.feed.publishing({
      write: (operation, ...args) => own.write(transaction => operation(transaction, ...args)),
      problem: () => null,
      close: async () => undefined,
    });
    await writes.write(transaction => publish(transaction, 'things', 'x'));
    await vi.waitFor(() => expect(keys).toEqual(['x']));
  });

  test('an error of one listener does not stop the other listeners', async () => {
    const [a, b] = [await replicas.start('a'), await replicas.start('b')];
    b.replica.feed.subscribe('things', () => {
      throw new Error('no');
    });
    const keys = heard(b.replica);
    await writesOf(a.replica).write(transaction => publish(transaction, 'things', 'x'));
    await vi.waitFor(() => expect(keys).toEqual(['x']));
    expect(b.warnings).toContain('cannot apply change of another replica');
  });

  test('the holder of the sweeper lease removes old changes and keeps recent ones', async () => {
    const a = await replicas.start('a', { times: { sweepMs: 50, keepChangesMs: 60_000 } });
    const writes = writesOf(a.replica);
    await writes.write(transaction => publish(transaction, 'things', 'old'));
    await sql`update feed set at_ms = at_ms - 61000`.execute(replicas.database);
    await writes.write(transaction => publish(transaction, 'things', 'young'));
    await vi.waitFor(async () => expect((await stored()).map(({ key }) => key)).toEqual(['young']));
    await trimFeed(replicas.database, -1);
    expect(await stored()).toEqual([]);
  });

  test('no change of three processes is lost while feed connections are terminated repeatedly', async () => {
    const reader = await replicas.start('reader');
    const keys = heard(reader.replica);
    const publishers = await Promise.all(['a', 'b', 'c'].map(id => replicas.spawn(id)));
    let isOver = false;
    let ended = 0;
    const ending = (async () => {
      while (!isOver) {
        const { rows } = await sql`select pg_terminate_backend(pid) from pg_stat_activity
          where datname = current_database() and application_name = 'rookery feed'`.execute(replicas.database);
        ended += rows.length;
        await delay(100);
      }
    })();
    const counts = [1000, 1000, 1000];
    await Promise.all(
      publishers.map((each, index) =>
        each.ask({ do: 'publish', name: String(index), count: counts[index] ?? 0, atOnce: 2, everyMs: 0 }),
      ),
    );
    isOver = true;
    await ending;
    const committed = (await stored()).map(({ key }) => key);
    expect(committed).toHaveLength(3_000);
    await vi.waitFor(() => expect(keys).toHaveLength(3_000));
    expect(keys).toEqual(committed);
    expect(reader.warnings).not.toContain(MISSING);
    expect(ended).toBeGreaterThan(0);
  }, 600_000);

  test.each([
    [
      'at once when the replica is notified, long before the next poll',
      { hasWakeUps: true, times: { pollMs: 600_000 } },
    ],
    ['with the next poll when nothing notifies the replica', { hasWakeUps: false, times: { pollMs: 50 } }],
  ])('changes of another process arrive %s', async (_title, options) => {
    const reader = await replicas.start('reader', options);
    const keys = heard(reader.replica);
    const publisher = await replicas.spawn('a', options);
    await publisher.ask({ do: 'publish', name: '0', count: 100, atOnce: 1, everyMs: 0 });
    await vi.waitFor(() => expect(keys).toHaveLength(100));
    expect(keys).toEqual((await stored()).map(({ key }) => key));
  });
});
