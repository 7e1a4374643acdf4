import { randomUUID } from 'node:crypto';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { type Instance, NO_SANDBOX } from '../core/instance.ts';
import { type Database, openDatabase } from './database.ts';
import {
  deleteInstance,
  findInstance,
  findInstanceByIdempotencyKey,
  findInstanceByName,
  forgetIdempotencyKey,
  insertInstance,
  listInstances,
  listInstancesOfNode,
  updateInstance,
} from './instances.ts';

let database: Database;
beforeEach(async () => {
  database = await openDatabase(':memory:');
});
afterEach(() => database.destroy());

function instanceOf(name: string, changes: Partial<Instance> = {}, tenant = 'default'): Instance {
  return {
    id: randomUUID(),
    spec: {
      tenant,
      namespace: 'ns',
      name,
      sandboxType: 'process',
      runtime: 'python3.11',
      codePath: '/code',
      handler: 'main.handler',
      initializer: '',
      preStop: '',
      rootfs: { type: 'host', imageUrl: 'img', user: '' },
      ports: [{ protocol: 'tcp', port: 8080 }],
      cpuMillis: 1000,
      memoryMb: 128,
      env: { KEY: 'värde' },
      workspace: '',
      mounts: [{ source: '/srv/code', target: '/code', readonly: true }],
      callTimeoutMs: 1000,
      initTimeoutMs: 1000,
      preStopTimeoutMs: 0,
      concurrency: 1,
      functionName: '',
      functionVersion: '',
      functionUrn: '',
    },
    status: 'CREATING',
    statusReason: '',
    loadError: '',
    restarts: 0,
    createdAtMs: 1_700_000_000_000,
    startedAtMs: 0,
    nodeId: 'node',
    sandbox: NO_SANDBOX,
    ...changes,
  };
}

const insert = (instance: Instance, idempotency?: { key: string; requestHash: string }) =>
  insertInstance(database, { instance, secret: 'secret', idempotency });

test('an instance comes back exactly as it was written', async () => {
  const instance = instanceOf('a', { sandbox: { ...NO_SANDBOX, sandboxId: '17', warnings: ['w'] } });
  expect(await insert(instance, { key: 'k', requestHash: 'h' })).toBe(true);
  const expected = { instance, handle: null, secret: 'secret', requestHash: 'h' };
  expect(await findInstance(database, instance.id)).toEqual(expected);
  expect(await findInstanceByName(database, 'default', 'ns', 'a')).toEqual(expected);
  expect(await findInstanceByIdempotencyKey(database, 'default', 'k')).toEqual(expected);
  expect(await listInstancesOfNode(database, 'node')).toEqual([expected]);
});

test('what is not there is found as null', async () => {
  expect(await findInstance(database, randomUUID())).toBeNull();
  expect(await findInstanceByName(database, 'default', 'ns', 'a')).toBeNull();
  expect(await findInstanceByIdempotencyKey(database, 'default', 'k')).toBeNull();
  expect(await listInstancesOfNode(database, 'other')).toEqual([]);
});

describe('who may insert', () => {
  test('a name is held once in a tenant and namespace', async () => {
    expect(await insert(instanceOf('a'))).toBe(true);
    expect(await insert(instanceOf('a'))).toBe(false);
    expect(await insert(instanceOf('a', {}, 'other'))).toBe(true);
  });

  test('of 20 inserts of one name at the same moment one wins', async () => {
    const results = await Promise.all(Array.from({ length: 20 }, () => insert(instanceOf('a'))));
    expect(results.filter(Boolean)).toHaveLength(1);
  });

  test('an idempotency key is held once in a tenant, and free after it was forgotten', async () => {
    const first = instanceOf('a');
    expect(await insert(first, { key: 'k', requestHash: 'h' })).toBe(true);
    expect(await insert(instanceOf('b'), { key: 'k', requestHash: 'h' })).toBe(false);
    expect(await insert(instanceOf('b', {}, 'other'), { key: 'k', requestHash: 'h' })).toBe(true);
    await forgetIdempotencyKey(database, first.id);
    expect(await insert(instanceOf('b'), { key: 'k', requestHash: 'h' })).toBe(true);
  });
});

describe('changes', () => {
  test('an update writes what it names and nothing else', async () => {
    const instance = instanceOf('a');
    await insert(instance);
    const patch = { status: 'RUNNING', handle: '{"version":1}', startedAtMs: 5, secret: 'new' } as const;
    expect(await updateInstance(database, instance.id, ['CREATING'], patch)).toBe(true);
    expect(await findInstance(database, instance.id)).toEqual({
      instance: { ...instance, status: 'RUNNING', startedAtMs: 5 },
      handle: '{"version":1}',
      secret: 'new',
      requestHash: null,
    });
  });

  test('an update or delete from another state changes nothing', async () => {
    const instance = instanceOf('a');
    await insert(instance);
    expect(await updateInstance(database, instance.id, ['RUNNING', 'FAILED'], { status: 'STOPPING' })).toBe(false);
    expect(await deleteInstance(database, instance.id, ['STOPPING'])).toBe(false);
    expect((await findInstance(database, instance.id))?.instance).toEqual(instance);
  });

  test('of two deletes one wins', async () => {
    const instance = instanceOf('a');
    await insert(instance);
    const results = await Promise.all([1, 2].map(() => deleteInstance(database, instance.id, ['CREATING'])));
    expect(results.toSorted()).toEqual([false, true]);
    expect(await findInstance(database, instance.id)).toBeNull();
  });
});

describe('lists', () => {
  test('pages are ordered by id and continue after a cursor', async () => {
    const ids = [];
    for (let i = 0; i < 7; i++) {
      const instance = instanceOf(`a${i}`);
      await insert(instance);
      ids.push(instance.id);
    }
    ids.sort();
    const first = await listInstances(database, { tenant: 'default', limit: 4, afterId: null });
    expect(first.map(({ id }) => id)).toEqual(ids.slice(0, 4));
    const second = await listInstances(database, { tenant: 'default', limit: 4, afterId: ids[3] as string });
    expect(second.map(({ id }) => id)).toEqual(ids.slice(4));
  });

  test('filters are exact and other tenants are never shown', async () => {
    await insert(instanceOf('a'));
    await insert(instanceOf('ab', { status: 'FAILED' }));
    await insert(instanceOf('a', {}, 'other'));
    const names = async (filter: object) =>
      (await listInstances(database, { tenant: 'default', limit: 10, afterId: null, ...filter }))
        .map(({ spec }) => spec.name)
        .sort();
    expect(await names({})).toEqual(['a', 'ab']);
    expect(await names({ name: 'a' })).toEqual(['a']);
    expect(await names({ status: 'FAILED' })).toEqual(['ab']);
    expect(await names({ namespace: 'n' })).toEqual([]);
    expect(await names({ tenant: 'nobody' })).toEqual([]);
  });
});
