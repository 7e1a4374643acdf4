import { describe, expect, test } from 'vitest';
import { NAME, testMeta, URN } from '../../../test/meta/meta.ts';

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

  test('the function list has all versions, newest change first, with the true total', async () => {
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

  test('the function list filters by exact versionNumber and by case-sensitive part of name', async () => {
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

  test('a change invalidates cached pages', async () => {
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
  ])('the query %s is answered 200 with code 4104', async query => {
    await using meta = await testMeta();
    for (const path of ['/functions', `/functions/${NAME}/versions`]) {
      expect(await meta.send('GET', `${path}?${query}`)).toMatchObject({ status: 200, body: { code: 4104 } });
    }
  });
});

describe('version list', () => {
  test('the version list has the newest change first; pageIndex and pageSize are strings', async () => {
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

  test('the version list answers functions null and total 0 when the function does not exist', async () => {
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
