import { describe, expect, test } from 'vitest';
import { FUNCTION, NAME, testMeta, URN } from '../../../test/meta/meta.ts';

const FOREIGN = URN.replace(':default:', ':acme:');
const WRONG_NAME = '0@demo@other';

describe('requests that are invalid without stored data', () => {
  const revisionId = '20261120100000000';
  const reservation = { funcName: NAME, version: 'v1', instanceLabel: 'gold', instanceConfigInfos: [{}] };

  test.each<[string, string, string, unknown]>([
    ['GET', URN, '', undefined],
    ['GET', `${URN}:v1`, '?versionNumber=v2', undefined],
    ['DELETE', `${URN}:v1`, '?versionNumber=v2', undefined],
    ['PUT', `${URN}:v1`, '', { revisionId }],
    ['PUT', URN, '', { revisionId, name: WRONG_NAME }],
    ['PUT', URN, '', { revisionId, minInstance: 5, maxInstance: 4 }],
    ['PUT', NAME, '', { revisionId, minInstance: '5', maxInstance: 4 }],
    ['POST', `${URN}:v1`, '/versions', { revisionId }],
    ['PUT', 'reserve-instance', '', { ...reservation, funcName: `${URN}:v2` }],
  ])('an invalid request is rejected before stored data is read: %s %s%s %j', async (method, name, rest, body) => {
    await using meta = await testMeta();
    const own = await meta.send(method, `/functions/${name}${rest}`, body);
    expect(own).toMatchObject({ status: method === 'POST' ? 200 : 400, body: { code: 4104 } });
    const foreignBody = body && JSON.parse(JSON.stringify(body).replaceAll(URN, FOREIGN));
    expect(await meta.send(method, `/functions/${name.replace(URN, FOREIGN)}${rest}`, foreignBody)).toEqual(own);
  });
});

describe('a delete without body fields', () => {
  const DELETES = [`/functions/${NAME}`, '/podpools?id=a'];

  test.each(DELETES)('a delete answers 400 and deletes nothing when the body is not a JSON object: %s', async path => {
    await using meta = await testMeta();
    await meta.register();
    for (const body of ['x', '[]', 'null']) {
      expect(await meta.send('DELETE', path, body)).toMatchObject({ status: 400, body: { code: 130600 } });
    }
    expect((await meta.send('GET', '/functions')).body.result.total).toBe(1);
  });

  test.each(DELETES)('a delete names ignored fields in the warnings: %s', async path => {
    await using meta = await testMeta();
    await meta.register();
    const { body } = await meta.send('DELETE', path, { versionNumber: 'v1' });
    expect(body.warnings).toEqual(['unknown field versionNumber was ignored']);
  });
});

describe('list pages', () => {
  test.each(['1099511627777', '9007199254740993', '99999999999999999999999'])(
    'a page past the end is empty with the true total: %s',
    async page => {
      await using meta = await testMeta();
      await meta.register();
      expect(await meta.send('GET', `/functions?pageIndex=${page}`)).toEqual({
        status: 200,
        body: { code: 0, message: '', result: { total: 1, functions: [] } },
      });
      expect(await meta.send('GET', `/functions/${NAME}/versions?pageIndex=${page}`)).toEqual({
        status: 200,
        body: { code: 0, message: '', functions: [], pageInfo: { total: 1, pageSize: '1000', pageIndex: page } },
      });
      expect(await meta.send('GET', `/podpools?offset=${page}&limit=1000`)).toEqual({
        status: 200,
        body: { code: 0, message: '', result: { count: 0, pools: [] } },
      });
    },
  );

  test.each(['0', '000', '-1', '1.5', '1e1', '0x1', ' 1', 'x'])('pageIndex %j is answered 200 (4104)', async page => {
    await using meta = await testMeta();
    expect(await meta.send('GET', `/functions?pageIndex=${encodeURIComponent(page)}`)).toMatchObject({
      status: 200,
      body: { code: 4104, message: expect.stringContaining('pageIndex must be a positive integer') },
    });
  });
});

test('an update with an empty kind keeps the function’s kind', async () => {
  await using meta = await testMeta();
  const { revisionId } = await meta.register({ ...FUNCTION, kind: 'agent' });
  expect(await meta.send('PUT', `/functions/${NAME}`, { revisionId, kind: '', cpu: 600 })).toMatchObject({
    body: { code: 0, function: { kind: 'agent', cpu: 600 } },
  });
});

test('a function with a relative codePath has the status unavailable', async () => {
  await using meta = await testMeta({ registry: { exists: async () => true } });
  await meta.register({ storageType: 'local', codePath: 'src' });
  expect((await meta.send('GET', `/functions/${NAME}?versionNumber=latest`)).body.function.status).toBe('unavailable');
});
