import { describe, expect, test } from 'vitest';
import { type FakeInstance, functionDefinition, InvokerHarness } from '../../../test/functions/harness.ts';
import { testFrontend } from '../../../test/http/frontend.ts';
import { memoryAwsKeys } from '../../../test/http/memory-aws-keys.ts';
import { notFound } from '../../core/error.ts';
import { LIMITS } from '../../core/limits.ts';
import type { AsyncCalls, AsyncSubmission } from '../../functions/async-calls.ts';
import { LAMBDA_FUNCTIONS, type LambdaRoutesOptions } from './lambda.ts';

const NAMES = ['0@default@a', '0@default@b', '0@svc@hello'];

/** The registry of the functions `NAMES`. */
const registry = {
  latestByName: async (_tenant: string, after: string, limit: number) =>
    NAMES.filter(name => name > after)
      .slice(0, limit)
      .map(name => JSON.stringify(recordOf(name))),
  get: async (_tenant: string, name: string, version: string) => {
    if (!NAMES.includes(name)) throw notFound(`function [${name}] is not found. check input parameters`);
    return { ...recordOf(name), version, publishTime: '', spec: { ...recordOf(name), tags: null } };
  },
} as unknown as LambdaRoutesOptions['registry'];

function recordOf(name: string) {
  return {
    ...{ name, runtime: 'python3.11', handler: 'app.main', memory: 512, timeout: 3, description: '' },
    ...{
      environment: { OWN: 'a', KEY: { secret: 'of-mine' } },
      storageType: 'local',
      codePath: '/code',
      versionDesc: '',
    },
    ...{ createTime: '2026-01-01 00:00:00.000 UTC', updateTime: '', revisionId: '1', versionNumber: '$latest' },
  };
}

const code = { packages: { find: async () => null } } as unknown as LambdaRoutesOptions['code'];

/** Creates a frontend whose functions run on fake instances. */
function bed({ canChange = true } = {}) {
  const harness = new InvokerHarness();
  const submitted: AsyncSubmission[] = [];
  const asyncCalls = {
    submit: async (submission: AsyncSubmission) => {
      submitted.push(submission);
      return 'request-1';
    },
  } as unknown as AsyncCalls;
  const frontend = testFrontend({
    lambda: { registry, code, canChange, keys: memoryAwsKeys() },
    service: {
      functions: harness.invoker,
      asyncCalls,
      business: 'yrk',
      ownTenantOnly: false,
      webhookPrefixes: null,
      tracer: { start: () => null },
    },
  });
  const send = (
    method: 'GET' | 'POST' | 'PUT' | 'DELETE',
    path: string,
    headers: Record<string, string> = {},
    payload = '',
  ) => frontend.send({ method, url: LAMBDA_FUNCTIONS + path, headers: { host: 'localhost', ...headers }, payload });
  /** Invokes a function and applies `end` to its running call. */
  const call = async (path: string, end: (running: FakeInstance['calls'][number]) => void, payload = '{}') => {
    const answer = send('POST', path, {}, payload);
    await expect.poll(() => harness.launcher.launched.some(({ calls }) => calls.length > 0)).toBe(true);
    for (const { calls } of harness.launcher.launched) for (const running of [...calls]) end(running);
    return await answer;
  };
  return { harness, send, call, submitted, [Symbol.asyncDispose]: () => frontend[Symbol.asyncDispose]() };
}

const HELLO = '/svc@hello/invocations';

describe('invocations by clients of Lambda', () => {
  test('an invocation answers the value and the executed version', async () => {
    await using it = bed();
    const path = `/${encodeURIComponent('arn:aws:lambda:us-east-1:1:function:svc@hello')}/invocations`;
    const { status, headers, body } = await it.call(path, running =>
      running.finish({ data: Buffer.from('{"a":1}') } as never),
    );
    expect({ status, body }).toEqual({ status: 200, body: { a: 1 } });
    expect(headers).toMatchObject({ 'x-amz-executed-version': '$LATEST', 'x-amzn-requestid': expect.any(String) });
    expect(headers).not.toHaveProperty('x-amz-log-result');
  });

  test('an invocation without a payload gets the event {}', async () => {
    await using it = bed();
    let event = '';
    await it.call(
      HELLO,
      running => {
        event = String(running.call.body);
        running.finish();
      },
      '',
    );
    expect(event).toBe('{}');
  });

  test('a failure of the code is a result with the exception', async () => {
    await using it = bed();
    const text = 'Fail to run user call handler. err: ValueError: boom.';
    const { status, headers, body } = await it.call(HELLO, running =>
      running.finish({ ok: false, code: 4002, text } as never),
    );
    expect(status).toBe(200);
    expect(headers['x-amz-function-error']).toBe('Unhandled');
    expect(body).toEqual({ errorType: 'ValueError', errorMessage: 'boom' });
  });

  test('an event is queued and answered with 202 and no body', async () => {
    await using it = bed();
    const { status, text } = await it.send('POST', HELLO, { 'x-amz-invocation-type': 'Event' }, '{"a":1}');
    expect({ status, text }).toEqual({ status: 202, text: '' });
    expect(it.submitted).toMatchObject([{ urn: expect.stringContaining('0@svc@hello:$latest') }]);
  });

  test('an event that does not fit the schema of its function is refused and not queued', async () => {
    await using it = bed();
    const urn = 'sn:cn:yrk:default:function:0@svc@hello:$latest';
    it.harness.catalog.functions.set(urn, functionDefinition({ inputSchema: { required: ['a'] } }));
    for (const type of ['Event', 'RequestResponse']) {
      expect(await it.send('POST', HELLO, { 'x-amz-invocation-type': type }, '{"b":1}')).toMatchObject({
        status: 400,
        body: { message: 'the event does not fit the inputSchema of the function: event.a: is required' },
      });
    }
    expect(it.submitted).toEqual([]);
    expect(await it.send('POST', HELLO, { 'x-amz-invocation-type': 'Event' }, '{"a":1}')).toMatchObject({
      status: 202,
    });
  });

  test('a dry run answers 204 and runs nothing', async () => {
    await using it = bed();
    expect((await it.send('POST', HELLO, { 'x-amz-invocation-type': 'DryRun' })).status).toBe(204);
    expect(it.submitted).toEqual([]);
  });

  const refused: [
    what: string,
    path: string,
    headers: Record<string, string>,
    payload: string,
    status: number,
    type: string,
  ][] = [
    ['an unknown function', '/unknown/invocations', {}, '{}', 404, 'ResourceNotFoundException'],
    ['an unknown version', `${HELLO}?Qualifier=-`, {}, '{}', 404, 'ResourceNotFoundException'],
    ['a payload that is not JSON', HELLO, {}, '{no', 400, 'InvalidRequestContentException'],
    ['an unknown type', HELLO, { 'x-amz-invocation-type': 'Later' }, '{}', 400, 'InvalidParameterValueException'],
    ['a name of another service', '/a:b:c/invocations', {}, '{}', 400, 'InvalidParameterValueException'],
    ['two versions', '/svc@hello:v1/invocations?Qualifier=v2', {}, '{}', 400, 'InvalidParameterValueException'],
    ['a payload above 6 MiB', HELLO, {}, `"${'x'.repeat(LIMITS.invokeBodyBytes)}"`, 413, 'RequestTooLargeException'],
  ];
  test.each(refused)('%s is refused', async (_, path, headers, payload, status, type) => {
    await using it = bed();
    const answer = await it.send('POST', path, headers, payload);
    expect(answer.status).toBe(status);
    expect(answer.headers['x-amzn-errortype']).toBe(type);
    expect(answer.body).toMatchObject({ message: expect.any(String) });
  });
});

describe('functions as clients of Lambda list them', () => {
  test('a list has every function once over its pages', async () => {
    await using it = bed();
    const names: string[] = [];
    let marker: string | null = '';
    while (marker !== null) {
      const page = await it.send('GET', `?MaxItems=2${marker === '' ? '' : `&Marker=${marker}`}`);
      const { Functions, NextMarker } = page.body as {
        Functions: { FunctionName: string }[];
        NextMarker: string | null;
      };
      names.push(...Functions.map(each => each.FunctionName));
      marker = NextMarker;
    }
    expect(names).toEqual(['a', 'b', 'svc@hello']);
  });

  test('a description has the fields of a function', async () => {
    await using it = bed();
    const fields = {
      ...{ FunctionName: 'svc@hello', Runtime: 'python3.11', Handler: 'app.main', MemorySize: 512, Timeout: 3 },
      FunctionArn: expect.stringMatching(/:function:svc@hello$/),
      ...{ LastModified: '2026-01-01T00:00:00.000+0000', LastUpdateStatus: 'Successful' },
      Environment: { Variables: { OWN: 'a', KEY: '{{resolve:secretsmanager:of-mine}}' } },
    };
    expect((await it.send('GET', '/svc@hello')).body).toMatchObject({ Configuration: fields });
    expect((await it.send('GET', '/svc@hello/configuration')).body).toMatchObject(fields);
  });

  test.each(['?MaxItems=0', '?MaxItems=x', '?Marker=!'])('the list refuses %s', async query => {
    await using it = bed();
    const { status, headers } = await it.send('GET', query);
    expect({ status, type: headers['x-amzn-errortype'] }).toEqual({
      status: 400,
      type: 'InvalidParameterValueException',
    });
  });

  test('a description of an unknown function is 404 and names it', async () => {
    await using it = bed();
    const { status, body } = await it.send('GET', '/unknown');
    expect({ status, body }).toMatchObject({ status: 404, body: { Message: 'Function not found: unknown' } });
  });

  test.each([
    ['POST', '/a/aliases'],
    ['GET', '/a/aliases?MaxItems=1'],
    ['PUT', '/a/aliases/live'],
  ] as const)('the operation %s %s names what takes the place of aliases', async (method, path) => {
    await using it = bed();
    const { status, headers, body } = await it.send(method, path);
    expect({ status, type: headers['x-amzn-errortype'] }).toEqual({ status: 404, type: 'UnknownOperationException' });
    expect(body).toMatchObject({
      Message: expect.stringMatching(/^\w+ \S+ is no operation .*; functions have no aliases/),
    });
  });
});

describe('changes of functions by clients of Lambda', () => {
  test('an entry without the meta_service changes nothing and says so', async () => {
    await using it = bed({ canChange: false });
    for (const [method, path] of [
      ['POST', ''],
      ['PUT', '/a/code'],
      ['DELETE', '/a'],
      ['POST', '/a/versions'],
    ] as const) {
      const { status, headers, body } = await it.send(method, path, {}, '{}');
      expect({ status, type: headers['x-amzn-errortype'] }).toEqual({ status: 404, type: 'UnknownOperationException' });
      expect(body).toMatchObject({ Message: expect.stringContaining(`${method} /lambda/`) });
    }
  });
});
