import { describe, expect, test } from 'vitest';
import { FUNCTION, NAME, NO_VERSION, NOT_FOUND, testMeta, URN } from '../../../test/meta/meta.ts';

describe('unknown fields', () => {
  const warnings = ['unknown field memroy was ignored; did you mean memory?'];

  test('answers of register, update, publish and reservations name unknown fields', async () => {
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

  test('an error names unknown fields too, because a required field may be misspelt', async () => {
    await using meta = await testMeta();
    const { memory: _, ...rest } = FUNCTION;
    const answer = await meta.send('POST', '/functions', { ...rest, memroy: 1 });
    expect(answer).toMatchObject({
      status: 400,
      body: { code: 4104, message: expect.stringContaining('memory is required'), warnings },
    });
  });

  test('an answer about pools names unknown fields with the index of the pool', async () => {
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
  test('register answers code 0, the functionVersionUrn and the whole record', async () => {
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

  test('register without kind stores the kind yrlib', async () => {
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

  test.each(['', '[]', 'null', '"x"', '1'])(
    'a body %j that is not an object is 400 with code 130600',
    async payload => {
      await using meta = await testMeta();
      expect(await meta.send('POST', '/functions', payload)).toMatchObject({ status: 400, body: { code: 130600 } });
    },
  );

  test('an invalid register request is 400 with code 4104 and names every problem', async () => {
    await using meta = await testMeta();
    const { status, body } = await meta.send('POST', '/functions', { ...FUNCTION, name: 'hello', cpu: '500' });
    expect({ status, code: body.code }).toEqual({ status: 400, code: 4104 });
    expect(body.message).toContain('name must have the format 0@{service}@{funcName}');
    expect(body.message).toContain('cpu must be an integer');
  });

  test('no answer contains the token of an object store', async () => {
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
  test('a query accepts versionNumber or version, and latest for $latest', async () => {
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

  test('a query whose versionNumber and version differ, or that repeats one, is 4104', async () => {
    await using meta = await testMeta();
    for (const query of ['versionNumber=v1&version=v2', 'versionNumber=v1&versionNumber=v1']) {
      expect(await meta.send('GET', `/functions/${NAME}?${query}`)).toMatchObject({
        status: 400,
        body: { code: 4104 },
      });
    }
  });

  test('a query for a missing function is 200 with code 4115, the name, and the version if only that is missing', async () => {
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
