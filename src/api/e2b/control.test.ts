import type { InjectOptions } from 'fastify';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { SPEC, type TestFrontend, testFrontend } from '../../../test/http/frontend.ts';
import { newInstance } from '../../../test/http/memory-instances.ts';
import { memoryKeys } from '../../../test/http/memory-keys.ts';
import type { Instance, InstanceSpec } from '../../core/instance.ts';
import type { TokenVerifier } from '../../http/access/credentials.ts';
import type { KeyStore } from './key-routes.ts';
import { sandboxIdOf } from './sandboxes.ts';

const KEY = `e2b_${'a'.repeat(40)}`;
let it_: TestFrontend;
beforeEach(() => {
  it_ = testFrontend({ e2b: { keys: memoryKeys(), domain: 'sandbox.test:81' } });
});
afterEach(() => it_[Symbol.asyncDispose]());

const send = async (
  method: InjectOptions['method'],
  url: string,
  body?: unknown,
  headers: object = { 'x-api-key': KEY },
) =>
  await it_.send({
    method: method ?? 'GET',
    url: `/e2b${url}`,
    headers: { ...headers, ...(body !== undefined && { 'content-type': 'application/json' }) },
    ...(body !== undefined && { payload: JSON.stringify(body) }),
  });

const put = (changes: Partial<InstanceSpec> = {}, state: Partial<Instance> = {}) =>
  it_.instances.put({
    ...newInstance({ ...SPEC, name: `n${Math.random()}`, template: 'base', ttlMs: 60_000, ...changes }),
    ...state,
  });
const idOf = ({ id }: Instance) => sandboxIdOf(id);

describe('creates', () => {
  it('make an agent with a template', async () => {
    const body = { templateID: 'base', timeout: 120, metadata: { a: 'b c' }, envVars: { FOO: 'bar' } };
    const { status, body: made } = await send('POST', '/v2/sandboxes', body);
    expect(status).toBe(201);
    expect(made).toMatchObject({ templateID: 'base', alias: 'base', envdVersion: '0.6.13', domain: 'sandbox.test:81' });
    const { sandboxID, envdAccessToken } = made as Record<string, string>;
    expect(sandboxID).toMatch(/^[0-9a-f]{32}$/);
    const [{ spec } = { spec: SPEC }] = (await it_.instances.list({ tenant: 'default', limit: 9, cursor: null }))
      .instances;
    expect(spec).toMatchObject({ template: 'base', env: { FOO: 'bar' }, labels: { a: 'b c' }, ttlMs: 120_000 });
    const info = await send('GET', `/sandboxes/${sandboxID}`);
    expect(info.body).toMatchObject({
      ...{ sandboxID, envdAccessToken, state: 'running', metadata: { a: 'b c' } },
      lifecycle: { onTimeout: 'kill', autoResume: false },
    });
  });

  it('live 300 seconds without a time, 15 by the old route', async () => {
    for (const [url, seconds] of [
      ['/v2/sandboxes', 300],
      ['/sandboxes', 15],
    ] as const) {
      const before = Date.now();
      const { body } = await send('POST', url, { templateID: 'base' });
      const info = await send('GET', `/sandboxes/${(body as { sandboxID: string }).sandboxID}`);
      const endMs = Date.parse((info.body as { endAt: string }).endAt);
      expect(endMs).toBeGreaterThanOrEqual(before + seconds * 1000);
      expect(endMs).toBeLessThanOrEqual(Date.now() + seconds * 1000);
    }
  });

  it('are refused with a wrong field, and make nothing', async () => {
    for (const body of [
      { templateID: 'base', timeout: 0 },
      { templateID: 'base', timeout: -1 },
      { templateID: 'base', timeout: 1.5 },
      { templateID: 'no-such-template' },
      { templateID: 'base', metadata: { a: 1 } },
      { templateID: 'base', envVars: { 'a b': 'x' } },
      { templateID: 'base', envVars: { A: { secret: 'x' } } },
      { templateID: 'base', volumeMounts: [{ name: 'v', path: '/v' }] },
      { templateID: 'base', allow_internet_access: false },
      { templateID: 'base', network: { denyOut: ['0.0.0.0/0'] } },
      {},
    ]) {
      const { status, body: answer } = await send('POST', '/v2/sandboxes', body);
      expect([status, (answer as { code: number }).code]).toEqual([400, 400]);
    }
    expect((await send('GET', '/v2/sandboxes')).body).toEqual([]);
  });

  it('keep what the sandbox does with traffic', async () => {
    const open = { templateID: 'base', network: { allowPublicTraffic: true, allowOut: [], rules: {} } };
    expect((await send('POST', '/v2/sandboxes', open)).body).toMatchObject({ trafficAccessToken: null });
    const body = { ...open, autoPause: true, autoResume: { enabled: true }, network: { allowPublicTraffic: false } };
    const { body: made } = await send('POST', '/v2/sandboxes', body);
    const { sandboxID, trafficAccessToken } = made as Record<string, string>;
    expect(trafficAccessToken).toMatch(/^[0-9a-f]{64}$/);
    const { body: info } = await send('GET', `/sandboxes/${sandboxID}`);
    expect(info).toMatchObject({ lifecycle: { onTimeout: 'pause', autoResume: true } });
    expect((await send('POST', `/sandboxes/${sandboxID}/connect`, {})).body).toMatchObject({ trafficAccessToken });
  });

  it('with one idempotency key make one sandbox', async () => {
    const headers = { 'x-api-key': KEY, 'idempotency-key': 'abc-1' };
    const body = { templateID: 'base', timeout: 60 };
    const answers = await Promise.all([1, 2, 3, 4].map(() => send('POST', '/v2/sandboxes', body, headers)));
    const ids = answers
      .filter(({ status }) => status === 201)
      .map(({ body: made }) => (made as { sandboxID: string }).sandboxID);
    expect(new Set(ids).size).toBe(1);
    expect((await send('GET', '/v2/sandboxes')).body).toHaveLength(1);
    const other = await send('POST', '/v2/sandboxes', { ...body, timeout: 61 }, headers);
    expect(other).toMatchObject({ status: 409, body: { code: 409, error_code: 'idempotency_request_mismatch' } });
    const wrong = await send('POST', '/v2/sandboxes', body, { ...headers, 'idempotency-key': 'A' });
    expect(wrong.status).toBe(400);
  });
});

describe('keys', () => {
  const strict = (keys: KeyStore) => {
    const auth: TokenVerifier = {
      known: () => undefined,
      verify: async () => ({ tenant: 'one', role: 'developer', untilMs: Date.now() + 60_000 }),
    };
    return testFrontend({ auth, e2b: { keys, domain: null } });
  };

  it('are needed, and any well-formed one counts without authentication', async () => {
    for (const headers of [{}, { 'x-api-key': '' }, { 'x-api-key': 'e2b_A' }, { authorization: 'Bearer x' }]) {
      const { status, body } = await send('GET', '/v2/sandboxes', undefined, headers);
      expect([status, (body as { code: number }).code]).toEqual([401, 401]);
    }
    expect((await send('GET', '/v2/sandboxes')).status).toBe(200);
    expect((await send('POST', '/no/such/route', {}, {})).status).toBe(401);
    expect((await send('POST', '/no/such/route', {})).status).toBe(404);
  });

  it('are those that the service made, with authentication', async () => {
    await using frontend = strict(memoryKeys());
    const make = () => frontend.send({ method: 'POST', url: '/api/e2b/keys', headers: { 'x-auth': 'jwt' } });
    const [first, second] = [(await make()).body, (await make()).body] as { key: { id: string }; value: string }[];
    expect(first?.value).toMatch(/^e2b_[0-9a-f]{40}$/);
    expect(second?.value).not.toBe(first?.value);
    const look = async (key: string) =>
      (await frontend.send({ method: 'GET', url: '/e2b/v2/sandboxes', headers: { 'x-api-key': key } })).status;
    const [one, two] = [first?.value ?? '', second?.value ?? ''];
    expect([await look(one), await look(two), await look(KEY)]).toEqual([200, 200, 401]);
    expect(await look(one.slice(0, -1) + (one.endsWith('0') ? '1' : '0'))).toBe(401);
    const agents = await frontend.send({ method: 'GET', url: '/api/agent', headers: {} });
    expect(agents.status).toBe(401);
    const remove = await frontend.send({
      method: 'DELETE',
      url: `/api/e2b/keys/${first?.key.id}`,
      headers: { 'x-auth': 'jwt' },
    });
    expect(remove.status).toBe(200);
    expect([await look(one), await look(two)]).toEqual([401, 200]);
  });

  it('with the role viewer read, without the access token', async () => {
    const keys = memoryKeys();
    const { text } = await keys.create('default', 'viewer');
    await using frontend = strict(keys);
    const sandbox = frontend.instances.put(newInstance({ ...SPEC, template: 'base' }));
    const ask = (method: 'GET' | 'DELETE') =>
      frontend.send({ method, url: `/e2b/sandboxes/${idOf(sandbox)}`, headers: { 'x-api-key': text } });
    const info = await ask('GET');
    expect(info.status).toBe(200);
    expect(info.body).not.toHaveProperty('envdAccessToken');
    expect((await ask('DELETE')).status).toBe(403);
  });

  it('do not reach sandboxes of other tenants', async () => {
    const foreign = put({ tenant: 'two' });
    for (const [method, path] of [
      ['GET', ''],
      ['DELETE', ''],
      ['POST', '/timeout'],
      ['POST', '/pause'],
      ['POST', '/connect'],
      ['GET', '/metrics'],
    ] as const) {
      const { status, body } = await send(
        method,
        `/sandboxes/${idOf(foreign)}${path}`,
        method === 'POST' ? { timeout: 9 } : undefined,
      );
      expect([status, (body as { code: number }).code]).toEqual([404, 404]);
    }
    expect((await send('GET', '/v2/sandboxes')).body).toEqual([]);
    expect(await it_.instances.find(foreign.id)).not.toBeNull();
  });
});

describe('changes', () => {
  it('set, lengthen and end the time', async () => {
    const sandbox = put();
    const endIn = async () => {
      const { body } = await send('GET', `/sandboxes/${idOf(sandbox)}`);
      return Date.parse((body as { endAt: string }).endAt) - Date.now();
    };
    expect((await send('POST', `/sandboxes/${idOf(sandbox)}/timeout`, { timeout: 600 })).status).toBe(204);
    expect(await endIn()).toBeGreaterThan(500_000);
    for (const prefix of ['', '/v2']) {
      const answer = await send('POST', `${prefix}/sandboxes/${idOf(sandbox)}/connect`, { timeout: 10 });
      expect(answer).toMatchObject({ status: 200, body: { sandboxID: idOf(sandbox) } });
      expect(await endIn()).toBeGreaterThan(500_000);
    }
    expect((await send('POST', `/sandboxes/${idOf(sandbox)}/timeout`, { timeout: 20 })).status).toBe(204);
    expect(await endIn()).toBeLessThan(21_000);
    expect((await send('POST', `/sandboxes/${idOf(sandbox)}/refreshes`, { duration: 900 })).status).toBe(204);
    expect(await endIn()).toBeGreaterThan(800_000);
    expect((await send('POST', `/sandboxes/${idOf(sandbox)}/timeout`, { timeout: 0 })).status).toBe(204);
    expect((await send('GET', `/sandboxes/${idOf(sandbox)}`)).status).toBe(404);
  });

  it('pause and resume', async () => {
    const sandbox = put();
    const pause = () => send('POST', `/sandboxes/${idOf(sandbox)}/pause`);
    expect((await pause()).status).toBe(204);
    expect((await pause()).status).toBe(409);
    expect((await send('GET', `/sandboxes/${idOf(sandbox)}`)).body).toMatchObject({ state: 'paused' });
    expect((await send('POST', `/v2/sandboxes/${idOf(sandbox)}/connect`, {})).status).toBe(201);
    expect((await send('POST', `/v2/sandboxes/${idOf(sandbox)}/connect`, {})).status).toBe(200);
    await pause();
    expect((await send('POST', `/sandboxes/${idOf(sandbox)}/resume`, { timeout: 5, autoPause: false })).status).toBe(
      201,
    );
    expect((await send('POST', `/sandboxes/${'0'.repeat(32)}/pause`)).status).toBe(404);
    expect((await send('POST', `/sandboxes/${idOf(sandbox)}/pause`, { memory: false })).status).toBe(400);
  });

  it('kill a sandbox once, also a paused one', async () => {
    for (const status of ['RUNNING', 'PAUSED'] as const) {
      const sandbox = put({}, { status });
      expect((await send('DELETE', `/sandboxes/${idOf(sandbox)}`)).status).toBe(204);
      expect((await send('DELETE', `/sandboxes/${idOf(sandbox)}`)).status).toBe(404);
    }
  });

  it('answer 501 if the service lacks them', async () => {
    const sandbox = put();
    expect((await send('PUT', `/sandboxes/${idOf(sandbox)}/network`, { denyOut: [] })).status).toBe(501);
  });

  it('see which templates exist', async () => {
    expect((await send('GET', '/templates/aliases/base')).body).toEqual({ templateID: 'base', public: true });
    expect((await send('GET', '/templates/aliases/other')).status).toBe(404);
  });

  it('accept ids with the suffix of old clients', async () => {
    const sandbox = put();
    expect((await send('GET', `/sandboxes/${idOf(sandbox)}-rookery`)).status).toBe(200);
  });
});

describe('lists', () => {
  it('have running and paused sandboxes, in pages', async () => {
    const made = [1, 2, 3].map(n => put({}, { startedAtMs: n * 1000, ...(n === 2 && { status: 'PAUSED' as const }) }));
    it_.instances.put(newInstance(SPEC));
    put({}, { status: 'FAILED' });
    const ids = async (query: string, url = '/v2/sandboxes') => {
      const { status, body, headers } = await send('GET', `${url}${query}`);
      expect(status).toBe(200);
      return {
        ids: (body as { sandboxID: string }[]).map(({ sandboxID }) => sandboxID),
        next: headers['x-next-token'],
      };
    };
    const [one, two, three] = made.map(idOf);
    expect(await ids('')).toEqual({ ids: [three, two, one], next: undefined });
    expect((await ids('?order=asc')).ids).toEqual([one, two, three]);
    expect((await ids('?state=paused')).ids).toEqual([two]);
    expect((await ids('?state=running,paused')).ids).toHaveLength(3);
    expect((await ids('?state=running')).ids).toEqual([three, one]);
    expect((await ids('', '/sandboxes')).ids).toEqual([three, one]);
    const first = await ids('?limit=2');
    expect(first.ids).toEqual([three, two]);
    expect(await ids(`?limit=2&nextToken=${encodeURIComponent(String(first.next))}`)).toEqual({
      ids: [one],
      next: undefined,
    });
    expect((await ids('?limit=3')).next).toBeUndefined();
    expect((await ids('?startedAfter=1970-01-01T00:00:02.000900%2B00:00')).ids).toEqual([three, two]);
    expect((await ids('?template=base')).ids).toHaveLength(3);
    expect((await ids('?template=other')).ids).toEqual([]);
    for (const wrong of ['limit=0', 'limit=101', 'state=x', 'order=x', 'startedAfter=x']) {
      expect((await send('GET', `/v2/sandboxes?${wrong}`)).status).toBe(400);
    }
  });

  it('select by metadata that is encoded three times', async () => {
    const labels = { a: 'b c', k: 'v=1&2', 'ü%+': '100% +/?' };
    const sandbox = put({ labels }, { labels });
    put({ labels: { a: 'b c' } }, { labels: { a: 'b c' } });
    const encoded = (pairs: object) => {
      const once = Object.entries(pairs).map(
        each => each.map(text => encodeURIComponent(String(text))) as [string, string],
      );
      return encodeURIComponent(new URLSearchParams(once).toString());
    };
    expect(encoded({ a: 'b c', k: 'v=1&2' })).toBe('a%3Db%252520c%26k%3Dv%25253D1%2525262');
    for (const [pairs, count] of [
      [{ a: 'b c' }, 2],
      [labels, 1],
      [{ a: 'b c', k: 'x' }, 0],
    ] as const) {
      const { body } = await send('GET', `/v2/sandboxes?metadata=${encoded(pairs)}`);
      expect(body).toHaveLength(count);
    }
    expect((await send('GET', `/sandboxes/${idOf(sandbox)}`)).body).toMatchObject({ metadata: labels });
  });
});

describe('metrics', () => {
  it('have a sample with all fields at once', async () => {
    const sandbox = put();
    const { status, body } = await send('GET', `/sandboxes/${idOf(sandbox)}/metrics`);
    expect(status).toBe(200);
    const [sample] = body as Record<string, number | string>[];
    expect(Object.keys(sample ?? {}).sort()).toEqual(
      [
        'cpuCount',
        'cpuUsedPct',
        'diskTotal',
        'diskUsed',
        'memCache',
        'memTotal',
        'memUsed',
        'timestamp',
        'timestampUnix',
      ].sort(),
    );
    expect(Math.abs(Date.now() / 1000 - Number(sample?.timestampUnix))).toBeLessThan(60);
    const seconds = Number(sample?.timestampUnix);
    const within = async (query: string) => (await send('GET', `/sandboxes/${idOf(sandbox)}/metrics?${query}`)).body;
    expect(await within(`end=${seconds - 10}`)).toEqual([]);
    expect(await within(`start=${seconds}&end=${seconds + 10}`)).toHaveLength(1);
    expect((await send('GET', `/sandboxes/${idOf(sandbox)}/metrics?start=x`)).status).toBe(400);
    const many = await send('GET', `/sandboxes/metrics?sandbox_ids=${idOf(sandbox)},${'0'.repeat(32)}`);
    expect(Object.keys((many.body as { sandboxes: object }).sandboxes)).toEqual([idOf(sandbox)]);
  });
});
