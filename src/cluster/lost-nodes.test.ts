import { afterAll, beforeAll, expect, test } from 'vitest';
import { Replicas } from '../../test/parts/replicas.ts';
import { storedInstance } from '../../test/parts/stored-instance.ts';
import { describeWith } from '../../test/probe.ts';
import type { DurableWrites } from '../storage/durable.ts';
import { insertInstance } from '../storage/instances.ts';
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
  /** Looks once, and sweeps nothing. */
  async function look(): Promise<LostNodes> {
    const lost = new LostNodes({
      database: replicas.database,
      writes: {} as DurableWrites,
      shards: { holds: () => false, fence: () => null },
      membership: { living: () => living as never, livesForMs: () => livesForMs },
      nodeId: 'self',
      onGivenUp: () => undefined,
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
});
