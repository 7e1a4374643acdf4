import { describe, expect, test } from 'vitest';
import { FUNCTION, NAME, NO_VERSION, NOT_FOUND, testMeta, URN } from '../../../test/meta/meta.ts';

const STALE = { status: 200, body: { code: 4134, message: 'revisionId is non latest version' } };
const DUPLICATE = {
  status: 200,
  body: {
    code: 4114,
    message: 'duplicate version number',
  },
};

describe('function publish', () => {
  test('publish answers the record of the version with the revision of the latest version', async () => {
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

  test('the default version number is v, date and time; a second publish within 1 s is a duplicate', async () => {
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

  test('a version keeps the function’s createTime; Published is the time of the publish', async () => {
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

  test('publish checks fields, function, kind, revision, syntax, duplicate and version count in order', async () => {
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

  test('a body that is not JSON is answered 400 with code 130600', async () => {
    await using meta = await testMeta();
    expect(await meta.send('POST', `/functions/${NAME}/versions`, 'x')).toMatchObject({
      status: 400,
      body: { code: 130600 },
    });
  });

  test('a URN must name the latest revision; a URN of another version is answered 4104', async () => {
    await using meta = await testMeta();
    const { revisionId } = await meta.register();
    const publish = (name: string) =>
      meta.send('POST', `/functions/${name}/versions`, { revisionId, versionNumber: 'v1' });
    expect(await publish(`${URN}:v1`)).toMatchObject({ status: 200, body: { code: 4104 } });
    expect(await publish(`${URN}:$latest`)).toMatchObject({ body: { code: 0 } });
  });
});

describe('function update', () => {
  test('update answers the function with a new revisionId and updateTime and keeps absent fields', async () => {
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

  test('revision ids strictly increase even when the clock runs backwards', async () => {
    await using meta = await testMeta();
    let { revisionId } = await meta.register();
    for (const step of [0, -3_600_000, 5, -1, 0]) {
      meta.clock.nowMs += step;
      const { function: updated } = (await meta.send('PUT', `/functions/${NAME}`, { revisionId })).body;
      expect(updated.revisionId > revisionId).toBe(true);
      revisionId = updated.revisionId;
    }
  });

  test('update answers 400 to invalid fields, and 200 with 4115, 4134 or 4104 after reading the record', async () => {
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

describe('function delete', () => {
  test('delete removes one version, or all versions when the version is $latest or absent', async () => {
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

  test('an unknown function is answered 200 with code 4115', async () => {
    await using meta = await testMeta();
    expect(await meta.send('DELETE', `/functions/${NAME}`)).toEqual(NOT_FOUND(NAME));
    await meta.register();
    expect(await meta.send('DELETE', `/functions/${NAME}?versionNumber=v1`)).toEqual(NO_VERSION('v1'));
    expect(await meta.send('DELETE', `/functions/${NAME}`, undefined, { 'x-tenant-id': 'acme' })).toEqual(
      NOT_FOUND(NAME),
    );
  });

  test('delete uses the version of a URN and rejects a different versionNumber', async () => {
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
