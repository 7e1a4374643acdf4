import { describe, expect, test } from 'vitest';
import { NAME, type TestMeta, testMeta, URN } from '../../../test/meta/meta.ts';
import type { RouteDocs } from '../../http/route-config.ts';
import { RESERVATION_DOCS } from './docs.ts';

const PATH = '/functions/reserve-instance';
const BODY = {
  funcName: NAME,
  version: '$latest',
  instanceLabel: 'gpu',
  instanceConfigInfos: [{ minInstance: 1, maxInstance: 5 }],
};
const CLUSTER = { clusterId: 'cluster001', minInstance: 1, maxInstance: 5 };
const NOT_FOUND = (what: string) => ({
  status: 200,
  body: { code: 4115, message: `function [${what}] is not found. check input parameters` },
});
const list = async (meta: TestMeta) => (await meta.send('GET', `${PATH}?funcName=${NAME}&version=latest`)).body;

describe('reservation create (POST)', () => {
  test('create answers the configuration with function, version and label', async () => {
    await using meta = await testMeta();
    await meta.register();
    expect(await meta.send('POST', PATH, { ...BODY, version: 'latest' })).toEqual({
      status: 200,
      body: {
        code: 0,
        message: '',
        instanceConfigInfos: [CLUSTER],
        reserveInsBaseInfo: { funcName: NAME, version: '$latest', instanceLabel: 'gpu' },
      },
    });
    expect(meta.changes.at(-1)).toEqual({
      kind: 'reserved',
      tenant: 'default',
      name: NAME,
      version: '$latest',
      mayKeepInstances: true,
    });
  });

  test('a second create replaces the first', async () => {
    await using meta = await testMeta();
    await meta.register();
    await meta.send('POST', PATH, BODY);
    await meta.send('POST', PATH, { ...BODY, instanceConfigInfos: [{ clusterId: 'cluster002', minInstance: '2' }] });
    expect((await list(meta)).results).toEqual([
      { instanceLabel: 'gpu', instanceConfigInfos: [{ clusterId: 'cluster002', minInstance: 2, maxInstance: 100 }] },
    ]);
  });

  test('an absent maximum becomes the function’s maximum, or the minimum if larger', async () => {
    await using meta = await testMeta();
    await meta.register({ maxInstance: 7 });
    const maxOf = async (minInstance: number) =>
      (await meta.send('POST', PATH, { ...BODY, instanceConfigInfos: [{ minInstance }] })).body.instanceConfigInfos[0]
        .maxInstance;
    expect(await maxOf(1)).toBe(7);
    expect(await maxOf(9)).toBe(9);
  });

  test('the 101st label is answered 200 with code 4104; an existing label can still be replaced', async () => {
    await using meta = await testMeta();
    await meta.register();
    for (let n = 0; n < 100; n++) await meta.send('POST', PATH, { ...BODY, instanceLabel: `label-${n}` });
    expect(await meta.send('POST', PATH, { ...BODY, instanceLabel: 'one-more' })).toMatchObject({
      status: 200,
      body: { code: 4104 },
    });
    expect(await meta.send('POST', PATH, { ...BODY, instanceLabel: 'label-5' })).toMatchObject({ body: { code: 0 } });
    expect((await list(meta)).total).toBe(100);
  });
});

describe('reservation update (PUT)', () => {
  test('an update keeps fields that are not sent', async () => {
    await using meta = await testMeta();
    await meta.register();
    await meta.send('POST', PATH, BODY);
    const answer = await meta.send('PUT', PATH, {
      ...BODY,
      instanceConfigInfos: [{ maxInstance: '9' }, { clusterId: 'cluster002' }],
    });
    expect(answer).toEqual({
      status: 200,
      body: {
        code: 0,
        message: '',
        instanceConfigInfos: [
          { ...CLUSTER, maxInstance: 9 },
          { clusterId: 'cluster002', minInstance: 0, maxInstance: 100 },
        ],
        reserveInsBaseInfo: { funcName: NAME, version: '$latest', instanceLabel: 'gpu' },
      },
    });
  });

  test('update of a label that does not exist is answered 200 with code 4104', async () => {
    await using meta = await testMeta();
    await meta.register();
    expect(await meta.send('PUT', PATH, BODY)).toMatchObject({ status: 200, body: { code: 4104 } });
    await meta.send('POST', PATH, BODY);
    expect(await meta.send('PUT', PATH, { ...BODY, instanceLabel: 'other' })).toMatchObject({
      status: 200,
      body: { code: 4104 },
    });
  });

  test('a minimum above the stored maximum is answered 200 with code 4104', async () => {
    await using meta = await testMeta();
    await meta.register();
    await meta.send('POST', PATH, BODY);
    expect(await meta.send('PUT', PATH, { ...BODY, instanceConfigInfos: [{ minInstance: 6 }] })).toMatchObject({
      status: 200,
      body: { code: 4104 },
    });
    expect((await list(meta)).results[0].instanceConfigInfos).toEqual([CLUSTER]);
  });
});

describe('reservation create and update', () => {
  test.each(['POST', 'PUT'])('%s answers 400 with code 4104 to an invalid request', async method => {
    await using meta = await testMeta();
    for (const changes of [
      { funcName: '' },
      { funcName: 'hello' },
      { funcName: '0@Bad_Name' },
      { funcName: 'sn:cn:yrk' },
      { version: null },
      { instanceLabel: '' },
      { instanceConfigInfos: [] },
      { instanceConfigInfos: [{}, {}] },
    ]) {
      expect(await meta.send(method, PATH, { ...BODY, ...changes })).toMatchObject({
        status: 400,
        body: { code: 4104 },
      });
    }
    expect(await meta.send(method, PATH, 'x')).toMatchObject({ status: 400, body: { code: 130600 } });
  });

  test.each(['POST', 'PUT'])('%s answers 200 with code 4115 when function or version does not exist', async method => {
    await using meta = await testMeta();
    expect(await meta.send(method, PATH, BODY)).toEqual(NOT_FOUND(NAME));
    await meta.register();
    expect(await meta.send(method, PATH, { ...BODY, version: 'v1' })).toEqual(NOT_FOUND(`${NAME}:v1`));
  });

  test.each(['POST', 'PUT'])('%s names the known clusters when a cluster is unknown (200, code 4104)', async method => {
    await using meta = await testMeta();
    await meta.register();
    await meta.send('POST', PATH, BODY);
    const { status, body } = await meta.send(method, PATH, { ...BODY, instanceConfigInfos: [{ clusterId: 'mars' }] });
    expect({ status, code: body.code }).toEqual({ status: 200, code: 4104 });
    expect(body.message).toBe('unknown cluster "mars"; this installation has "cluster001", "cluster002"');
  });

  test('a URN is accepted as funcName when the version is the same', async () => {
    await using meta = await testMeta();
    await meta.register();
    expect(await meta.send('POST', PATH, { ...BODY, funcName: `${URN}:latest` })).toMatchObject({
      body: { code: 0, reserveInsBaseInfo: { funcName: NAME } },
    });
    expect(await meta.send('POST', PATH, { ...BODY, funcName: `${URN}:v1` })).toMatchObject({
      status: 400,
      body: { code: 4104 },
    });
  });
});

describe('reservation query (GET)', () => {
  test('the query lists all labels of a version ordered by label', async () => {
    await using meta = await testMeta();
    await meta.register();
    for (const instanceLabel of ['b', 'a']) await meta.send('POST', PATH, { ...BODY, instanceLabel });
    expect(await list(meta)).toEqual({
      code: 0,
      message: '',
      total: 2,
      results: ['a', 'b'].map(instanceLabel => ({ instanceLabel, instanceConfigInfos: [CLUSTER] })),
    });
  });

  test('the query lists one label when the query names a label', async () => {
    await using meta = await testMeta();
    await meta.register();
    for (const instanceLabel of ['a', 'b']) await meta.send('POST', PATH, { ...BODY, instanceLabel });
    const one = await meta.send('GET', `${PATH}?funcName=${NAME}&version=latest&instanceLabel=b`);
    expect(one.body).toMatchObject({ total: 1, results: [{ instanceLabel: 'b' }] });
  });

  test('the query answers an empty list, 4115 without the function, and 400 without a version', async () => {
    await using meta = await testMeta();
    expect(await meta.send('GET', `${PATH}?funcName=${NAME}&version=latest`)).toEqual(NOT_FOUND(NAME));
    await meta.register();
    expect(await list(meta)).toEqual({ code: 0, message: '', total: 0, results: [] });
    expect(await meta.send('GET', `${PATH}?funcName=${NAME}`)).toMatchObject({ status: 400, body: { code: 4104 } });
  });
});

test.each(['create', 'update', 'list', 'delete'] as const)(
  'the API document of %s accepts the same names and URNs as the service',
  operation => {
    const docs: RouteDocs = RESERVATION_DOCS[operation];
    for (const shape of [docs.body, docs.querystring]) {
      const { pattern } = (shape as { properties?: { funcName: { pattern: string } } })?.properties?.funcName ?? {};
      if (pattern === undefined) continue;
      for (const funcName of [NAME, URN, `${URN}:$latest`, `${URN}:latest`, `${URN}:v1`]) {
        expect(funcName).toMatch(new RegExp(pattern, 'u'));
      }
      for (const funcName of ['hello', `${URN}:`, `${URN}:v1:v2`, `${URN}:-`, 'sn:cn:yrk', ` ${NAME}`]) {
        expect(funcName).not.toMatch(new RegExp(pattern, 'u'));
      }
    }
  },
);

describe('reservation delete', () => {
  test('delete removes one label or all labels of a version, by query or by body', async () => {
    await using meta = await testMeta();
    await meta.register();
    for (const instanceLabel of ['a', 'b', 'c', 'd']) await meta.send('POST', PATH, { ...BODY, instanceLabel });
    const done = { status: 200, body: { code: 0, message: '' } };
    expect(await meta.send('DELETE', `${PATH}?funcName=${NAME}&version=latest&instanceLabel=a`)).toEqual(done);
    expect(await meta.send('DELETE', PATH, { funcName: NAME, version: '$latest', instanceLabel: 'b' })).toEqual(done);
    expect((await list(meta)).total).toBe(2);
    expect(await meta.send('DELETE', `${PATH}?funcName=${NAME}&version=latest`)).toEqual(done);
    expect((await list(meta)).total).toBe(0);
  });

  test('a delete takes fields that the body lacks from the query, the label included', async () => {
    await using meta = await testMeta();
    await meta.register();
    for (const instanceLabel of ['a', 'b', 'c']) await meta.send('POST', PATH, { ...BODY, instanceLabel });
    await meta.send('DELETE', `${PATH}?instanceLabel=a`, { funcName: NAME, version: 'latest' });
    await meta.send('DELETE', `${PATH}?instanceLabel=b`, { funcName: NAME, version: 'latest', instanceLabel: null });
    expect((await list(meta)).results).toMatchObject([{ instanceLabel: 'c' }]);
  });

  test('delete of a label that does not exist is answered 200 with code 4104', async () => {
    await using meta = await testMeta();
    await meta.register();
    expect(await meta.send('DELETE', `${PATH}?funcName=${NAME}&version=latest`)).toMatchObject({
      status: 200,
      body: { code: 4104 },
    });
  });

  test('reservations are removed with their version and with their function', async () => {
    await using meta = await testMeta();
    const { revisionId } = await meta.register();
    await meta.send('POST', `/functions/${NAME}/versions`, { revisionId, versionNumber: 'v1' });
    await meta.send('POST', PATH, BODY);
    await meta.send('POST', PATH, { ...BODY, version: 'v1' });
    await meta.send('DELETE', `/functions/${NAME}?versionNumber=v1`);
    await meta.send('POST', `/functions/${NAME}/versions`, { revisionId, versionNumber: 'v1' });
    expect((await meta.send('GET', `${PATH}?funcName=${NAME}&version=v1`)).body.total).toBe(0);
    expect((await list(meta)).total).toBe(1);
    await meta.send('DELETE', `/functions/${NAME}`);
    await meta.register();
    expect((await list(meta)).total).toBe(0);
  });
});

test('reservations of another tenant are not visible', async () => {
  await using meta = await testMeta();
  await meta.register();
  await meta.send('POST', PATH, BODY);
  const acme = { 'x-tenant-id': 'acme' };
  expect(await meta.send('GET', `${PATH}?funcName=${NAME}&version=latest`, undefined, acme)).toEqual(NOT_FOUND(NAME));
  expect(await meta.send('PUT', PATH, BODY, acme)).toEqual(NOT_FOUND(NAME));
});
