import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { Replicas } from '../../test/parts/replicas.ts';
import { storedInstance } from '../../test/parts/stored-instance.ts';
import { describeWith } from '../../test/probe.ts';
import { readJobSubmission } from '../core/job.ts';
import type { WriteTransaction } from '../storage/database.ts';
import { insertInstance } from '../storage/queries/instances.ts';
import { insertJob, type JobDraft } from '../storage/queries/job-submits.ts';
import { joinNode } from '../storage/queries/nodes.ts';
import type { DurableWrites } from '../storage/writes/durable.ts';
import { LostNodes } from './lost-nodes.ts';

describeWith(['postgres'], 'lost nodes', () => {
  let replicas: Replicas;
  beforeAll(async () => {
    replicas = await Replicas.open();
  }, 120_000);
  afterAll(() => replicas.close());

  const living: { id: string }[] = [];
  let livesForMs = 60_000;
  const warnings: { nodeId?: string }[] = [];
  const log = {
    info: () => undefined,
    error: () => undefined,
    warn: (details: object) => void warnings.push({ ...details }),
  };
  const writes = {
    write: <A extends unknown[], R>(operation: (transaction: WriteTransaction, ...args: A) => Promise<R>, ...args: A) =>
      replicas.write(transaction => operation(transaction, ...args)),
  } as DurableWrites;
  /** Numbers of jobs that failed with a node, one entry per report of `LostNodes`. */
  const jobsFailed: number[] = [];
  /** Runs one pass of `LostNodes`. */
  async function look({ sweeps = false } = {}): Promise<LostNodes> {
    const lost = new LostNodes({
      database: replicas.database,
      writes,
      shards: { holds: () => sweeps, fence: () => null },
      membership: { living: () => living as never, livesForMs: () => livesForMs },
      nodeId: 'self',
      onGivenUp: given => void jobsFailed.push(given.jobsFailed),
      lostMs: 60_000,
      podsLostMs: 2000,
      log,
    });
    await lost.start();
    await lost.close();
    return lost;
  }

  const has = (nodeId: string) =>
    insertInstance(replicas.database, storedInstance({ nodeId, owner: { kind: 'function', key: nodeId } }));

  test('a node that joined after the pass is not lost although the node has instances', async () => {
    const lost = await look();
    await replicas.write(transaction =>
      joinNode(transaction, { id: 'new', advertise: 'x:1', roles: [], version: '1' }, 1000, null),
    );
    await has('new');
    expect(lost.isLost('new')).toBe(false);
    expect((await look()).isLost('new')).toBe(false);
  });

  test('a node with instances and without a recent heartbeat is lost until the node is back', async () => {
    await has('gone');
    const lost = await look();
    expect(lost.isLost('gone')).toBe(true);
    living.push({ id: 'gone' });
    expect(lost.isLost('gone')).toBe(false);
    living.pop();
  });

  test('a replica that has been a member for less than lostMs counts no node as lost', async () => {
    await has('silent');
    livesForMs = 59_999;
    expect((await look()).isLost('silent')).toBe(false);
    livesForMs = 60_000;
    expect((await look()).isLost('silent')).toBe(true);
  });

  describe('pods of a replica', () => {
    const nodeOf = async (id: string) =>
      (await replicas.database.selectFrom('instances').select('node_id').where('id', '=', id).executeTakeFirst())
        ?.node_id;

    beforeAll(async () => {
      const self = { id: 'self', advertise: 'self:1', roles: ['worker'], version: '1' };
      await replicas.write(transaction => joinNode(transaction, self, 600_000, null));
    });

    /**
     * Adds a replica whose ttl expired `expiredMs` ago; a negative value keeps the replica alive.
     * The replica has three instances: one in a pod, one of a job in a pod, and one on its host.
     */
    async function replicaOf(name: string, { expiredMs, roles }: { expiredMs: number; roles: string[] }) {
      const node = { id: name, advertise: `${name}:1`, roles, version: '1' };
      await replicas.write(transaction => joinNode(transaction, node, 1000, null));
      await replicas.database
        .updateTable('nodes')
        .set({ expires_at_ms: Date.now() - expiredMs })
        .where('id', '=', name)
        .execute();
      const instances = [
        ['pod', 'kubernetes', 'function'],
        ['job', 'kubernetes', 'job'],
        ['host', 'process', 'function'],
      ] as const;
      for (const [what, sandboxType, kind] of instances) {
        const id = `${name}-${what}`;
        await insertInstance(
          replicas.database,
          storedInstance({ id, nodeId: name, sandboxType, owner: { kind, key: id } }),
        );
      }
      return async () => [await nodeOf(`${name}-pod`), await nodeOf(`${name}-job`), await nodeOf(`${name}-host`)];
    }

    test.each([
      ['are taken over when its life expired podsLostMs ago', { expiredMs: 2500, roles: ['worker'] }, 'self'],
      ['stay when its life expired a moment ago', { expiredMs: 500, roles: ['worker'] }, null],
      ['stay while it lives', { expiredMs: -600_000, roles: ['worker'] }, null],
      ['stay while it lives and stops', { expiredMs: -600_000, roles: [] }, null],
      ['stay when it ended itself and may start again', { expiredMs: 8000, roles: [] }, null],
      ['are taken over when it ended itself and did not start again', { expiredMs: 10_500, roles: [] }, 'self'],
    ])('the function pods of a replica %s', async (title, replica, heir) => {
      const name = title.replaceAll(' ', '-');
      const nodes = await replicaOf(name, replica);
      await look();
      expect(await nodes()).toEqual([name, name, name]);
      await look({ sweeps: true });
      expect(await nodes()).toEqual([heir ?? name, name, name]);
    });

    test('pods are not taken over by a replica that joined too recently', async () => {
      const nodes = await replicaOf('all-expired', { expiredMs: 20_000, roles: ['worker'] });
      livesForMs = 9999;
      await look({ sweeps: true });
      expect(await nodes()).toEqual(['all-expired', 'all-expired', 'all-expired']);
      livesForMs = 10_000;
      await look({ sweeps: true });
      expect(await nodes()).toEqual(['self', 'all-expired', 'all-expired']);
      livesForMs = 60_000;
    });

    test('pods are taken over once when two replicas both act as the sweeper', async () => {
      const nodes = await replicaOf('contested', { expiredMs: 20_000, roles: ['worker'] });
      await Promise.all([look({ sweeps: true }), look({ sweeps: true })]);
      expect(await nodes()).toEqual(['self', 'contested', 'contested']);
      expect(warnings.filter(({ nodeId }) => nodeId === 'contested')).toEqual([{ nodeId: 'contested', inherited: 1 }]);
    });
  });

  test('the sweeper reports each failed job of a lost node once', async () => {
    const { spec } = readJobSubmission({ entrypoint: 'true' }, '');
    const job: Omit<JobDraft, 'id'> = {
      ...{
        tenant: 'default',
        spec,
        status: 'PENDING' as const,
        message: '',
        errorType: '' as const,
        exitCode: null,
        attempt: 1,
      },
      ...{ nodeId: 'gone', nodeEpoch: 0, isForAnother: false, instanceId: '', pid: '' },
      ...{ submittedAtMs: 1, startedAtMs: null, endedAtMs: null },
    };
    const bounds = { maxOpen: 10, maxOpenPerTenant: 10 };
    for (const id of ['runs', 'runs too', 'waits']) {
      await replicas.write(transaction => insertJob(transaction, { ...job, id }, '', bounds));
    }
    await replicas.database
      .updateTable('jobs')
      .set({ status: 'RUNNING', instance_id: 'its sandbox' })
      .where('id', 'like', 'runs%')
      .execute();
    await look({ sweeps: true });
    await look({ sweeps: true });
    expect(jobsFailed.filter(count => count > 0)).toEqual([2]);
    const rows = await replicas.database.selectFrom('jobs').select(['id', 'status']).orderBy('sequence').execute();
    expect(rows.map(({ id, status }) => `${id} ${status}`)).toEqual([
      'runs FAILED',
      'runs too FAILED',
      'waits PENDING',
    ]);
  });
});
