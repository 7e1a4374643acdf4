import { SignJWT } from 'jose';
import { describe, expect, test } from 'vitest';
import { type TestMeta, testMeta } from '../../../test/meta/meta.ts';
import { POOL_STATUS } from '../../core/pool.ts';
import { createJwtVerifier } from '../../http/access/jwt.ts';

const PATH = '/podpools';
const RESOURCES = { requests: { cpu: '500m', memory: '512Mi' }, limits: { cpu: '500m', memory: '1Gi' } };
const pool = (id: unknown, changes: Record<string, unknown> = {}) => ({
  id,
  size: 2,
  resources: RESOURCES,
  ...changes,
});
const create = (meta: TestMeta, ...pools: unknown[]) => meta.send('POST', PATH, { pools });
const DONE = { status: 200, body: { code: 0, message: '' } };
const MISSING = {
  status: 200,
  body: { code: 4120, message: 'pool does not exist or has been deleted. check input parameters' },
};
const list = async (meta: TestMeta, query = '') => {
  const { status, body } = await meta.send('GET', `${PATH}${query}`);
  expect({ status, code: body.code, message: body.message }).toEqual({ status: 200, code: 0, message: '' });
  return {
    count: body.result.count,
    ids: body.result.pools.map(({ id }: { id: string }) => id),
    pools: body.result.pools,
  };
};

describe('pool create', () => {
  test('a create whose pools are all valid answers failed_pools null', async () => {
    await using meta = await testMeta();
    expect(await create(meta, pool('a'), pool('b'))).toEqual({
      status: 200,
      body: { code: 0, message: '', result: { failed_pools: null } },
    });
  });

  test('a create makes the valid pools and lists each invalid pool with the reason', async () => {
    await using meta = await testMeta();
    const answer = await create(meta, pool('A'), pool('good'), 5, pool('b', { max_size: 1 }), pool(7), pool('good'));
    expect(answer.status).toBe(200);
    expect(answer.body.code).toBe(4104);
    expect(answer.body.result).toEqual({ failed_pools: ['A', '', 'b', '', 'good'] });
    expect(answer.body.message.split(';')).toEqual([
      expect.stringContaining('failed to create pod pool, id: A, err: id must be'),
      'failed to create pod pool, id: , err: a pool must be an object',
      'failed to create pod pool, id: b, err: max_size is less than size',
      expect.stringContaining('failed to create pod pool, id: , err: id must be a string'),
      'failed to create pod pool, id: good, err: pool id already exists or is deleting',
    ]);
    expect(await list(meta)).toMatchObject({ count: 1, ids: ['good'] });
  });

  test('a create refuses a pool whose id exists', async () => {
    await using meta = await testMeta();
    await create(meta, pool('a'));
    expect((await create(meta, pool('a'))).body.message).toBe(
      'failed to create pod pool, id: a, err: pool id already exists or is deleting',
    );
  });

  test.each([[{}], [{ pools: null }], [{ pools: [] }], [{ pools: {} }], [{ pools: 'a' }]])(
    'a create with the body %j is answered 200 with code 4104',
    async body => {
      await using meta = await testMeta();
      expect(await meta.send('POST', PATH, body)).toMatchObject({ status: 200, body: { code: 4104 } });
    },
  );

  test('a body that is not JSON is 400 with code 130600', async () => {
    await using meta = await testMeta();
    expect(await meta.send('POST', PATH, '[]')).toMatchObject({ status: 400, body: { code: 130600 } });
  });
});

describe('pool query', () => {
  test('every field of PoolInfo is present', async () => {
    await using meta = await testMeta();
    await create(meta, pool('a'));
    expect((await list(meta)).pools).toEqual([
      {
        id: 'a',
        group: 'default',
        size: 2,
        max_size: 2,
        status: 0,
        msg: 'waiting for a Kubernetes backend',
        ready_count: 0,
        resources: RESOURCES,
        reuse: false,
        image: '',
        init_image: '',
        labels: null,
        environment: null,
        volumes: '',
        volume_mounts: '',
        affinities: '',
        node_selector: null,
        runtime_class_name: '',
        tolerations: '',
        horizontal_pod_autoscaler_spec: '',
        topology_spread_constraints: '',
        pod_pending_duration_threshold: 120,
        idle_recycle_time: { reserved: 0, scaled: 0 },
        scalable: false,
        pod_anti_affinities: '',
      },
    ]);
  });

  test('a query returns the newest change first, in pages of 10 from page 1 (0 means 1), with the true count', async () => {
    await using meta = await testMeta();
    const ids = Array.from({ length: 12 }, (_, n) => `p${n}`);
    await create(meta, ...ids.map(id => pool(id)));
    await meta.send('PUT', `${PATH}/p3`, { size: 1 });
    const newest = ['p3', ...ids.filter(id => id !== 'p3').reverse()];
    for (const query of ['', '?offset=0', '?offset=1&limit=', '?id=&group=']) {
      expect(await list(meta, query)).toMatchObject({ count: 12, ids: newest.slice(0, 10) });
    }
    expect(await list(meta, '?offset=2')).toMatchObject({ count: 12, ids: newest.slice(10) });
    expect(await list(meta, '?offset=2&limit=5')).toMatchObject({ count: 12, ids: newest.slice(5, 10) });
    expect(await list(meta, '?offset=99')).toMatchObject({ count: 12, ids: [] });
  });

  test('a query matches id and group exactly, and returns count 0 and an empty list without a match', async () => {
    await using meta = await testMeta();
    await create(meta, pool('a', { group: 'X' }), pool('ab', { group: 'X' }), pool('c'));
    expect(await list(meta, '?id=a')).toMatchObject({ count: 1, ids: ['a'] });
    expect(await list(meta, '?group=X')).toMatchObject({ count: 2, ids: ['ab', 'a'] });
    expect(await list(meta, '?id=c&group=X')).toEqual({ count: 0, ids: [], pools: [] });
  });

  test.each(['limit=0', 'limit=1001', 'limit=x', 'offset=-1', 'offset=1.5', 'id=a&id=b'])(
    'a query with %s is answered 200 with code 4104',
    async query => {
      await using meta = await testMeta();
      expect(await meta.send('GET', `${PATH}?${query}`)).toMatchObject({ status: 200, body: { code: 4104 } });
    },
  );
});

test('an invalid offset is refused, and the error names the valid range', async () => {
  await using meta = await testMeta();
  expect(await meta.send('GET', `${PATH}?offset=-1`)).toMatchObject({
    body: { message: expect.stringContaining('offset must be a whole number from 0, got "-1"') },
  });
});

describe('pool update', () => {
  test('an update sets size, max_size and horizontal_pod_autoscaler_spec, and an unmanaged pool keeps status 0', async () => {
    await using meta = await testMeta();
    await create(meta, pool('a'), pool('b', { max_size: 4 }));
    expect(
      await meta.send('PUT', `${PATH}/a`, { size: 5, horizontal_pod_autoscaler_spec: '{"maxReplicas":9}' }),
    ).toEqual(DONE);
    expect(await meta.send('PUT', `${PATH}/b`, { max_size: 6 })).toEqual(DONE);
    expect((await list(meta)).pools).toMatchObject([
      { id: 'b', size: 2, max_size: 6, scalable: true, status: 0 },
      {
        id: 'a',
        size: 5,
        max_size: 5,
        scalable: false,
        status: 0,
        horizontal_pod_autoscaler_spec: '{"maxReplicas":9}',
      },
    ]);
  });

  test('an update that makes a fixed pool scalable is answered 4104', async () => {
    await using meta = await testMeta();
    await create(meta, pool('a'));
    expect(await meta.send('PUT', `${PATH}/a`, { max_size: 3 })).toMatchObject({ status: 200, body: { code: 4104 } });
  });

  test('an update is answered 4104 while another update waits or the pool is deleting', async () => {
    await using meta = await testMeta();
    await create(meta, pool('a'));
    const { pools } = meta.registry;
    await pools.report('a', { status: POOL_STATUS.creating, msg: '', readyCount: 0 });
    expect(await meta.send('PUT', `${PATH}/a`, { size: 3 })).toEqual(DONE);
    expect((await list(meta)).pools).toMatchObject([{ status: POOL_STATUS.updateRequested }]);
    expect(await meta.send('PUT', `${PATH}/a`, { size: 4 })).toMatchObject({ status: 200, body: { code: 4104 } });
    await meta.send('DELETE', `${PATH}?id=a`);
    expect(await meta.send('PUT', `${PATH}/a`, { size: 4 })).toMatchObject({ status: 200, body: { code: 4104 } });
  });

  test('an update is answered 4104 for a wrong type, and 4120 for a missing pool', async () => {
    await using meta = await testMeta();
    expect(await meta.send('PUT', `${PATH}/a`, { size: '3' })).toMatchObject({ status: 200, body: { code: 4104 } });
    expect(await meta.send('PUT', `${PATH}/a`, { horizontal_pod_autoscaler_spec: '{}' })).toMatchObject({
      body: { code: 4104 },
    });
    expect(await meta.send('PUT', `${PATH}/a`, { size: 3 })).toEqual(MISSING);
  });

  test('an update with an empty id is answered as for a missing pool', async () => {
    await using meta = await testMeta();
    await create(meta, pool('a'));
    expect(await meta.send('PUT', `${PATH}/`, { size: 3 })).toEqual(MISSING);
    expect((await list(meta)).pools).toMatchObject([{ size: 2 }]);
  });
});

describe('pool delete', () => {
  test('a delete selects pools by id, by group, or by both', async () => {
    await using meta = await testMeta();
    await create(meta, pool('a', { group: 'X' }), pool('b', { group: 'X' }), pool('c', { group: 'X' }), pool('d'));
    expect(await meta.send('DELETE', `${PATH}?id=d&group=X`)).toEqual(MISSING);
    expect(await meta.send('DELETE', `${PATH}?id=a`)).toEqual(DONE);
    expect(await meta.send('DELETE', `${PATH}?group=X`)).toEqual(DONE);
    expect(await list(meta)).toMatchObject({ ids: ['d'] });
    expect(await meta.send('DELETE', `${PATH}?id=a`)).toEqual(MISSING);
  });

  test('a delete without id and group is answered 4104', async () => {
    await using meta = await testMeta();
    expect(await meta.send('DELETE', PATH)).toMatchObject({ status: 200, body: { code: 4104 } });
    expect(await meta.send('DELETE', `${PATH}?id=&group=`)).toMatchObject({ status: 200, body: { code: 4104 } });
  });

  test('a delete of a pool with a controller keeps the pool and its id until the controller has removed the pool', async () => {
    await using meta = await testMeta();
    await create(meta, pool('a'));
    const { pools } = meta.registry;
    expect(await pools.report('a', { status: POOL_STATUS.creating, msg: 'creating', readyCount: 0 })).toBe(true);
    expect(await pools.report('a', { status: POOL_STATUS.running, msg: 'Running', readyCount: 2 })).toBe(true);
    expect((await list(meta)).pools).toMatchObject([{ status: 4, msg: 'Running', ready_count: 2 }]);
    expect(await meta.send('DELETE', `${PATH}?id=a`)).toEqual(DONE);
    expect((await list(meta)).pools).toMatchObject([{ status: 6 }]);
    expect(await pools.report('a', { status: POOL_STATUS.running, msg: 'Running', readyCount: 2 })).toBe(false);
    expect((await create(meta, pool('a'))).body.result).toEqual({ failed_pools: ['a'] });
    await pools.remove('a');
    expect(await pools.all()).toEqual([]);
    expect((await create(meta, pool('a'))).body.code).toBe(0);
  });
});

test('pools belong to the cluster: every tenant sees them', async () => {
  await using meta = await testMeta();
  await meta.send('POST', PATH, { pools: [pool('a')] }, { 'x-tenant-id': 'acme' });
  expect(await list(meta)).toMatchObject({ count: 1 });
});

describe('pools with a cluster', () => {
  test('a create refuses each pool that the cluster does not allow with its reason, and makes the others', async () => {
    await using meta = await testMeta();
    meta.registry.pools.actedOnBy({
      refusal: ({ id }) => (id === 'bad' ? 'unsafe mount source: /etc' : null),
      antiAffinities: () => '{"preferred":[]}',
    });
    const answer = await create(meta, pool('bad'), pool('good'));
    expect(answer.body).toMatchObject({ code: 4104, result: { failed_pools: ['bad'] } });
    expect(answer.body.message).toBe('failed to create pod pool, id: bad, err: unsafe mount source: /etc');
    const { pools } = await list(meta);
    expect(pools).toMatchObject([{ id: 'good', pod_anti_affinities: '{"preferred":[]}' }]);
  });

  test('observers of pools are notified of each change', async () => {
    await using meta = await testMeta();
    let heard = 0;
    meta.registry.pools.onChange(() => {
      heard += 1;
    });
    await create(meta, pool('a'));
    expect(heard).toBe(1);
    await meta.send('PUT', `${PATH}/a`, { size: 3 });
    expect(heard).toBe(2);
    await meta.send('DELETE', `${PATH}?id=a`);
    expect(heard).toBe(3);
  });
});

describe('pools with authentication on', () => {
  const KEY = new TextEncoder().encode('a secret of at least thirty-two bytes');
  const OURS = 'registry.example.com/rookery:1';
  const meta = (images: readonly string[] = [OURS]) =>
    testMeta({
      registry: { poolImages: images },
      entry: { auth: createJwtVerifier({ key: { kind: 'secret', secret: KEY } }), poolTenants: ['ops'] },
    });
  const token = async (tenant: string, role = 'developer') => ({
    'x-auth': await new SignJWT({ sub: tenant, role, exp: Math.floor(Date.now() / 1000) + 3600 })
      .setProtectedHeader({ alg: 'HS256' })
      .sign(KEY),
  });
  const CHANGES = [
    ['POST', PATH, { pools: [pool('p')] }],
    ['POST', PATH, 'not JSON'],
    ['PUT', `${PATH}/p`, { size: 1 }],
    ['DELETE', `${PATH}?id=p`, undefined],
  ] as const;

  test.each(CHANGES)(
    'a request %s %s %j is 403 and names the setting when the tenant is not the operator’s',
    async (...sent) => {
      await using service = await meta();
      expect(await service.send(...sent, await token('ta'))).toEqual({
        status: 403,
        body: {
          code: 403,
          message: 'pools belong to the operator of the cluster: the setting pools.tenants does not name the tenant ta',
        },
      });
      expect((await service.registry.pools.all()).length).toBe(0);
    },
  );

  test.each(CHANGES)('a request %s %s %j is 403 when the role is user', async (...sent) => {
    await using service = await meta();
    expect(await service.send(...sent, await token('ops', 'user'))).toMatchObject({ status: 403 });
  });

  test('a developer of a tenant of pools.tenants creates, changes and deletes pools', async () => {
    await using service = await meta();
    const headers = await token('ops');
    const created = await service.send('POST', PATH, { pools: [pool('p', { image: OURS })] }, headers);
    expect(created.body.code).toBe(0);
    expect(await service.send('PUT', `${PATH}/p`, { size: 1 }, headers)).toEqual(DONE);
    expect(await service.send('DELETE', `${PATH}?id=p`, undefined, headers)).toEqual(DONE);
  });

  test.each(['image', 'init_image'])('a pool alone is refused when its %s is not in pools.images', async field => {
    await using service = await meta();
    const pools = [pool('bad', { [field]: 'evil:1' }), pool('good', { [field]: OURS }), pool('none', { [field]: '' })];
    expect((await service.send('POST', PATH, { pools }, await token('ops'))).body).toMatchObject({
      code: 4104,
      message: 'failed to create pod pool, id: bad, err: image is not allowed: evil:1',
      result: { failed_pools: ['bad'] },
    });
  });

  test('a list of pools shows values of environments to tenants of pools.tenants only', async () => {
    await using service = await meta();
    await service.send('POST', PATH, { pools: [pool('p', { environment: { KEY: 'v' } })] }, await token('ops'));
    const environmentFor = async (tenant: string, role = 'developer') =>
      (await service.send('GET', PATH, undefined, await token(tenant, role))).body.result.pools[0].environment;
    expect(await environmentFor('ops')).toEqual({ KEY: 'v' });
    expect(await environmentFor('ta')).toEqual({ KEY: '***' });
    expect(await environmentFor('ops', 'viewer')).toEqual({ KEY: '***' });
  });
});
