import { describe, expect, it } from 'vitest';
import { settle } from '../../../test/fakes/fake-clock.ts';
import { type FakeInstance, functionDefinition, InvokerHarness, URN } from '../../../test/functions/harness.ts';
import { testFrontend } from '../../../test/http/frontend.ts';
import { deadlineExceeded, failedPrecondition, PartAway, unavailable } from '../../core/error.ts';
import type { AsyncCalls, AsyncSubmission } from '../../functions/async-calls.ts';
import { CodeFailure } from '../../functions/function-instance.ts';
import { CHECKED_BYTES } from '../../runtime/call.ts';
import type { FunctionRoutesOptions } from './invoke.ts';

const PATH = `/serverless/v1/functions/${URN}/invocations`;

/** Creates a frontend whose function service runs on fake instances. */
function bed(options: Partial<FunctionRoutesOptions> = {}) {
  const harness = new InvokerHarness();
  const submitted: AsyncSubmission[] = [];
  const asyncCalls = {
    submit: async (submission: AsyncSubmission) => {
      submitted.push(submission);
      return 'request-1';
    },
  } as unknown as AsyncCalls;
  const frontend = testFrontend({
    service: {
      functions: harness.invoker,
      asyncCalls,
      business: 'yrk',
      ownTenantOnly: false,
      webhookPrefixes: null,
      tracer: { start: () => null },
      ...options,
    },
  });
  const post = (path = PATH, headers: Record<string, string> = {}, payload = '{}') =>
    frontend.send({ method: 'POST', url: path, headers: { host: 'localhost', ...headers }, payload });
  /** Sends a call and applies `end` to every running call, to finish or fail it. */
  const call = async (end: (running: FakeInstance['calls'][number]) => void, headers: Record<string, string> = {}) => {
    const answer = post(PATH, headers);
    await expect.poll(() => harness.launcher.launched.some(({ calls }) => calls.length > 0)).toBe(true);
    for (const { calls } of harness.launcher.launched) for (const running of [...calls]) end(running);
    return await answer;
  };
  return { harness, frontend, submitted, post, call, [Symbol.asyncDispose]: () => frontend[Symbol.asyncDispose]() };
}

describe('a successful function call', () => {
  it('a function call answers 200 with the bytes of the value and the headers of the call', async () => {
    await using it = bed();
    const { status, headers, body } = await it.call(running =>
      running.finish({ data: Buffer.from('"text"') } as never),
    );
    expect({ status, body }).toEqual({ status: 200, body: 'text' });
    expect(headers).toMatchObject({
      'content-type': 'application/json; charset=utf-8',
      'x-inner-code': '0',
      'x-instance-id': 'i1',
      'x-billing-duration': '1',
      'x-trace-id': expect.any(String),
    });
    expect(headers['server-timing']).toBe(
      'queue;dur=0.000, place;dur=0.000, start;dur=5.000, load;dur=2.000, run;dur=1.000',
    );
  });

  it('a function call passes session and client headers to the handler, without platform headers', async () => {
    await using it = bed();
    let seen: FakeInstance['calls'][number]['call'] | undefined;
    await it.call(
      running => {
        seen = running.call;
        running.finish();
      },
      { 'x-own': 'yes', authorization: 'Bearer x', 'x-instance-session': 's1' },
    );
    expect(seen?.header).toMatchObject({ sessionId: 's1', headers: { 'x-own': 'yes' } });
    expect(seen?.header.headers).not.toHaveProperty('authorization');
  });

  it.each(['', '/', ':latest', ':$latest/'])('a function call accepts the short URL with "%s"', async end => {
    await using it = bed();
    const answer = it.post(`/invocations/default/svc/hello${end}`);
    await expect.poll(() => it.harness.launcher.launched[0]?.calls.length).toBe(1);
    it.harness.launcher.launched[0]?.calls[0]?.finish();
    expect((await answer).status).toBe(200);
  });
});

it.each(['text/event-stream', 'application/json, Text/Event-Stream'])(
  'a function call answers an event stream to Accept: %s',
  async accept => {
    await using it = bed();
    const { headers, text } = await it.call(running => running.finish(), { accept });
    expect(headers['content-type']).toContain('text/event-stream');
    expect(text).toContain('data: [DONE]');
  },
);

it.each([
  ['"a\\u00e9b"', 'data: aéb\n\n'],
  [' {"id":9223372036854775809} ', 'data:  {"id":9223372036854775809} \n\n'],
  [' null ', ''],
])('a stream ends with the value %s as the last event', async (value, event) => {
  await using it = bed();
  const end = (running: FakeInstance['calls'][number]) => running.finish({ data: Buffer.from(value) } as never);
  const { text } = await it.call(end, { accept: 'text/event-stream' });
  expect(text).toBe(`${event}data: [DONE]\n\n`);
});

it('a stream answers 500 (4007) when a large value is not JSON', async () => {
  await using it = bed();
  const data = Buffer.from(`["${'x'.repeat(CHECKED_BYTES)}\\x"]`);
  const answer = await it.call(running => running.finish({ data } as never), { accept: 'text/event-stream' });
  expect(answer).toMatchObject({ status: 500, body: { code: 4007 }, headers: { 'x-inner-code': '4007' } });
});

it('a function call with an Idempotency-Key runs, and X-Advice says that the key is ignored', async () => {
  await using it = bed();
  const end = (running: FakeInstance['calls'][number]) => running.finish({ data: Buffer.from('1') } as never);
  const answer = await it.call(end, { 'idempotency-key': 'k' });
  expect(answer).toMatchObject({ status: 200, headers: { 'x-advice': expect.stringContaining('Idempotency-Key') } });
});

describe('a failed function call', () => {
  it.each([
    ['the handler raised', { code: 4002, text: 'Fail' }, 500],
    ['the value is not JSON', { code: 4007, text: 'NaN' }, 500],
    ['the result is too large', { code: 4004, text: 'size' }, 500],
    ['the handler timed out inside', { code: 4010, text: 'timed out' }, 504],
  ])('a function call answers the code of the runtime when %s', async (_title, { code, text }, status) => {
    await using it = bed();
    const answer = await it.call(running => running.finish({ ok: false, code, text, runMicros: 1 } as never));
    expect(answer).toMatchObject({ status, body: { code, message: text, trace_id: expect.any(String) } });
    expect(answer.headers['x-inner-code']).toBe(String(code));
  });

  it('a function call answers 500 (150427) when the instance dies, and 504 (4010) on timeout', async () => {
    await using it = bed();
    const died = await it.call(running => running.fail(unavailable('instance exited: signal SIGKILL')));
    expect(died).toMatchObject({ status: 500, body: { code: 150427 }, headers: { 'x-instance-id': 'i1' } });
    const late = await it.call(running => running.fail(deadlineExceeded('timed out after 60 s')));
    expect(late).toMatchObject({ status: 504, body: { code: 4010 } });
  });

  it('a function call answers 503 with Retry-After when a component is unavailable, else 500', async () => {
    await using it = bed();
    const answer = async (failure: Error) => {
      it.harness.launcher.failure = failure;
      const answered = await it.post();
      await it.harness.clock.advance(60_000);
      return answered;
    };
    const away = await answer(
      new PartAway('the code object b/o could not be fetched: the object store does not answer'),
    );
    expect(away).toMatchObject({
      status: 503,
      headers: { 'retry-after': '5', 'x-inner-code': '150500' },
      body: { code: 150500, message: expect.stringContaining('the object store does not answer') },
    });
    expect(await answer(unavailable('instance exited: exit code 1'))).toMatchObject({
      status: 500,
      body: { code: 150500 },
    });
    expect(await answer(failedPrecondition('no such driver'))).toMatchObject({ status: 500, body: { code: 150500 } });
  });

  it('a function call answers 4001 when code cannot be loaded, and 150500 when a start fails', async () => {
    await using it = bed();
    it.harness.launcher.failure = new CodeFailure({ code: 4001, message: 'no such folder' });
    expect(await it.post()).toMatchObject({ status: 500, body: { code: 4001, message: 'no such folder' } });
    await it.harness.clock.advance(60_000);
    it.harness.launcher.failure = unavailable('the driver is away');
    expect(await it.post()).toMatchObject({ status: 500, body: { code: 150500 } });
  });

  it.each([
    ['malformed URN', '/serverless/v1/functions/nonsense/invocations', {}, 400, 200400],
    ['URN without its version', `/serverless/v1/functions/${URN.replace(':$latest', '')}/invocations`, {}, 400, 200400],
    ['short URL with more than a version', '/invocations/default/svc/hello:latest:x', {}, 400, 200400],
    ['unknown function', PATH.replace('hello', 'nosuch'), {}, 404, 150424],
    ['unknown label', PATH, { 'x-instance-label': 'gold' }, 400, 150444],
    ['bad session', PATH, { 'x-instance-session': '{' }, 400, 4037],
    ['a session of 64 characters', PATH, { 'x-instance-session': 's'.repeat(64) }, 400, 4037],
    ['bad cpu', PATH, { 'x-instance-cpu': '-1' }, 400, 200400],
    ['bad custom resources', PATH, { 'x-instance-custom-resource': '[]' }, 400, 200400],
    ['bad pool labels', PATH, { 'x-pool-label': '[1]' }, 400, 200400],
    [
      'an asynchronous call with an unknown label',
      PATH,
      { 'x-invoke-type': 'async', 'x-instance-label': 'gold' },
      400,
      150444,
    ],
    [
      'an asynchronous call with a session larger than an instance',
      PATH,
      { 'x-invoke-type': 'async', 'x-instance-session': '{"sessionID":"s","concurrency":2}' },
      400,
      4037,
    ],
    ['an instance larger than the machine', PATH, { 'x-instance-memory': '9999999' }, 429, 150510],
    ['an unknown invoke type', PATH, { 'x-invoke-type': 'later' }, 400, 200400],
    ['webhooks are disabled', PATH, { 'x-invoke-type': 'async', 'x-webhook-url': 'http://x/' }, 400, 200400],
  ])('a function call is rejected: %s: %s', async (_title, path, headers, status, code) => {
    await using it = bed();
    const answer = await it.post(path, headers as Record<string, string>);
    expect(answer).toMatchObject({ status, body: { code }, headers: { 'x-inner-code': String(code) } });
    if (status === 429) expect(Number(answer.headers['retry-after'])).toBeGreaterThan(0);
  });

  it('a function call answers 400 when the body is not JSON, and 413 when the body is too large', async () => {
    await using it = bed();
    expect(await it.post(PATH, {}, '{')).toMatchObject({ status: 400, body: { code: 200400 } });
    expect(await it.post(PATH, {}, `"${'x'.repeat(6 * 1024 * 1024)}"`)).toMatchObject({
      status: 413,
      body: { code: 4140 },
    });
  });

  it('a function call answers Retry-After with 429 for a full queue and with 503 for a long wait', async () => {
    await using it = bed();
    it.harness.catalog.functions.set(URN, functionDefinition({ timeoutMs: 1000 }, { maxInstances: 1, maxWaiting: 1 }));
    const running = it.post();
    await expect.poll(() => it.harness.launcher.launched[0]?.calls.length).toBe(1);
    const two = [it.post(), it.post()];
    const full = await Promise.race(two);
    expect(full).toMatchObject({ status: 429, body: { code: 150429 }, headers: { 'retry-after': '1' } });
    await it.harness.clock.advance(1001);
    const late = (await Promise.all(two)).find(({ status }) => status !== 429);
    expect(late).toMatchObject({ status: 503, body: { code: 150431 }, headers: { 'retry-after': '1' } });
    it.harness.launcher.launched[0]?.calls[0]?.finish();
    expect((await running).status).toBe(200);
  });
});

describe('an asynchronous function call', () => {
  it('an asynchronous call answers 202 with the request id and stores the call unchanged', async () => {
    await using it = bed();
    expect(await it.post(PATH, { 'x-invoke-type': 'async' }, '{"n":1}')).toMatchObject({
      status: 202,
      body: { requestId: 'request-1' },
    });
    expect(it.submitted[0]).toMatchObject({ urn: URN, tenant: 'default', webhookUrl: '' });
    expect(it.submitted[0]?.body.toString()).toBe('{"n":1}');
    expect(await it.post(PATH.replace('hello', 'nosuch'), { 'x-invoke-type': 'async' })).toMatchObject({ status: 404 });
  });

  it('an asynchronous or streamed call answers 400 when its event does not fit the schema', async () => {
    await using it = bed();
    it.harness.catalog.functions.set(URN, functionDefinition({ inputSchema: { required: ['n'] } }));
    for (const headers of [{ 'x-invoke-type': 'async' }, { accept: 'text/event-stream' }]) {
      const message = 'the event does not fit the inputSchema of the function: event.n: is required';
      expect(await it.post(PATH, headers)).toMatchObject({ status: 400, body: { code: 200400, message } });
    }
    expect(it.submitted).toEqual([]);
    expect(await it.post(PATH, { 'x-invoke-type': 'async' }, '{"n":1}')).toMatchObject({ status: 202 });
  });

  it('an asynchronous call rejects webhook URLs outside the allowed prefixes or with escaped path steps', async () => {
    await using it = bed({ webhookPrefixes: ['https://hooks.example.com/ours/'] });
    const send = (url: string) => it.post(PATH, { 'x-invoke-type': 'async', 'x-webhook-url': url });
    expect((await send('https://hooks.example.com/ours/1')).status).toBe(202);
    for (const url of [
      'https://hooks.example.com/ours/../other',
      'https://hooks.example.com.evil.test/ours/',
      'https://hooks.example.com@evil.test/ours/',
      'https://hooks.example.com/ours/%2e%2e%2fother',
      'https://hooks.example.com/ours/..%2Fother',
      'https://hooks.example.com/ours/a%5Cb',
      'https://hooks.example.com/ours/%252e%252e%252fother',
      'file:///etc/passwd',
      'nonsense',
    ]) {
      expect(await send(url), url).toMatchObject({ status: 400, body: { code: 200400 } });
    }
  });
});

describe('function sessions and instances', () => {
  it('session end and interrupt answer 200, or 404 (200404) when the session is unknown', async () => {
    await using it = bed();
    const session = `/serverless/v1/functions/${URN}/sessions/s1`;
    const ask = (method: 'POST' | 'DELETE', url: string) =>
      it.frontend.send({ method, url, headers: { host: 'localhost' } });
    expect(await ask('DELETE', session)).toMatchObject({ status: 404, body: { code: 200404 } });
    expect(await ask('POST', `${session}/interrupt`)).toMatchObject({ status: 404, body: { code: 200404 } });
    const answer = it.post(PATH, { 'x-instance-session': 's1' });
    await expect.poll(() => it.harness.launcher.launched[0]?.calls.length).toBe(1);
    expect(await ask('POST', `${session}/interrupt`)).toMatchObject({
      status: 200,
      body: { message: 'Interrupted Success' },
    });
    it.harness.launcher.launched[0]?.calls[0]?.finish();
    await answer;
    expect((await ask('DELETE', session)).status).toBe(200);
  });

  it('instances and their logs are listed; an invalid log query is answered 400 (200400)', async () => {
    await using it = bed();
    await it.call(running => running.finish());
    const get = (rest: string) =>
      it.frontend.send({
        method: 'GET',
        url: `/serverless/v1/functions/${URN}/${rest}`,
        headers: { host: 'localhost' },
      });
    expect(await get('instances')).toMatchObject({
      status: 200,
      body: { instances: [{ instance_id: 'i1', status: 'ready', running_calls: 0, cpu: 500, memory: 128 }] },
    });
    expect((await get('logs')).text).toBe('[i1] line of i1\n[i1] another\n');
    expect((await get('logs?instance=i1')).text).toBe('line of i1\nanother\n');
    expect(await get('logs?instance=i2')).toMatchObject({ status: 404, body: { code: 200404 } });
    expect(await get('logs?tail=x')).toMatchObject({ status: 400, body: { code: 200400 } });
    await settle();
  });
});
