import { afterAll, beforeAll, expect, test } from 'vitest';
import { Replicas } from '../../test/parts/replicas.ts';
import { storedInstance } from '../../test/parts/stored-instance.ts';
import { describeWith } from '../../test/probe.ts';
import { readJobSubmission } from '../core/job.ts';
import type { WriteTransaction } from '../storage/database.ts';
import type { DurableWrites } from '../storage/durable.ts';
import { insertInstance } from '../storage/instances.ts';
import { insertJob, type JobDraft } from '../storage/job-submits.ts';
import { joinNode } from '../storage/nodes.ts';
import { LostNodes } from './lost-nodes.ts';

describeWith(['postgres'], 'nodes that nobody waits for any more', () => {
  let replicas: Replicas;
  beforeAll(async () => {
    replicas = await Replicas.open();
  }, 120_000);
  afterAll(() => replicas.close());

  const living: { id: string }[] = [];
  let livesForMs = 60_000;
  const log = { info: () => undefined, warn: () => undefined };
  const writes = {
    write: <A extends unknown[], R>(operation: (transaction: WriteTransaction, ...args: A) => Promise<R>, ...args: A) =>
      replicas.write(transaction => operation(transaction, ...args)),
  } as DurableWrites;
  /** How many jobs failed with a node, each time that something of one was given up. */
  const jobsFailed: number[] = [];
  /** Looks once. */
  async function look({ sweeps = false } = {}): Promise<LostNodes> {
    const lost = new LostNodes({
      database: replicas.database,
      writes,
      shards: { holds: () => sweeps, fence: () => null },
      membership: { living: () => living as never, livesForMs: () => livesForMs },
      nodeId: 'self',
      onGivenUp: given => void jobsFailed.push(given.jobsFailed),
      lostMs: 60_000,
      log,
    });
    await lost.start();
    await lost.close();
    return lost;
  }

  const has = (nodeId: string) =>
    insertInstance(replicas.database, storedInstance({ nodeId, owner: { kind: 'function', key: nodeId } }));

  test('a node that joined after the look is not lost, whatever it has', async () => {
    const lost = await look();
    await replicas.write(transaction =>
      joinNode(transaction, { id: 'new', advertise: 'x:1', roles: [], version: '1' }, 1000, null),
    );
    await has('new');
    expect(lost.isLost('new')).toBe(false);
    expect((await look()).isLost('new')).toBe(false);
  });

  test('a node is lost that has something and is not known to have lived lately, until it is back', async () => {
    await has('gone');
    const lost = await look();
    expect(lost.isLost('gone')).toBe(true);
    living.push({ id: 'gone' });
    expect(lost.isLost('gone')).toBe(false);
    living.pop();
  });

  test('who has joined a moment ago takes nobody for lost: while the database was away no node could say that it lives', async () => {
    await has('silent');
    livesForMs = 59_999;
    expect((await look()).isLost('silent')).toBe(false);
    livesForMs = 60_000;
    expect((await look()).isLost('silent')).toBe(true);
  });

  test('who sweeps hears how many jobs are over with the node, each once', async () => {
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
