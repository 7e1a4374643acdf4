import { afterAll, beforeAll, expect, test } from 'vitest';
import { startPostgres } from '../../../test/parts/postgres.ts';
import { storedInstance } from '../../../test/parts/stored-instance.ts';
import { describeWith } from '../../../test/probe.ts';
import { openStores } from '../stores.ts';
import type { Stores } from '../stores-contract.ts';
import { deleteInstance, insertInstance, listInstancesOfNode, updateInstance } from './instances.ts';
import { takeLeases } from './leases.ts';
import { giveUpNode, listAwaitedNodes, listOwningNodes } from './lost-nodes.ts';
import { joinNode } from './nodes.ts';

const LOST_MS = 1000;
const NOTHING = { inherited: 0, givenUp: 0, jobsFailed: 0 };
const NEVER = { operations: {}, program: new URL('file:///none') };

describeWith(['postgres'], 'giveUpNode', () => {
  let postgres: Awaited<ReturnType<typeof startPostgres>>;
  let stores: Stores;
  beforeAll(async () => {
    postgres = await startPostgres();
    stores = await openStores({ url: await postgres.database(), waitMs: 5000, poolSize: 4 }, NEVER);
  });
  afterAll(async () => {
    await stores.close();
    await postgres.close();
  });

  const join = (id: string, ttlMs: number) =>
    stores.writes.write(joinNode, { id, advertise: '', roles: ['worker'], version: '0' }, ttlMs, null);
  const sweeper = async () => {
    const nodeEpoch = (await join('sweeper', 60_000)) as number;
    const life = { nodeId: 'sweeper', nodeEpoch };
    const { rows } = {
      rows: await stores.database.selectFrom('leases').selectAll().where('name', '=', 'sweeper').execute(),
    };
    const [taken] = await stores.writes.write(takeLeases, life, [{ name: 'sweeper', epoch: Number(rows[0]?.epoch) }]);
    return { ...life, name: 'sweeper', epoch: taken?.epoch as number };
  };
  const put = async (nodeId: string) => {
    const rows = [
      { id: `${nodeId}-runs`, status: 'RUNNING' },
      { id: `${nodeId}-creates`, status: 'CREATING' },
      { id: `${nodeId}-restarts`, status: 'CREATING', epoch: 2 },
      { id: `${nodeId}-stops`, status: 'STOPPING' },
      { id: `${nodeId}-failed`, status: 'FAILED', statusReason: 'exit code 1' },
    ] as const;
    for (const row of rows) {
      const owner = { kind: 'agent', key: row.id } as const;
      const identity = { namespace: 'n', name: row.id, idempotency: undefined };
      await insertInstance(stores.database, storedInstance({ nodeId, owner, ...row }), identity);
    }
    const owner = { kind: 'function', key: 'urn' } as const;
    await insertInstance(
      stores.database,
      storedInstance({ id: `${nodeId}-function`, nodeId, owner, status: 'RUNNING' }),
    );
  };
  const giveUp = async (nodeId: string, fence: Awaited<ReturnType<typeof sweeper>>) =>
    stores.writes.write(
      giveUpNode,
      fence,
      nodeId,
      { nodeId: 'heir', sandboxTypes: ['kubernetes'] },
      LOST_MS,
      'lost',
      1,
    );
  const left = async (nodeId: string) =>
    (await listInstancesOfNode(stores.database, nodeId))
      .map(({ id, status, statusReason }) => `${id} ${status} ${statusReason}`)
      .sort();

  test('giveUpNode fails started agents with the reason, and removes functions and unfinished agents', async () => {
    const fence = await sweeper();
    await join('gone', -2 * LOST_MS);
    await put('gone');
    expect(await listOwningNodes(stores.database)).toContain('gone');
    expect(await listAwaitedNodes(stores.database, LOST_MS)).not.toContain('gone');
    expect(await giveUp('gone', fence)).toEqual({ inherited: 0, givenUp: 5, jobsFailed: 0 });
    expect(await left('gone')).toEqual([
      'gone-failed FAILED exit code 1',
      'gone-restarts FAILED lost',
      'gone-runs FAILED lost',
    ]);
    expect(await giveUp('gone', fence)).toEqual(NOTHING);
  });

  test('giveUpNode transfers pods unchanged to the new owner, except that pods of jobs become STOPPING', async () => {
    const fence = await sweeper();
    await join('left', -2 * LOST_MS);
    for (const [kind, status] of [
      ['agent', 'RUNNING'],
      ['agent', 'FAILED'],
      ['agent', 'CREATING'],
      ['function', 'RUNNING'],
      ['job', 'RUNNING'],
    ] as const) {
      const id = `pod-${kind}-${status}`;
      const owner = { kind, key: id };
      const row = storedInstance({ id, nodeId: 'left', owner, status, sandboxType: 'kubernetes', statusReason: '' });
      await insertInstance(stores.database, row, { namespace: 'n', name: id, idempotency: undefined });
    }
    const owner = { kind: 'agent', key: 'here' } as const;
    await insertInstance(stores.database, storedInstance({ id: 'here', nodeId: 'left', owner, status: 'RUNNING' }));
    expect(await giveUp('left', fence)).toEqual({ inherited: 5, givenUp: 1, jobsFailed: 0 });
    expect(await left('heir')).toEqual([
      'pod-agent-CREATING CREATING ',
      'pod-agent-FAILED FAILED ',
      'pod-agent-RUNNING RUNNING ',
      'pod-function-RUNNING RUNNING ',
      'pod-job-RUNNING STOPPING ',
    ]);
    expect(await left('left')).toEqual(['here FAILED lost']);
    // The lost node returns, and its outdated writes are refused.
    const late = { id: 'pod-agent-RUNNING', epoch: 1, nodeId: 'left' };
    expect(await updateInstance(stores.database, late, ['RUNNING'], { status: 'FAILED' })).toBe(false);
    expect(await deleteInstance(stores.database, late, ['RUNNING'])).toBe(false);
  });

  test.each([
    ['is alive', 60_000],
    ['died a moment ago', -LOST_MS / 10],
  ])('giveUpNode changes nothing when the node %s', async (_, ttlMs) => {
    const fence = await sweeper();
    await join(`awaited${ttlMs}`, ttlMs);
    await put(`awaited${ttlMs}`);
    expect(await giveUp(`awaited${ttlMs}`, fence)).toEqual(NOTHING);
    expect(await left(`awaited${ttlMs}`)).toHaveLength(6);
  });

  test('giveUpNode rejects a sweeper whose lease another sweeper has taken', async () => {
    const slept = await sweeper();
    await sweeper();
    await join('gone too', -2 * LOST_MS);
    await put('gone too');
    await expect(giveUp('gone too', slept)).rejects.toMatchObject({ code: 'unavailable' });
    expect(await left('gone too')).toHaveLength(6);
  });
});
