import { describe, expect, test } from 'vitest';
import { FUNCTION, NAME, testMeta, URN } from '../../test/meta/meta.ts';

const NOT_FOUND = (what: string) => ({
  status: 200,
  body: { code: 4115, message: `function [${what}] is not found. check input parameters` },
});
const NO_VERSION = (version: string) => NOT_FOUND(`${NAME}:${version}`);
const STALE = { status: 200, body: { code: 4134, message: 'revisionId is non latest version' } };
const DUPLICATE = {
  status: 200,
  body: {
    code: 4114,
    message: 'duplicate version number',
  },
};

describe('a field that nobody knows is ignored, and the answer tells so', () => {
  const warnings = ['unknown field memroy was ignored; did you mean memory?'];

  test('register, update, publish and reserved instances', async () => {
    await using meta = await testMeta();
    const made = await meta.send('POST', '/functions', { ...FUNCTION, memroy: 1 });
    expect(made).toMatchObject({ status: 200, body: { code: 0, warnings } });
    const { revisionId } = (made.body as { function: { revisionId: string } }).function;
    const updated = await meta.send('PUT', `/functions/${NAME}`, { revisionId, memroy: 1 });
    expect(updated).toMatchObject({ status: 200, body: { code: 0, warnings } });
    const latest = (updated.body as { function: { revisionId: string } }).function.revisionId;
    const published = await meta.send('POST', `/functions/${NAME}/versions`, {
      revisionId: latest,
      versionNumber: 'v1',
      kindd: 'agent',
    });
    const ofPublish = ['unknown field kindd was ignored; did you mean kind?'];
    expect(published).toMatchObject({ status: 200, body: { code: 0, warnings: ofPublish } });
    const reserved = { funcName: NAME, version: 'v1', instanceLabel: 'l', instanceConfigInfos: [{ cluster: 'x' }] };
    const ofReserve = [
      'unknown field instanceConfigInfos[0].cluster was ignored; did you mean instanceConfigInfos[0].clusterId?',
    ];
    for (const method of ['POST', 'PUT'] as const) {
      const answer = await meta.send(method, '/functions/reserve-instance', reserved);
      expect(answer).toMatchObject({ status: 200, body: { code: 0, warnings: ofReserve } });
    }
    const { instanceConfigInfos: _, ...base } = reserved;
    const deleted = await meta.send('DELETE', '/functions/reserve-instance', { ...base, label: 'l' });
    expect(deleted).toMatchObject({ status: 200, body: { code: 0, warnings: [expect.stringContaining('label')] } });
  });

  test('an error too: what is missing is often there under a wrong name', async () => {
    await using meta = await testMeta();
    const { memory: _, ...rest } = FUNCTION;
    const answer = await meta.send('POST', '/functions', { ...rest, memroy: 1 });
    expect(answer).toMatchObject({
      status: 400,
      body: { code: 4104, message: expect.stringContaining('memory is required'), warnings },
    });
  });

  test('pools, each under its place', async () => {
    await using meta = await testMeta();
    const resources = { requests: { cpu: '1m', memory: '1Mi' }, limits: { cpu: '1m', memory: '1Mi' } };
    const pools = [
      { id: 'a', resources },
      { id: 'b', resources, sise: 1 },
    ];
    const told = ['unknown field pools[1].sise was ignored; did you mean pools[1].size?'];
    expect(await meta.send('POST', '/podpools', { pools })).toMatchObject({
      status: 200,
      body: { code: 0, warnings: told },
    });
    const updated = await meta.send('PUT', '/podpools/a', { size: 2, sise: 1 });
    expect(updated).toMatchObject({
      status: 200,
      body: { code: 0, warnings: [expect.stringContaining('did you mean size?')] },
    });
  });
});

describe('register', () => {
  test('answers code 0, the functionVersionUrn and the whole record', async () => {
    await using meta = await testMeta();
    const answer = await meta.send('POST', '/functions', { ...FUNCTION, environment: { A: '1' }, tags: { team: 'x' } });
    expect(answer).toEqual({
      status: 200,
      body: {
        code: 0,
        message: 'SUCCESS',
        functionVersionUrn: `${URN}:$latest`,
        function: {
          id: `${URN}:$latest`,
          createTime: '2026-11-20 10:00:00.000 UTC',
          updateTime: '',
          functionUrn: URN,
          name: NAME,
          kind: 'agent',
          tenantId: 'default',
          businessId: 'yrk',
          productId: '',
          reversedConcurrency: 0,
          description: '',
          tag: { team: 'x' },
          functionVersionUrn: `${URN}:$latest`,
          revisionId: '20261120100000000',
          codeSize: 0,
          codeSha256: '',
          storageType: '',
          codePath: '',
          bucketId: '',
          objectId: '',
          s3CodePath: null,
          handler: '',
          extendedHandler: { initializer: '', pre_stop: '' },
          extendedTimeout: { initializer: 30, pre_stop: 0 },
          layers: null,
          cpu: 500,
          memory: 512,
          runtime: 'python3.11',
          timeout: 900,
          versionNumber: '$latest',
          versionDesc: '',
          environment: { A: '1' },
          customResources: null,
          statefulFlag: 0,
          lastModified: '',
          Published: '',
          created: '',
          sandboxType: '',
          rootfs: null,
          minInstance: 0,
          maxInstance: 100,
          concurrentNum: 100,
          poolId: '',
          idleTime: 0,
          autoScaleConfig: null,
          schedulePolicies: null,
          enableSessionCtx: false,
          enableAgentSession: false,
          isFuncPublic: false,
          funcLayer: [],
          instanceNum: 0,
          device: {},
          status: '',
        },
      },
    });
  });

  test('without kind it is yrlib', async () => {
    await using meta = await testMeta();
    expect(await meta.register({ kind: undefined })).toMatchObject({ kind: 'yrlib' });
  });

  test('a duplicate name is 200 with code 4101', async () => {
    await using meta = await testMeta();
    await meta.register();
    expect(await meta.send('POST', '/functions', FUNCTION)).toEqual({
      status: 200,
      body: {
        code: 4101,
        message: 'the function name already exists. rename your function',
      },
    });
  });

  test('names are unique in a tenant, and tenants do not see each other', async () => {
    await using meta = await testMeta();
    await meta.register({}, { 'x-tenant-id': 'a' });
    const other = await meta.register({}, { tenantid: 'b' });
    expect(other.functionVersionUrn).toBe(`sn:cn:yrk:b:function:${NAME}:$latest`);
    expect(await meta.send('GET', `/functions/${NAME}?versionNumber=latest`)).toEqual(NOT_FOUND(NAME));
  });

  test('a body that is not JSON is 400 with code 130600 and the word of the parser', async () => {
    await using meta = await testMeta();
    const { status, body } = await meta.send('POST', '/functions', '{"name":');
    expect({ status, code: body.code }).toEqual({ status: 400, code: 130600 });
    expect(body.message).toMatch(/^invalid request body: .*JSON/);
  });

  test.each(['', '[]', 'null', '"x"', '1'])('the body %j is no object: 400 with code 130600', async payload => {
    await using meta = await testMeta();
    expect(await meta.send('POST', '/functions', payload)).toMatchObject({ status: 400, body: { code: 130600 } });
  });

  test('a request that is wrong by itself is 400 with code 4104, and names every problem', async () => {
    await using meta = await testMeta();
    const { status, body } = await meta.send('POST', '/functions', { ...FUNCTION, name: 'hello', cpu: '500' });
    expect({ status, code: body.code }).toEqual({ status: 400, code: 4104 });
    expect(body.message).toContain('name must have the format 0@{service}@{funcName}');
    expect(body.message).toContain('cpu must be an integer');
  });

  test('the token of an object store is in no answer', async () => {
    await using meta = await testMeta();
    const s3CodePath = { bucketId: 'b', objectId: 'o', bucketUrl: 'http://s3', token: 'secret-token', sha512: '' };
    const record = await meta.register({ storageType: 's3', s3CodePath });
    expect(record).toMatchObject({ bucketId: 'b', objectId: 'o', storageType: 's3' });
    const answers = [
      record,
      await meta.send('GET', `/functions/${NAME}?versionNumber=latest`),
      await meta.send('GET', '/functions'),
      await meta.send('GET', `/functions/${NAME}/versions`),
    ];
    expect(JSON.stringify(answers)).not.toContain('secret-token');
    expect((await meta.registry.functions.get('default', NAME, '$latest')).spec.s3CodePath?.token).toBe('secret-token');
  });
});

describe('query of one version', () => {
  test('versionNumber, or version, and latest as another spelling of $latest', async () => {
    await using meta = await testMeta();
    const record = await meta.register();
    for (const query of [
      'versionNumber=$latest',
      'versionNumber=latest',
      'version=latest',
      'versionNumber=%24latest',
    ]) {
      expect(await meta.send('GET', `/functions/${NAME}?${query}`)).toEqual({
        status: 200,
        body: { code: 0, message: 'SUCCESS', function: record },
      });
    }
  });

  test.each(['', '?versionNumber=', '?version='])(
    'versionNumber is required and not empty (%j): 400 with code 4104',
    async query => {
      await using meta = await testMeta();
      await meta.register();
      expect(await meta.send('GET', `/functions/${NAME}${query}`)).toEqual({
        status: 400,
        body: { code: 4104, message: 'invalid request: versionNumber is required' },
      });
    },
  );

  test('versionNumber and version that differ are 4104, as is a repeated one', async () => {
    await using meta = await testMeta();
    for (const query of ['versionNumber=v1&version=v2', 'versionNumber=v1&versionNumber=v1']) {
      expect(await meta.send('GET', `/functions/${NAME}?${query}`)).toMatchObject({
        status: 400,
        body: { code: 4104 },
      });
    }
  });

  test('a missing function is 200 with code 4115 and its name; only a missing version is named too', async () => {
    await using meta = await testMeta();
    expect(await meta.send('GET', '/functions/0@demo@no?versionNumber=v1')).toEqual(NOT_FOUND('0@demo@no'));
    expect(await meta.send('GET', '/functions/nonsense?versionNumber=v1')).toEqual(NOT_FOUND('nonsense'));
    await meta.register();
    expect(await meta.send('GET', `/functions/${NAME}?versionNumber=v1`)).toEqual(NO_VERSION('v1'));
  });

  test('a full URN is accepted as the name, with its version when versionNumber is absent', async () => {
    await using meta = await testMeta();
    const { revisionId } = await meta.register();
    await meta.send('POST', `/functions/${NAME}/versions`, { revisionId, versionNumber: 'v1' });
    const get = (path: string) => meta.send('GET', `/functions/${path}`);
    expect((await get(`${URN}:v1`)).body.function.versionNumber).toBe('v1');
    expect((await get(`${URN}:latest`)).body.function.versionNumber).toBe('$latest');
    expect((await get(`${URN}?versionNumber=v1`)).body.function.versionNumber).toBe('v1');
    expect((await get(`${URN}:v1?versionNumber=v1`)).body.function.versionNumber).toBe('v1');
    expect(await get(URN)).toMatchObject({ status: 400, body: { code: 4104 } });
    expect(await get(`${URN}:v1?versionNumber=v2`)).toMatchObject({ status: 400, body: { code: 4104 } });
  });

  test('a URN of another tenant or business answers as an unknown function', async () => {
    await using meta = await testMeta();
    await meta.register({}, { 'x-tenant-id': 'acme' });
    const urn = `sn:cn:yrk:acme:function:${NAME}:$latest`;
    expect(await meta.send('GET', `/functions/${urn}`)).toEqual(NOT_FOUND(urn));
    expect(await meta.send('GET', `/functions/${urn}`, undefined, { 'x-tenant-id': 'acme' })).toMatchObject({
      body: { code: 0 },
    });
    const foreign = `sn:cn:other:default:function:${NAME}:$latest`;
    expect(await meta.send('GET', `/functions/${foreign}`)).toEqual(NOT_FOUND(foreign));
  });

  test('status is unavailable while a local or copy codePath is not on this host', async () => {
    const there = new Set<string>();
    await using meta = await testMeta({ registry: { exists: async path => there.has(path) } });
    const status = async (name: string) =>
      (await meta.send('GET', `/functions/${name}?versionNumber=latest`)).body.function.status;
    for (const storageType of ['local', 'copy']) {
      const name = `0@demo@${storageType}`;
      expect(await meta.register({ name, storageType, codePath: '/srv/code' })).toMatchObject({ status: '' });
      expect(await status(name)).toBe('unavailable');
    }
    there.add('/srv/code');
    expect(await status('0@demo@local')).toBe('');
    await meta.register({ codePath: '/elsewhere' });
    expect(await status(NAME)).toBe('');
  });

  test('HEAD answers as GET without a body', async () => {
    await using meta = await testMeta();
    await meta.register();
    expect(await meta.send('HEAD', `/functions/${NAME}?versionNumber=latest`)).toEqual({
      status: 200,
      body: undefined,
    });
  });
});

describe('function list', () => {
  const named = (names: string[]) => names.map(name => `0@demo@${name}`);
  const list = async (meta: Awaited<ReturnType<typeof testMeta>>, query: string) => {
    const { status, body } = await meta.send('GET', `/functions${query}`);
    expect({ status, code: body.code, message: body.message }).toEqual({ status: 200, code: 0, message: '' });
    const { total, functions } = body.result;
    return {
      total,
      names: functions.map((fn: { name: string; versionNumber: string }) => `${fn.name}:${fn.versionNumber}`),
    };
  };

  test('all versions of all functions, newest change first, with the true total', async () => {
    await using meta = await testMeta();
    for (const name of named(['a', 'b', 'c'])) await meta.register({ name });
    const { revisionId } = (await meta.send('GET', '/functions/0@demo@a?version=latest')).body.function;
    await meta.send('POST', '/functions/0@demo@a/versions', { revisionId, versionNumber: 'v1' });
    await meta.send('PUT', '/functions/0@demo@b', { revisionId: '20261120100000000', description: 'x' });
    expect(await list(meta, '')).toEqual({
      total: 4,
      names: ['0@demo@b:$latest', '0@demo@a:v1', '0@demo@c:$latest', '0@demo@a:$latest'],
    });
    expect(await list(meta, '?pageIndex=2&pageSize=3')).toEqual({ total: 4, names: ['0@demo@a:$latest'] });
    expect(await list(meta, '?pageIndex=3&pageSize=3')).toEqual({ total: 4, names: [] });
    expect(await list(meta, '?pageIndex=99999999999&pageSize=1000')).toEqual({ total: 4, names: [] });
  });

  test('versionNumber is exact, name a substring in which case counts; empty values are no filter', async () => {
    await using meta = await testMeta();
    await meta.register({ name: '0@Demo@one' });
    const { revisionId } = await meta.register({ name: '0@demo@two' });
    await meta.send('POST', '/functions/0@demo@two/versions', { revisionId, versionNumber: 'v1' });
    expect(await list(meta, '?versionNumber=v1&name=')).toEqual({ total: 1, names: ['0@demo@two:v1'] });
    expect(await list(meta, '?version=latest')).toMatchObject({ total: 2 });
    expect(await list(meta, '?versionNumber=v')).toEqual({ total: 0, names: [] });
    expect(await list(meta, '?name=demo')).toMatchObject({ total: 2 });
    expect(await list(meta, '?name=Demo')).toEqual({ total: 1, names: ['0@Demo@one:$latest'] });
    expect(await list(meta, '?name=demo&versionNumber=v1')).toMatchObject({ total: 1 });
    expect(await list(meta, '?name=%25')).toEqual({ total: 0, names: [] });
    expect(await list(meta, '?name=&versionNumber=&pageIndex=&pageSize=')).toMatchObject({ total: 3 });
  });

  test('a page that was read is not kept beyond a change', async () => {
    await using meta = await testMeta();
    expect(await list(meta, '')).toEqual({ total: 0, names: [] });
    const { revisionId } = await meta.register();
    expect(await list(meta, '')).toMatchObject({ total: 1 });
    await meta.send('POST', `/functions/${NAME}/versions`, { revisionId, versionNumber: 'v1' });
    expect(await list(meta, '')).toMatchObject({ total: 2 });
    await meta.send('DELETE', `/functions/${NAME}?versionNumber=v1`);
    expect(await list(meta, '')).toEqual({ total: 1, names: [`${NAME}:$latest`] });
    expect(await list(meta, '?versionNumber=v1')).toEqual({ total: 0, names: [] });
    await meta.send('DELETE', `/functions/${NAME}`);
    expect(await list(meta, '')).toEqual({ total: 0, names: [] });
  });

  test.each([
    'pageIndex=0',
    'pageIndex=-1',
    'pageIndex=1.5',
    'pageIndex=x',
    'pageSize=0',
    'pageSize=1001',
    'pageSize=1&pageSize=2',
  ])('%s is 200 with code 4104', async query => {
    await using meta = await testMeta();
    for (const path of ['/functions', `/functions/${NAME}/versions`]) {
      expect(await meta.send('GET', `${path}?${query}`)).toMatchObject({ status: 200, body: { code: 4104 } });
    }
  });
});

describe('versions list', () => {
  test('newest change first; pageIndex and pageSize are texts', async () => {
    await using meta = await testMeta();
    const { revisionId } = await meta.register();
    for (const versionNumber of ['v1', 'v2'])
      await meta.send('POST', `/functions/${NAME}/versions`, { revisionId, versionNumber });
    const { status, body } = await meta.send('GET', `/functions/${NAME}/versions`);
    expect({ status, code: body.code, pageInfo: body.pageInfo }).toEqual({
      status: 200,
      code: 0,
      pageInfo: { total: 3, pageSize: '1000', pageIndex: '1' },
    });
    expect(body.functions.map((fn: { versionNumber: string }) => fn.versionNumber)).toEqual(['v2', 'v1', '$latest']);
    const second = (await meta.send('GET', `/functions/${URN}/versions?pageIndex=2&pageSize=2`)).body;
    expect(second.functions).toHaveLength(1);
    expect(second.pageInfo).toEqual({ total: 3, pageSize: '2', pageIndex: '2' });
    expect((await meta.send('GET', `/functions/${NAME}/versions?pageIndex=9`)).body).toMatchObject({
      functions: [],
      pageInfo: { total: 3 },
    });
  });

  test('no such function: functions is null and total 0', async () => {
    await using meta = await testMeta();
    await meta.register({}, { 'x-tenant-id': 'acme' });
    for (const name of ['0@demo@no', NAME, `sn:cn:yrk:acme:function:${NAME}`]) {
      expect(await meta.send('GET', `/functions/${name}/versions`)).toEqual({
        status: 200,
        body: { code: 0, message: '', functions: null, pageInfo: { total: 0, pageSize: '1000', pageIndex: '1' } },
      });
    }
  });
});

describe('publish', () => {
  test('answers the whole record of the version, with the revision of the latest', async () => {
    await using meta = await testMeta();
    const record = await meta.register({ environment: { A: '1' } });
    meta.clock.nowMs += 5000;
    const answer = await meta.send('POST', `/functions/${NAME}/versions`, {
      revisionId: record.revisionId,
      versionNumber: 'v1',
      versionDesc: 'first',
      kind: 'agent',
    });
    expect(answer).toEqual({
      status: 200,
      body: {
        code: 0,
        message: 'SUCCESS',
        function: {
          ...record,
          id: `${URN}:v1`,
          functionVersionUrn: `${URN}:v1`,
          versionNumber: 'v1',
          versionDesc: 'first',
          createTime: '2026-11-20 10:00:00.000 UTC',
          Published: '2026-11-20 10:00:05.000 UTC',
        },
      },
    });
  });

  test('the default number is v, date and time; two within a second are duplicates, across the border of a second too', async () => {
    await using meta = await testMeta();
    const { revisionId } = await meta.register();
    const publish = () => meta.send('POST', `/functions/${NAME}/versions`, { revisionId, versionNumber: '' });
    meta.clock.nowMs += 900;
    expect((await publish()).body.function.versionNumber).toBe('v20261120-100000');
    meta.clock.nowMs += 200;
    expect(await publish()).toEqual(DUPLICATE);
    meta.clock.nowMs += 800;
    expect(await publish()).toEqual(DUPLICATE);
    meta.clock.nowMs += 1;
    expect((await publish()).body.function.versionNumber).toBe('v20261120-100001');
    meta.clock.nowMs -= 1001;
    expect(await publish()).toEqual(DUPLICATE);
  });

  test('createTime stays that of the function, Published is the time of the publishing', async () => {
    await using meta = await testMeta();
    const made = await meta.send('POST', '/functions', FUNCTION);
    const { createTime, revisionId } = (made.body as { function: { createTime: string; revisionId: string } }).function;
    meta.clock.nowMs += 3_600_000;
    const published = await meta.send('POST', `/functions/${NAME}/versions`, { revisionId, versionNumber: 'v1' });
    const times = { createTime, Published: '2026-11-20 11:00:00.000 UTC' };
    expect(published.body.function).toMatchObject(times);
    expect((await meta.send('GET', `/functions/${NAME}?versionNumber=v1`)).body.function).toMatchObject(times);
    const latest = (await meta.send('GET', `/functions/${NAME}?versionNumber=latest`)).body.function;
    expect(latest).toMatchObject({ createTime, Published: '' });
  });

  test('a published version never changes', async () => {
    await using meta = await testMeta();
    const { revisionId } = await meta.register({ environment: { A: '1' } });
    const { function: v1 } = (
      await meta.send('POST', `/functions/${NAME}/versions`, { revisionId, versionNumber: 'v1' })
    ).body;
    const get = async () => (await meta.send('GET', `/functions/${NAME}?versionNumber=v1`)).body.function;
    const { function: updated } = (
      await meta.send('PUT', `/functions/${NAME}`, { revisionId, environment: { A: '2' } })
    ).body;
    expect(await get()).toEqual(v1);
    await meta.send('POST', `/functions/${NAME}/versions`, { revisionId: updated.revisionId, versionNumber: 'v2' });
    expect(await get()).toEqual(v1);
  });

  test('its checks answer in order: fields, function, kind, revision, syntax, duplicate, number of versions', async () => {
    await using meta = await testMeta();
    const publish = (body: object, name = NAME) => meta.send('POST', `/functions/${name}/versions`, body);
    expect(await publish({ versionNumber: 1 }, '0@demo@no')).toMatchObject({ status: 200, body: { code: 4104 } });
    expect(await publish({ revisionId: 'x', kind: 'nonsense' }, '0@demo@no')).toMatchObject({ body: { code: 4104 } });
    expect(await publish({ revisionId: 'x', versionNumber: '-' }, '0@demo@no')).toEqual(NOT_FOUND('0@demo@no'));
    const { revisionId } = await meta.register();
    expect(await publish({ revisionId: 'x', kind: 'faas', versionNumber: '-' })).toMatchObject({
      status: 200,
      body: { code: 4104 },
    });
    expect(await publish({ revisionId: 'x', versionNumber: '-' })).toEqual(STALE);
    for (const versionNumber of ['-', 'v1-', 'latest', '$latest', 'a b', 'x'.repeat(43)]) {
      expect(await publish({ revisionId, versionNumber })).toMatchObject({ status: 200, body: { code: 4104 } });
    }
    for (let n = 1; n <= 8; n++)
      expect(await publish({ revisionId, versionNumber: `v${n}` })).toMatchObject({ body: { code: 0 } });
    expect(await publish({ revisionId, versionNumber: 'v8' })).toEqual(DUPLICATE);
    expect(await publish({ revisionId, versionNumber: 'v9' })).toMatchObject({ status: 200, body: { code: 4110 } });
    await meta.send('DELETE', `/functions/${NAME}?versionNumber=v1`);
    expect(await publish({ revisionId, versionNumber: 'v9' })).toMatchObject({ body: { code: 0 } });
  });

  test('a body that is not JSON is 400 with code 130600', async () => {
    await using meta = await testMeta();
    expect(await meta.send('POST', `/functions/${NAME}/versions`, 'x')).toMatchObject({
      status: 400,
      body: { code: 130600 },
    });
  });

  test('a URN names the latest revision; one of another version is 4104', async () => {
    await using meta = await testMeta();
    const { revisionId } = await meta.register();
    const publish = (name: string) =>
      meta.send('POST', `/functions/${name}/versions`, { revisionId, versionNumber: 'v1' });
    expect(await publish(`${URN}:v1`)).toMatchObject({ status: 200, body: { code: 4104 } });
    expect(await publish(`${URN}:$latest`)).toMatchObject({ body: { code: 0 } });
  });
});

describe('update', () => {
  test('answers the whole function with a new revisionId and updateTime; absent fields are kept', async () => {
    await using meta = await testMeta();
    const record = await meta.register({ environment: { A: '1' }, description: 'old' });
    const { revisionId } = record;
    const answer = await meta.send('PUT', `/functions/${NAME}`, {
      revisionId,
      description: 'new',
      name: NAME,
      kind: 'agent',
      runtime: 'python3.11',
    });
    expect(answer).toEqual({
      status: 200,
      body: {
        code: 0,
        message: 'SUCCESS',
        function: {
          ...record,
          description: 'new',
          revisionId: '20261120100000001',
          updateTime: '2026-11-20 10:00:00.000 UTC',
        },
      },
    });
    expect((await meta.send('GET', `/functions/${NAME}?version=latest`)).body.function).toEqual(answer.body.function);
  });

  test('revision ids strictly increase even when the clock goes back', async () => {
    await using meta = await testMeta();
    let { revisionId } = await meta.register();
    for (const step of [0, -3_600_000, 5, -1, 0]) {
      meta.clock.nowMs += step;
      const { function: updated } = (await meta.send('PUT', `/functions/${NAME}`, { revisionId })).body;
      expect(updated.revisionId > revisionId).toBe(true);
      revisionId = updated.revisionId;
    }
  });

  test('errors: 4104 for fields (400), 4115, 4134, and 4104 for what the stored function does not allow (200)', async () => {
    await using meta = await testMeta();
    const put = (body: unknown, name = NAME) => meta.send('PUT', `/functions/${name}`, body);
    expect(await put('x')).toMatchObject({ status: 400, body: { code: 130600 } });
    expect(await put({})).toEqual({
      status: 400,
      body: { code: 4104, message: 'invalid request: revisionId is required' },
    });
    expect(await put({ revisionId: 'x', cpu: 0 })).toMatchObject({ status: 400, body: { code: 4104 } });
    expect(await put({ revisionId: 'x' })).toEqual(NOT_FOUND(NAME));
    const { revisionId } = await meta.register();
    expect(await put({ revisionId, name: '0@demo@other' })).toMatchObject({ status: 400, body: { code: 4104 } });
    expect(await put({ revisionId: 'x', runtime: 'go' })).toEqual(STALE);
    expect(await put({ revisionId, runtime: 'go' })).toMatchObject({ status: 200, body: { code: 4104 } });
    expect(await put({ revisionId, kind: 'faas' })).toMatchObject({ status: 200, body: { code: 4104 } });
    expect(await put({ revisionId, minInstance: 101 })).toMatchObject({ status: 200, body: { code: 4104 } });
    expect(await put({ revisionId }, `${URN}:v1`)).toMatchObject({ status: 400, body: { code: 4104 } });
  });
});

describe('delete', () => {
  test('one version, or with $latest or nothing all of them', async () => {
    await using meta = await testMeta();
    const get = (version: string) => meta.send('GET', `/functions/${NAME}?version=${version}`);
    for (const all of ['', '?versionNumber=', '?versionNumber=$latest', '?versionNumber=latest']) {
      const { revisionId } = await meta.register();
      for (const versionNumber of ['v1', 'v2'])
        await meta.send('POST', `/functions/${NAME}/versions`, { revisionId, versionNumber });
      expect(await meta.send('DELETE', `/functions/${NAME}?versionNumber=v1`)).toEqual({
        status: 200,
        body: { code: 0, message: 'SUCCESS' },
      });
      expect(await get('v1')).toEqual(NO_VERSION('v1'));
      expect(await get('v2')).toMatchObject({ body: { code: 0 } });
      expect(await meta.send('DELETE', `/functions/${NAME}${all}`)).toMatchObject({ body: { code: 0 } });
      expect(await get('v2')).toEqual(NOT_FOUND(NAME));
    }
  });

  test('what is not there is 200 with code 4115', async () => {
    await using meta = await testMeta();
    expect(await meta.send('DELETE', `/functions/${NAME}`)).toEqual(NOT_FOUND(NAME));
    await meta.register();
    expect(await meta.send('DELETE', `/functions/${NAME}?versionNumber=v1`)).toEqual(NO_VERSION('v1'));
    expect(await meta.send('DELETE', `/functions/${NAME}`, undefined, { 'x-tenant-id': 'acme' })).toEqual(
      NOT_FOUND(NAME),
    );
  });

  test('a URN’s version counts, and may not differ from versionNumber', async () => {
    await using meta = await testMeta();
    const { revisionId } = await meta.register();
    await meta.send('POST', `/functions/${NAME}/versions`, { revisionId, versionNumber: 'v1' });
    expect(await meta.send('DELETE', `/functions/${URN}:v1?versionNumber=v2`)).toMatchObject({
      status: 400,
      body: { code: 4104 },
    });
    expect(await meta.send('DELETE', `/functions/${URN}:v1`)).toMatchObject({ body: { code: 0 } });
    expect(await meta.send('GET', `/functions/${NAME}?version=latest`)).toMatchObject({ body: { code: 0 } });
  });
});
