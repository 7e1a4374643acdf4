import { describe, expect, test } from 'vitest';
import { SPEC, testFrontend } from '../../../test/http/frontend.ts';
import { newInstance } from '../../../test/http/memory-instances.ts';
import { isBeing } from '../../agents/refusals.ts';
import { deadlineExceeded, failedPrecondition } from '../../core/error.ts';
import type { Instance } from '../../core/instance.ts';

const RICH: Instance = {
  ...newInstance({
    ...SPEC,
    codePath: '/opt/code',
    handler: 'main.handle',
    rootfs: { type: 'host', imageUrl: 'py', user: 'ann' },
    ports: [{ protocol: 'tcp', port: 22 }],
    workspace: '/home/ann/work',
    mounts: [{ source: '/code', target: '/opt/code', readonly: true }],
    env: { A: '1' },
  }),
  id: '11111111-2222-4333-8444-555555555555',
  restarts: 2,
  sandbox: {
    sandboxId: '4711',
    nodeIp: '10.0.0.1',
    sandboxIp: '',
    portMappings: [{ protocol: 'tcp', containerPort: 22, hostIp: '127.0.0.1', hostPort: 40_022 }],
    isolation: ['mount', 'pid'],
    warnings: [],
  },
};

describe('agent get', () => {
  test('the record has every documented field', async () => {
    await using frontend = testFrontend();
    frontend.instances.put(RICH);
    const { status, body } = await frontend.send({ url: `/api/agent/${RICH.id}` });
    expect(status).toBe(200);
    expect(body).toEqual({
      code: 200,
      instance: {
        instance_id: RICH.id,
        namespace: 'default',
        name: 'hello',
        tenant: 'default',
        status: 'RUNNING',
        sandbox_type: 'process',
        sandbox_id: '4711',
        node_id: 'node-1',
        node_ip: '10.0.0.1',
        sandbox_ip: '',
        runtime: 'python3.11',
        handler: 'main.handle',
        codePath: '/opt/code',
        rootfs: {
          type: 'host',
          imageurl: 'py',
          user: 'ann',
          workspace: '/home/ann/work',
          mounts: [{ source: '/code', target: '/opt/code', readonly: true }],
        },
        ports: ['tcp:22'],
        port_mappings: [{ protocol: 'tcp', container_port: 22, host_ip: '127.0.0.1', host_port: 40_022 }],
        env_vars: { A: '1' },
        resources: { cpu: 1000, memory: 2048 },
        start_time: '2026-01-02T03:04:06.000Z',
        restarts: 2,
        isolation: ['mount', 'pid'],
      },
    });
  });

  test('the record has load_error, status_reason, warnings and urn when they are set', async () => {
    await using frontend = testFrontend();
    frontend.instances.put({
      ...RICH,
      status: 'FAILED',
      statusReason: 'exit code 3',
      loadError: 'no module main',
      startedAtMs: 0,
      spec: { ...RICH.spec, functionUrn: 'sn:x' },
      sandbox: { ...RICH.sandbox, warnings: ['careful'] },
    });
    expect((await frontend.send({ url: `/api/agent/${RICH.id}` })).body).toMatchObject({
      instance: {
        status: 'FAILED',
        status_reason: 'exit code 3',
        load_error: 'no module main',
        start_time: null,
        urn: 'sn:x',
        warnings: ['careful'],
      },
    });
  });

  test.each([
    ['GET', ''],
    ['DELETE', ''],
    ['POST', '/restart'],
    ['POST', '/pause'],
    ['POST', '/resume'],
    ['POST', '/invoke'],
    ['GET', '/logs'],
  ] as const)('%s /api/agent/{id}%s answers 404 when the tenant has no such instance', async (method, path) => {
    await using frontend = testFrontend();
    frontend.instances.put(RICH);
    for (const [id, tenant] of [
      ['nobody', 'default'],
      [RICH.id, 'another'],
      ['x'.repeat(500), 'default'],
      ['a b', 'default'],
    ] as const) {
      const url = `/api/agent/${encodeURIComponent(id)}${path}`;
      expect(await frontend.send({ method, url, headers: { tenantId: tenant } })).toMatchObject({
        status: 404,
        body: { code: 404, message: `instance not found: ${id}` },
      });
    }
  });
});

describe('agent list', () => {
  test('pages are ordered by id until next_cursor is null', async () => {
    await using frontend = testFrontend();
    const ids = Array.from({ length: 5 }, () => frontend.instances.put(newInstance(SPEC)).id).sort();
    frontend.instances.put(newInstance({ ...SPEC, tenant: 'another' }));
    const seen: string[] = [];
    let cursor = '';
    for (let page = 0; page < 3; page++) {
      const { body } = await frontend.send({ url: `/api/agent?limit=2&cursor=${cursor}` });
      const { instances, next_cursor } = body as { instances: { instance_id: string }[]; next_cursor: string | null };
      seen.push(...instances.map(instance => instance.instance_id));
      cursor = next_cursor ?? '';
    }
    expect(seen).toEqual(ids);
    expect(cursor).toBe('');
  });

  test('the list is empty when the tenant has no agents', async () => {
    await using frontend = testFrontend();
    expect((await frontend.send({ url: '/api/agent' })).body).toEqual({ code: 200, instances: [], next_cursor: null });
  });

  test('filters are passed on, empty filters are dropped and the limit defaults to 100', async () => {
    await using frontend = testFrontend();
    const id = RICH.id;
    await frontend.send({ url: `/api/agent?namespace=n&name=a%20b&status=FAILED&limit=1000&cursor=${id}` });
    await frontend.send({ url: '/api/agent?namespace=&name=&status=&limit=&cursor=' });
    const none = { namespace: undefined, name: undefined, status: undefined };
    expect(frontend.instances.queries).toEqual([
      { tenant: 'default', namespace: 'n', name: 'a b', status: 'FAILED', limit: 1000, cursor: id },
      { tenant: 'default', ...none, limit: 100, cursor: null },
    ]);
  });

  test.each([
    ['limit=0', 'limit must be an integer from 1 to 1000, got "0"'],
    ['limit=1001', 'limit must be an integer from 1 to 1000, got "1001"'],
    ['limit=-1', 'limit must be an integer'],
    ['limit=1.5', 'limit must be an integer'],
    ['limit=ten', 'limit must be an integer'],
    ['limit=1&limit=2', 'limit must be given once'],
    ['cursor=abc', 'cursor must be the next_cursor of a page before, got "abc"'],
    ['status=running', 'status must be one of CREATING, RUNNING, STOPPING, FAILED, got "running"'],
    ['name=a&name=b', 'name must be given once'],
    ['label=a', 'label must be name=value, got "a"'],
    ['label=%3Db', 'label must be name=value, got "=b"'],
  ])('the query ?%s is answered 400', async (query, message) => {
    await using frontend = testFrontend();
    expect(await frontend.send({ url: `/api/agent?${query}` })).toMatchObject({
      status: 400,
      body: { code: 400, message: expect.stringContaining(`invalid query: ${message}`) },
    });
  });
});

describe('agent delete', () => {
  test('a first delete answers 200 and a second one 404', async () => {
    await using frontend = testFrontend();
    frontend.instances.put(RICH);
    const url = `/api/agent/${RICH.id}`;
    expect(await frontend.send({ method: 'DELETE', url })).toMatchObject({
      status: 200,
      body: { code: 200, status: 'deleted' },
    });
    expect(await frontend.send({ method: 'DELETE', url })).toMatchObject({
      status: 404,
      body: { code: 404, message: `instance not found: ${RICH.id}` },
    });
  });

  test.each([
    ['', null],
    ['?grace=', null],
    ['?grace=0', 0],
    ['?grace=2.5', 2500],
    ['?grace=86400', 86_400_000],
  ])('the query "%s" sets the grace time', async (query, graceMs) => {
    await using frontend = testFrontend();
    frontend.instances.put(RICH);
    await frontend.send({ method: 'DELETE', url: `/api/agent/${RICH.id}${query}` });
    expect(frontend.instances.deletes).toEqual([{ id: RICH.id, graceMs }]);
  });

  test.each(['-1', 'x', '86401', 'Infinity', '10s'])('a delete with ?grace=%s is answered 400', async grace => {
    await using frontend = testFrontend();
    frontend.instances.put(RICH);
    expect(await frontend.send({ method: 'DELETE', url: `/api/agent/${RICH.id}?grace=${grace}` })).toMatchObject({
      status: 400,
      body: { code: 400, message: `invalid query: grace must be seconds from 0 to 86400, got "${grace}"` },
    });
    expect(frontend.instances.deletes).toEqual([]);
  });

  test('a delete that fails is answered 500 with the cause', async () => {
    await using frontend = testFrontend();
    frontend.instances.delete = () => Promise.reject(deadlineExceeded('the sandbox did not end'));
    expect(await frontend.send({ method: 'DELETE', url: `/api/agent/${RICH.id}` })).toMatchObject({
      status: 500,
      body: { code: 500, message: 'failed to delete agent: the sandbox did not end' },
    });
  });
});

describe('the time to live and the pause of an agent', () => {
  const url = `/api/agent/${RICH.id}`;

  test('a list selects by all labels, by template and by the state PAUSED', async () => {
    await using frontend = testFrontend();
    await frontend.send({ url: '/api/agent?label=a=b%3Dc&label=d=&template=base&status=PAUSED' });
    const { queries } = frontend.instances;
    expect(queries).toMatchObject([{ labels: { a: 'b=c', d: '' }, template: 'base', status: 'PAUSED' }]);
  });

  test('the record has labels, end and pause only of an agent with them', async () => {
    await using frontend = testFrontend();
    const labels = { app: 'x' };
    frontend.instances.put({ ...RICH, labels, expiresAtMs: Date.UTC(2030, 0, 1), onExpiry: 'pause' });
    const { body } = await frontend.send({ url });
    const shown = { labels, expires_at: '2030-01-01T00:00:00.000Z', on_expiry: 'pause' };
    expect(body).toMatchObject({ instance: shown });
    expect(body).not.toHaveProperty('instance.paused_at');
  });

  test('ttl sets the end, and only_later keeps a later one', async () => {
    await using frontend = testFrontend();
    frontend.instances.put(RICH);
    const set = async (payload: object) =>
      (await frontend.send({ method: 'PUT', url: `${url}/ttl`, payload })).body as Record<string, never>;
    const first = await set({ ttl_seconds: 3600 });
    expect(first).toMatchObject({ code: 200, instance: { expires_at: expect.any(String), on_expiry: 'delete' } });
    expect(await set({ ttl_seconds: 60, only_later: true })).toEqual(first);
    expect(await set({ ttl_seconds: 0 })).not.toHaveProperty('instance.expires_at');
    expect(await set({})).toMatchObject({ code: 400, message: 'invalid request body: ttl_seconds is required' });
  });

  test('a pause answers the paused agent, which is refused until its resume', async () => {
    await using frontend = testFrontend();
    frontend.instances.put(RICH);
    const send = async (method: 'POST', path: string) => await frontend.send({ method, url: url + path });
    expect(await send('POST', '/pause')).toMatchObject({ status: 200, body: { instance: { status: 'PAUSED' } } });
    expect(await send('POST', '/pause')).toMatchObject({ status: 409 });
    expect(await send('POST', '/exec')).toMatchObject({ status: 400 });
    const exec = await frontend.send({ method: 'POST', url: `${url}/exec`, payload: { command: 'true' } });
    expect(exec).toMatchObject({ status: 409, body: { message: expect.stringContaining('is paused') } });
    expect(await send('POST', '/resume')).toMatchObject({ body: { resumed: true, instance: { status: 'RUNNING' } } });
    expect(await send('POST', '/resume')).toMatchObject({ status: 200, body: { resumed: false } });
  });
});

describe('agent restart', () => {
  test('a restart answers 200 with the same id and counts up restarts', async () => {
    await using frontend = testFrontend();
    frontend.instances.put({ ...RICH, status: 'FAILED' });
    expect(await frontend.send({ method: 'POST', url: `/api/agent/${RICH.id}/restart` })).toMatchObject({
      status: 200,
      body: { code: 200, instance_id: RICH.id },
    });
    expect((await frontend.instances.get('default', RICH.id)).restarts).toBe(3);
  });

  test('a restart that fails is answered 500 with the cause', async () => {
    await using frontend = testFrontend();
    frontend.instances.restart = () => Promise.reject(failedPrecondition('workspace does not exist: /w'));
    expect(await frontend.send({ method: 'POST', url: `/api/agent/${RICH.id}/restart` })).toMatchObject({
      status: 500,
      body: { code: 500, message: 'failed to restart agent: workspace does not exist: /w' },
    });
  });

  test('a restart during another operation on the instance is answered 409 with the operation', async () => {
    await using frontend = testFrontend();
    frontend.instances.restart = () => Promise.reject(isBeing('delete', RICH.id));
    expect(await frontend.send({ method: 'POST', url: `/api/agent/${RICH.id}/restart` })).toMatchObject({
      status: 409,
      body: { code: 409, message: `failed to restart agent: instance ${RICH.id} is being deleted` },
    });
  });
});
