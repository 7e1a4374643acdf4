import { randomUUID } from 'node:crypto';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { storedInstance } from '../../../test/parts/stored-instance.ts';
import { NO_SANDBOX } from '../../core/instance.ts';
import { type Database, openDatabase } from '../database.ts';
import {
  findAgent,
  findAgentByIdempotencyKey,
  findAgentByName,
  forgetIdempotencyKey,
  listAgents,
  listAgentsOfNode,
} from './agents.ts';
import {
  deleteInstance,
  findInstance,
  insertInstance,
  listInstancesOfNode,
  type StoredInstance,
  updateInstance,
} from './instances.ts';

let database: Database;
beforeEach(async () => {
  database = await openDatabase(':memory:');
});
afterEach(() => database.destroy());

const insert = (instance: StoredInstance, name: string, idempotency?: { key: string; requestHash: string }) =>
  insertInstance(database, instance, { namespace: 'ns', name, idempotency });

test('a stored instance is read back unchanged', async () => {
  const instance = storedInstance({ sandbox: { ...NO_SANDBOX, sandboxId: '17', warnings: ['w'] }, spec: '{"a":"ä"}' });
  expect(await insert(instance, 'a', { key: 'k', requestHash: 'h' })).toBe(true);
  const expected = { stored: instance, requestHash: 'h' };
  expect(await findInstance(database, instance.id)).toEqual(instance);
  expect(await findAgent(database, instance.id)).toEqual(expected);
  expect(await findAgentByName(database, 'default', 'ns', 'a')).toEqual(expected);
  expect(await findAgentByIdempotencyKey(database, 'default', 'k')).toEqual(expected);
  expect(await listInstancesOfNode(database, 'node')).toEqual([instance]);
  expect(await listAgentsOfNode(database, 'node')).toEqual([instance]);
});

test('queries return null or an empty list when no record matches', async () => {
  expect(await findInstance(database, randomUUID())).toBeNull();
  expect(await findAgent(database, randomUUID())).toBeNull();
  expect(await findAgentByName(database, 'default', 'ns', 'a')).toBeNull();
  expect(await findAgentByIdempotencyKey(database, 'default', 'k')).toBeNull();
  expect(await listInstancesOfNode(database, 'other')).toEqual([]);
});

test('an instance of another owner is not an agent and needs no name', async () => {
  const owned = (kind: 'function' | 'job' | 'build') => storedInstance({ owner: { kind, key: 'key' } });
  for (const kind of ['function', 'function', 'job', 'build'] as const) {
    expect(await insertInstance(database, owned(kind))).toBe(true);
  }
  expect(await listAgents(database, { tenant: 'default', limit: 10, after: null })).toEqual([]);
  expect(await listAgentsOfNode(database, 'node')).toEqual([]);
  const all = await listInstancesOfNode(database, 'node');
  expect(all).toHaveLength(4);
  expect(await findAgent(database, all[0]?.id ?? '')).toBeNull();
});

describe('insertInstance', () => {
  test('insertInstance accepts a name once in each tenant and namespace', async () => {
    expect(await insert(storedInstance(), 'a')).toBe(true);
    expect(await insert(storedInstance(), 'a')).toBe(false);
    expect(await insert(storedInstance({ tenant: 'other' }), 'a')).toBe(true);
  });

  test('only one of 20 concurrent inserts of the same name succeeds', async () => {
    const results = await Promise.all(Array.from({ length: 20 }, () => insert(storedInstance(), 'a')));
    expect(results.filter(Boolean)).toHaveLength(1);
  });

  test('insertInstance accepts an idempotency key once in each tenant until the key is forgotten', async () => {
    const first = storedInstance();
    expect(await insert(first, 'a', { key: 'k', requestHash: 'h' })).toBe(true);
    expect(await insert(storedInstance(), 'b', { key: 'k', requestHash: 'h' })).toBe(false);
    expect(await insert(storedInstance({ tenant: 'other' }), 'b', { key: 'k', requestHash: 'h' })).toBe(true);
    await forgetIdempotencyKey(database, first.id);
    expect(await insert(storedInstance(), 'b', { key: 'k', requestHash: 'h' })).toBe(true);
  });
});

describe('updateInstance and deleteInstance', () => {
  test('updateInstance writes the named columns and nothing else', async () => {
    const instance = storedInstance();
    await insert(instance, 'a');
    const patch = { status: 'RUNNING', handle: '{"version":1}', startedAtMs: 5, secret: 'new' } as const;
    expect(await updateInstance(database, instance, ['CREATING'], patch)).toBe(true);
    expect(await findInstance(database, instance.id)).toEqual({ ...instance, ...patch });
  });

  test('an update or a delete from another state changes nothing', async () => {
    const instance = storedInstance();
    await insert(instance, 'a');
    expect(await updateInstance(database, instance, ['RUNNING', 'FAILED'], { status: 'STOPPING' })).toBe(false);
    expect(await deleteInstance(database, instance, ['STOPPING'])).toBe(false);
    expect(await findInstance(database, instance.id)).toEqual(instance);
  });

  test('an update or a delete for an earlier sandbox changes nothing', async () => {
    const instance = storedInstance({ status: 'RUNNING' });
    await insert(instance, 'a');
    expect(await updateInstance(database, instance, ['RUNNING'], { status: 'CREATING', epoch: 2 })).toBe(true);
    expect(await updateInstance(database, instance, ['CREATING'], { status: 'FAILED' })).toBe(false);
    expect(await deleteInstance(database, instance, ['CREATING'])).toBe(false);
    expect(await updateInstance(database, { ...instance, epoch: 2 }, ['CREATING'], { status: 'RUNNING' })).toBe(true);
  });

  test('only one of two concurrent deletes succeeds', async () => {
    const instance = storedInstance();
    await insert(instance, 'a');
    const results = await Promise.all([1, 2].map(() => deleteInstance(database, instance, ['CREATING'])));
    expect(results.toSorted()).toEqual([false, true]);
    expect(await findInstance(database, instance.id)).toBeNull();
  });
});

describe('listAgents', () => {
  test('listAgents orders pages by id and continues after a cursor', async () => {
    const ids = [];
    for (let i = 0; i < 7; i++) {
      const instance = storedInstance();
      await insert(instance, `a${i}`);
      ids.push(instance.id);
    }
    ids.sort();
    const first = await listAgents(database, { tenant: 'default', limit: 4, after: null });
    expect(first.map(({ id }) => id)).toEqual(ids.slice(0, 4));
    const second = await listAgents(database, {
      tenant: 'default',
      limit: 4,
      after: { id: ids[3] as string, startedAtMs: 0 },
    });
    expect(second.map(({ id }) => id)).toEqual(ids.slice(4));
  });

  test('listAgents filters exactly and never returns agents of other tenants', async () => {
    await insert(storedInstance({ spec: '"a"' }), 'a');
    await insert(storedInstance({ status: 'FAILED', spec: '"ab"' }), 'ab');
    await insert(storedInstance({ tenant: 'other' }), 'a');
    const names = async (filter: object) =>
      (await listAgents(database, { tenant: 'default', limit: 10, after: null, ...filter }))
        .map(({ spec }) => JSON.parse(spec) as string)
        .sort();
    expect(await names({})).toEqual(['a', 'ab']);
    expect(await names({ name: 'a' })).toEqual(['a']);
    expect(await names({ status: 'FAILED' })).toEqual(['ab']);
    expect(await names({ namespace: 'n' })).toEqual([]);
    expect(await names({ tenant: 'nobody' })).toEqual([]);
  });
});
