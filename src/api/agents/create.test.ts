import { mkdir, mkdtemp, realpath, rm, symlink } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { describe, expect, test } from 'vitest';
import { createBody, runtimeSpec, type TestFrontend, testFrontend } from '../../../test/http/frontend.ts';
import type { AgentFunction } from '../../core/agent.ts';
import { Away, alreadyExists, failedPrecondition, unavailable } from '../../core/error.ts';
import { NO_SANDBOX } from '../../core/instance.ts';
import { findPath } from '../../lib/opened-path.ts';

const create = (frontend: TestFrontend, payload: unknown, headers: Record<string, string> = {}) =>
  frontend.send({
    method: 'POST',
    url: '/api/agent',
    payload: typeof payload === 'string' ? payload : JSON.stringify(payload),
    headers: { 'content-type': 'application/json', ...headers },
  });
const refused = (message: string) => ({ status: 400, body: { code: 400, message } });

test('an unknown field is ignored and named in the warnings of a success and of an error', async () => {
  await using frontend = testFrontend();
  const warning = 'unknown field sandbox_type was ignored; did you mean runtime_spec.sandbox_type?';
  const wrong = { ...createBody(), sandbox_type: 'docker' };
  const made = await create(frontend, wrong);
  expect(made.status).toBe(200);
  expect(made.body).toEqual({ code: 200, instance_id: expect.any(String), warnings: [warning] });
  expect(await create(frontend, wrong)).toMatchObject({
    status: 409,
    body: { instance_id: expect.any(String), warnings: [warning] },
  });
  expect(Object.keys((await create(frontend, { ...createBody(), name: 'b' })).body as object)).toEqual([
    'code',
    'instance_id',
  ]);
});

test('a create and a delete answer Server-Timing; a refused create does not', async () => {
  await using frontend = testFrontend();
  frontend.instances.onCreate = async ({ stages }) => {
    stages?.end('row');
    return {};
  };
  const made = await create(frontend, createBody());
  expect(made.headers['server-timing']).toMatch(/^http;dur=\d+\.\d{3}, row;dur=\d+\.\d{3}$/);
  expect(Object.keys(made.body as object)).toEqual(['code', 'instance_id']);
  const refusal = await create(frontend, createBody());
  expect(refusal.status).toBe(409);
  expect(refusal.headers['server-timing']).toBeUndefined();
  const { instance_id } = made.body as { instance_id: string };
  const ended = await frontend.send({ method: 'DELETE', url: `/api/agent/${instance_id}` });
  expect(ended.headers['server-timing']).toMatch(/^http;dur=\d+\.\d{3}, row;dur=\d+\.\d{3}$/);
});

describe('agent create: the error table', () => {
  test('agent create answers 400 when neither runtime_spec nor urn is present', async () => {
    await using frontend = testFrontend();
    expect(await create(frontend, { namespace: 'n', name: 'a' })).toMatchObject(
      refused('one of runtime_spec (inline) or urn (registered) is required'),
    );
  });

  test('agent create answers 400 with the names of templates when the template is unknown', async () => {
    await using frontend = testFrontend();
    expect(await create(frontend, { namespace: 'n', name: 'a', template: 'x' })).toMatchObject(
      refused('invalid request body: template: there is no template "x"; templates are base, code-interpreter-v1'),
    );
  });

  test('agent create answers 400 when the body is invalid or lacks a required field', async () => {
    await using frontend = testFrontend();
    const answers = [
      await create(frontend, '{"namespace":'),
      await create(frontend, ''),
      await create(frontend, '[]'),
      await create(frontend, createBody({ name: undefined })),
      await create(frontend, createBody({ runtime_spec: {} })),
    ];
    for (const { status, body } of answers) {
      expect(status).toBe(400);
      expect(body).toEqual({ code: 400, message: expect.stringMatching(/^invalid request body: /) });
    }
    expect(answers.at(-1)?.body).toMatchObject({
      message: 'invalid request body: runtime_spec.runtime is required',
    });
  });

  test('agent create answers 400 when workspace or mount source is not absolute or is unsafe', async () => {
    await using frontend = testFrontend();
    const mount = (source: string) => createBody({ mounts: [{ source, target: '/x' }] });
    expect(await create(frontend, createBody({ workspace: 'w' }))).toMatchObject(
      refused('workspace must be an absolute path: w'),
    );
    expect(await create(frontend, createBody({ workspace: '/etc' }))).toMatchObject(refused('unsafe workspace: /etc'));
    expect(await create(frontend, mount('code'))).toMatchObject(refused('mount source must be an absolute path: code'));
    expect(await create(frontend, mount('/a/../b'))).toMatchObject(refused('unsafe mount source: /a/../b'));
    expect(await create(frontend, mount('/srv/rookery'))).toMatchObject(refused('unsafe mount source: /srv/rookery'));
  });

  test('agent create answers 500 with the cause when the create fails inside', async () => {
    await using frontend = testFrontend();
    for (const cause of [
      failedPrecondition('invalid function: runtime go is not available: no Go SDK'),
      failedPrecondition('no Docker image specified', { advice: 'name one' }),
      failedPrecondition('deploy dir is empty'),
      unavailable('docker is not available: no daemon'),
    ]) {
      frontend.instances.onCreate = () => Promise.reject(cause);
      expect(await create(frontend, createBody())).toMatchObject({
        status: 500,
        body: { code: 500, message: `failed to create agent: ${cause.message}` },
      });
    }
  });

  test('agent create answers 503 with Retry-After when the shared database is unavailable', async () => {
    await using frontend = testFrontend();
    frontend.instances.onCreate = () =>
      Promise.reject(new Away('the database cannot be reached', { retryAfterSeconds: 1 }));
    expect(await create(frontend, createBody())).toMatchObject({
      status: 503,
      headers: { 'retry-after': '1' },
      body: { code: 503, message: 'failed to create agent: the database cannot be reached' },
    });
  });

  test('agent create answers 500 when urn names an unregistered function', async () => {
    await using frontend = testFrontend();
    const answer = await create(frontend, { namespace: 'n', name: 'a', urn: 'sn:x' });
    expect(answer).toMatchObject({
      status: 500,
      body: { code: 500, message: 'failed to create agent: invalid function: sn:x is not registered' },
    });
  });
});

describe('agent create', () => {
  test('agent create answers 200 with code and instance_id', async () => {
    await using frontend = testFrontend();
    const { status, body } = await create(frontend, createBody());
    expect(status).toBe(200);
    expect(body).toEqual({
      code: 200,
      instance_id: expect.stringMatching(/^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$/),
    });
  });

  test('agent create answers the warnings of the sandbox', async () => {
    await using frontend = testFrontend();
    const warnings = ['the workspace belongs to uid 1000, user ann is uid 1001'];
    frontend.instances.onCreate = () => ({ sandbox: { ...NO_SANDBOX, warnings } });
    expect((await create(frontend, createBody())).body).toMatchObject({ code: 200, warnings });
  });

  test('agent create answers 409 with the holder when the tenant uses the name already', async () => {
    await using frontend = testFrontend();
    const first = (await create(frontend, createBody())).body as { instance_id: string };
    expect(await create(frontend, createBody())).toMatchObject({
      status: 409,
      body: {
        code: 409,
        message: 'failed to create agent: agent default/hello already exists',
        instance_id: first.instance_id,
      },
    });
    expect((await create(frontend, createBody(), { tenantId: 'acme' })).status).toBe(200);
  });

  test('agent create answers 500 when workspace or mount source does not exist', async () => {
    await using frontend = testFrontend();
    const mounts = [{ source: '/missing', target: '/x' }];
    expect(await create(frontend, createBody({ mounts }))).toMatchObject({
      status: 500,
      body: { code: 500, message: 'failed to create agent: mount source does not exist: /missing' },
    });
    expect(await create(frontend, createBody({ workspace: '/missing/w' }))).toMatchObject({
      status: 500,
      body: { message: 'failed to create agent: workspace does not exist: /missing/w' },
    });
  });

  test('agent create rejects a workspace whose symlink leads to an unsafe path', async () => {
    const dir = await mkdtemp(join(await realpath(tmpdir()), 'rookery-create-'));
    try {
      await mkdir(join(dir, 'data'));
      await symlink('/etc', join(dir, 'link'));
      await symlink(join(dir, 'data'), join(dir, 'data-link'));
      const mountPolicy = { closed: [join(dir, 'data')], allow: null };
      await using frontend = testFrontend({ mountPolicy, findPath });
      for (const name of ['link', 'data-link', 'data', '.']) {
        const workspace = `${dir}/${name}`;
        expect(await create(frontend, createBody({ workspace }))).toMatchObject(
          refused(`unsafe workspace: ${workspace}`),
        );
      }
    } finally {
      await rm(dir, { recursive: true });
    }
  });

  test('agent create reports an unknown error without its text', async () => {
    await using frontend = testFrontend();
    frontend.instances.onCreate = () => Promise.reject(new Error('select * from secrets'));
    const answer = await create(frontend, createBody(), { 'x-trace-id': 't1' });
    expect(answer.body).toEqual({
      code: 500,
      message: 'failed to create agent: internal error, the log has it under trace id t1',
    });
    expect(frontend.lines[0]?.fields).toMatchObject({ err: { message: 'select * from secrets' } });
  });
});

describe('Idempotency-Key', () => {
  const key = { 'idempotency-key': 'k1' };

  test('the same key and body return the same instance', async () => {
    await using frontend = testFrontend();
    const answers = [await create(frontend, createBody(), key), await create(frontend, createBody(), key)];
    expect(answers[1]?.status).toBe(200);
    expect(answers[1]?.body).toEqual(answers[0]?.body);
  });

  test('the same key with another body is answered 409', async () => {
    await using frontend = testFrontend();
    await create(frontend, createBody(), key);
    expect(await create(frontend, createBody({ name: 'other' }), key)).toMatchObject({
      status: 409,
      body: { code: 409, message: expect.stringContaining('failed to create agent: idempotency key k1') },
    });
  });

  test('the request hash covers the tenant', async () => {
    await using frontend = testFrontend();
    const hashes: unknown[] = [];
    frontend.instances.create = async request => {
      hashes.push(request.idempotency?.requestHash);
      throw alreadyExists('stop here');
    };
    await create(frontend, createBody(), key);
    await create(frontend, createBody(), { ...key, tenantId: 'acme' });
    expect(hashes).toEqual([expect.stringMatching(/^[0-9a-f]{64}$/), expect.stringMatching(/^[0-9a-f]{64}$/)]);
    expect(hashes[0]).not.toBe(hashes[1]);
  });

  test.each(['', 'x'.repeat(129)])('a key of the wrong length is answered 400 (%#)', async text => {
    await using frontend = testFrontend();
    expect(await create(frontend, createBody(), { 'idempotency-key': text })).toMatchObject(
      refused('the header Idempotency-Key must have 1 to 128 characters'),
    );
    expect((await create(frontend, createBody(), { 'idempotency-key': 'x'.repeat(128) })).status).toBe(200);
  });
});

describe('agent create in registered mode', () => {
  const FUNCTION: AgentFunction = {
    functionName: '0@team@greeter',
    functionVersion: 'v1',
    functionUrn: 'sn:cn:yrk:default:function:0@team@greeter:v1',
    sandboxType: '',
    runtime: 'python3.11',
    codePath: '/opt/code',
    handler: 'main.handle',
    initializer: '',
    preStop: '',
    imageUrl: '',
    user: '',
    ports: [],
    mounts: [],
    cpuMillis: 300,
    memoryMb: 128,
    environment: { A: 'static', B: 'static' },
    callTimeoutMs: 5_000,
    initTimeoutMs: 30_000,
    preStopTimeoutMs: 0,
  };
  const body = { namespace: 'n', name: 'a', urn: FUNCTION.functionUrn, env_vars: { B: 'dynamic' } };

  test('the instance combines the function’s settings with the env_vars of the request', async () => {
    const asked: string[][] = [];
    const resolveFunction = async (tenant: string, urn: string) => {
      asked.push([tenant, urn]);
      return FUNCTION;
    };
    await using frontend = testFrontend({ functions: { resolveFunction } });
    const { body: answer } = await create(frontend, body, { tenantId: 'acme' });
    const { instance_id: id } = answer as { instance_id: string };
    expect(asked).toEqual([['acme', FUNCTION.functionUrn]]);
    const instance = await frontend.instances.get('acme', id);
    expect(instance.spec).toMatchObject({ cpuMillis: 300, env: { A: 'static', B: 'dynamic' }, callTimeoutMs: 5_000 });
  });

  test('workspace is checked before the urn is resolved', async () => {
    await using frontend = testFrontend();
    expect(await create(frontend, { ...body, workspace: '/etc' })).toMatchObject(refused('unsafe workspace: /etc'));
    expect(await create(frontend, { ...body, workspace: '/missing' })).toMatchObject({
      status: 500,
      body: { message: 'failed to create agent: workspace does not exist: /missing' },
    });
  });

  test('runtime_spec takes precedence when urn is present too', async () => {
    await using frontend = testFrontend();
    expect((await create(frontend, { ...body, runtime_spec: runtimeSpec() })).status).toBe(200);
  });
});

describe('pool labels of a create', () => {
  const made = async (body: object, headers: Record<string, string> = {}) => {
    await using frontend = testFrontend();
    const { body: answer, status } = await create(frontend, { ...createBody(), ...body }, headers);
    const id = (answer as { instance_id: string }).instance_id;
    return { status, spec: status === 200 ? (await frontend.instances.get('default', id)).spec : undefined, answer };
  };

  test('X-Pool-Label sets the labels in order; without the header the spec has no pool', async () => {
    expect((await made({}, { 'x-pool-label': 'gpu=yes, fast' })).spec?.pool).toEqual({
      id: '',
      labels: ['gpu=yes', 'fast'],
    });
    expect((await made({}, { 'x-pool-label': '["a","b"]' })).spec?.pool?.labels).toEqual(['a', 'b']);
    expect((await made({})).spec).not.toHaveProperty('pool');
  });

  test('an X-Pool-Label header with an invalid list of labels is answered 400', async () => {
    expect(await made({}, { 'x-pool-label': '[1]' })).toMatchObject({ status: 400 });
  });

  test('a mount source on Kubernetes is checked as text only, not on the host of the service', async () => {
    const mounts = (source: string) => ({
      runtime_spec: runtimeSpec({ sandbox_type: 'kubernetes' }),
      mounts: [{ source, target: '/data' }],
    });
    expect((await made(mounts('/missing/there'))).status).toBe(200);
    expect(await made(mounts('/etc/x'))).toMatchObject({ answer: { message: 'unsafe mount source: /etc/x' } });
  });
});
