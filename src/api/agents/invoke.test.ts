import http from 'node:http';
import type { AddressInfo } from 'node:net';
import { describe, expect, test, vi } from 'vitest';
import { deferred } from '../../../test/http/deferred.ts';
import { SPEC, type TestFrontend, testFrontend } from '../../../test/http/frontend.ts';
import { newInstance } from '../../../test/http/memory-instances.ts';
import {
  deadlineExceeded,
  invalidRequest,
  resourceExhausted,
  type ServiceError,
  unavailable,
} from '../../core/error.ts';
import type { CallSignal } from '../../lib/call-signal.ts';
import type { Call, CallOutcome } from '../../runtime/call.ts';

const AGENT = newInstance(SPEC);
const URL_OF_IT = `/api/agent/${AGENT.id}/invoke`;
const ok = (data: string): CallOutcome => ({ ok: true, data: Buffer.from(data), runMicros: 1 });

function frontendWithAgent(onInvoke?: (call: Call) => CallOutcome | Promise<CallOutcome>): TestFrontend {
  const frontend = testFrontend();
  frontend.instances.put(AGENT);
  if (onInvoke) frontend.instances.onInvoke = onInvoke;
  return frontend;
}

const invoke = (frontend: TestFrontend, payload?: string | Buffer, headers: Record<string, string> = {}) =>
  frontend.send({ method: 'POST', url: URL_OF_IT, headers, ...(payload === undefined ? {} : { payload }) });
const failing = (error: ServiceError) => () => Promise.reject(error);

describe('agent invoke: the error table', () => {
  test('agent invoke answers 200 with the result in data', async () => {
    await using frontend = frontendWithAgent(() => ok('{"greeting":"hi"}'));
    const answer = await invoke(frontend, '{"a":1}');
    expect(answer.status).toBe(200);
    expect(answer.text).toBe('{"code":200,"data":{"greeting":"hi"},"message":""}');
    expect(answer.headers['content-type']).toContain('application/json');
  });

  test.each([
    ['not JSON', '{"a":'],
    ['not JSON', 'hello'],
    ['a number that JSON does not allow', 'NaN'],
    ['not UTF-8', Buffer.from([0x22, 0xc3, 0x28, 0x22])],
  ])('agent invoke answers 400 when the request cannot be built: %s', async (_, payload) => {
    await using frontend = frontendWithAgent();
    expect(await invoke(frontend, payload)).toMatchObject({
      status: 400,
      body: { code: 400, message: expect.stringMatching(/^failed to build invoke request: ./) },
    });
    expect(frontend.instances.calls).toEqual([]);
  });

  test('agent invoke answers 400 when the headers exceed a frame', async () => {
    await using frontend = frontendWithAgent(failing(invalidRequest('headers of 70000 bytes exceed the limit')));
    expect(await invoke(frontend, '{}')).toMatchObject({
      status: 400,
      body: { code: 400, message: 'failed to build invoke request: headers of 70000 bytes exceed the limit' },
    });
  });

  test('agent invoke answers 404 when the instance does not exist', async () => {
    await using frontend = testFrontend();
    expect(await invoke(frontend, '{}')).toMatchObject({
      status: 404,
      body: { code: 404, message: `instance not found: ${AGENT.id}` },
    });
  });

  test('agent invoke answers 404 with the reason when the instance is FAILED', async () => {
    await using frontend = testFrontend();
    frontend.instances.put({ ...AGENT, status: 'FAILED', statusReason: 'instance exited: exit code 3' });
    const about = `instance not found: ${AGENT.id}: it is FAILED (instance exited: exit code 3); `;
    expect(await invoke(frontend, '{}')).toMatchObject({
      status: 404,
      body: { code: 404, message: expect.stringContaining(about) },
    });
  });

  test.each([
    [4201, 'empty user call code'],
    [4001, 'no module named main'],
    [4002, 'Fail to run user call handler. err: boom "quoted".'],
  ])('agent invoke answers 500 to an error of user code with code %d', async (code, text) => {
    await using frontend = frontendWithAgent(() => ({ ok: false, code, text, runMicros: 1 }));
    const answer = await invoke(frontend, '{}');
    expect(answer.status).toBe(500);
    expect(answer.body).toEqual({ code: 500, data: null, message: `invoke failed: code=${code} err=${text}` });
    expect(answer.headers['x-inner-code']).toBe(String(code));
  });

  test.each([
    deadlineExceeded('timed out after 900 s'),
    unavailable('instance exited: signal SIGKILL'),
    unavailable('the connection to the instance was lost'),
  ])('agent invoke answers 500 when the call fails or times out: $message', async error => {
    await using frontend = frontendWithAgent(failing(error));
    const answer = await invoke(frontend, '{}');
    expect(answer.status).toBe(500);
    expect(answer.body).toEqual({ code: 500, data: null, message: `invoke failed: ${error.message}` });
    expect(answer.headers['x-inner-code']).toBe(error.code === 'deadline_exceeded' ? '4010' : undefined);
  });

  test('agent invoke answers 429 with Retry-After when too many calls wait', async () => {
    await using frontend = frontendWithAgent(
      failing(resourceExhausted('too many calls are waiting', { retryAfterSeconds: 3 })),
    );
    const answer = await invoke(frontend, '{}');
    expect(answer).toMatchObject({
      status: 429,
      body: { code: 429, message: 'invoke failed: too many calls are waiting' },
    });
    expect(answer.headers['retry-after']).toBe('3');
  });

  test('agent invoke answers 413 to a body above 6 MiB', async () => {
    await using frontend = frontendWithAgent(() => ok('null'));
    const limit = 6 * 1024 * 1024;
    expect((await invoke(frontend, `"${'x'.repeat(limit - 2)}"`)).status).toBe(200);
    expect(await invoke(frontend, `"${'x'.repeat(limit - 1)}"`)).toMatchObject({
      status: 413,
      body: { code: 413, message: `request body is larger than ${limit} bytes` },
    });
  });

  test('agent invoke answers 500 without the text of an internal error', async () => {
    await using frontend = frontendWithAgent(() => Promise.reject(new Error('secret detail')));
    const answer = await invoke(frontend, '{}', { 'x-trace-id': 't9' });
    expect(answer.status).toBe(500);
    expect(answer.body).toEqual({
      code: 500,
      data: null,
      message: 'invoke failed: internal error, the log has it under trace id t9',
    });
  });
});

describe('the event of an agent call', () => {
  test.each([undefined, '', Buffer.alloc(0)])('an empty body becomes {} (%j)', async payload => {
    await using frontend = frontendWithAgent();
    await invoke(frontend, payload, { 'content-type': 'application/json' });
    expect(frontend.instances.calls[0]?.call.body.toString()).toBe('{}');
  });

  test.each(['null', '0', '"text"', '[1, 2]', ' { "a" : 1e3 } ', '{"a":"\\u00e4ä😀"}', '{"__proto__":{"a":1}}'])(
    'the handler receives the bytes unchanged: %s',
    async payload => {
      await using frontend = frontendWithAgent();
      const answer = await invoke(frontend, payload);
      expect(frontend.instances.calls[0]?.call.body.equals(Buffer.from(payload))).toBe(true);
      expect(answer.text).toBe(`{"code":200,"data":${payload},"message":""}`);
    },
  );

  test.each(['text/plain', 'application/x-www-form-urlencoded', 'nonsense'])(
    'agent invoke accepts content type %s',
    async type => {
      await using frontend = frontendWithAgent();
      expect((await invoke(frontend, '{"a":1}', { 'content-type': type })).status).toBe(200);
    },
  );

  test('the answer contains the result bytes without encoding them again', async () => {
    const data = '{"n":1.0,"big":12345678901234567890,"k":"\\u00e9","k":2}';
    await using frontend = frontendWithAgent(() => ok(data));
    expect((await invoke(frontend)).text).toBe(`{"code":200,"data":${data},"message":""}`);
  });
});

describe('an agent call', () => {
  test('an agent call passes the trace id on and gets a new request id', async () => {
    await using frontend = frontendWithAgent();
    await invoke(frontend, '{}', { 'x-trace-id': 'trace-1' });
    await invoke(frontend, '{}', { 'x-trace-id': 'trace-1' });
    const [first, second] = frontend.instances.calls.map(({ call }) => call.header);
    expect(first?.traceId).toBe('trace-1');
    expect(first?.requestId).not.toBe(second?.requestId);
  });

  test('an agent call continues the trace of traceparent with a new span', async () => {
    await using frontend = frontendWithAgent();
    const traceId = '4bf92f3577b34da6a3ce929d0e0e4736';
    await invoke(frontend, '{}', { traceparent: `00-${traceId}-00f067aa0ba902b7-01` });
    const continued = frontend.instances.calls[0]?.call.header.traceparent;
    expect(continued).toMatch(new RegExp(`^00-${traceId}-[0-9a-f]{16}-01$`));
    expect(continued).not.toContain('00f067aa0ba902b7');
  });

  test.each([undefined, 'nonsense', `00-${'0'.repeat(32)}-00f067aa0ba902b7-01`])(
    'an agent call starts a new trace when traceparent is %s',
    async sent => {
      await using frontend = frontendWithAgent();
      await invoke(frontend, '{}', sent === undefined ? {} : { traceparent: sent });
      expect(frontend.instances.calls[0]?.call.header.traceparent).toMatch(
        /^00-(?!0{32})[0-9a-f]{32}-[0-9a-f]{16}-01$/,
      );
    },
  );

  test('an agent call has the timeout of X-Invoke-Timeout-Ms', async () => {
    await using frontend = frontendWithAgent();
    await invoke(frontend, '{}', { 'x-invoke-timeout-ms': '1500' });
    expect(frontend.instances.calls[0]?.call.timeoutMs).toBe(1500);
  });

  test.each(['0', '-1', '1.5', 'abc', '', '1e3', '5, 6'])(
    'an agent call rejects X-Invoke-Timeout-Ms "%s"',
    async value => {
      await using frontend = frontendWithAgent();
      expect(await invoke(frontend, '{}', { 'x-invoke-timeout-ms': value })).toMatchObject({
        status: 400,
        body: {
          code: 400,
          message: expect.stringContaining('the header X-Invoke-Timeout-Ms must be a positive integer'),
        },
      });
      expect(frontend.instances.calls).toEqual([]);
    },
  );

  test('an agent call is counted by outcome', async () => {
    await using frontend = frontendWithAgent();
    await invoke(frontend, '{}');
    frontend.instances.onInvoke = () => ({ ok: false, code: 4002, text: 'x', runMicros: 1 });
    await invoke(frontend, '{}');
    frontend.instances.onInvoke = failing(deadlineExceeded('timed out after 1 s'));
    await invoke(frontend, '{}');
    expect(frontend.outcomes).toEqual(['ok', '4002', 'deadline_exceeded']);
    expect(frontend.requests.map(({ route, status }) => [route, status])).toEqual([
      ['/api/agent/:instanceId/invoke', 200],
      ['/api/agent/:instanceId/invoke', 500],
      ['/api/agent/:instanceId/invoke', 500],
    ]);
  });

  test('an agent call passes a recorded span on and ends the span', async () => {
    const ended: unknown[] = [];
    const span = {
      traceparent: `00-${'a'.repeat(32)}-${'b'.repeat(16)}-01`,
      set: () => {},
      part: () => {},
      end: (e?: unknown) => void ended.push(e),
    };
    await using frontend = testFrontend({ tracer: { start: () => span } });
    frontend.instances.put(AGENT);
    await invoke(frontend, '{}');
    expect(frontend.instances.calls[0]?.call.header.traceparent).toBe(span.traceparent);
    expect(ended).toEqual([undefined]);
  });
});

describe('an agent call over a real connection', () => {
  const portOf = (frontend: TestFrontend) => (frontend.app.server.address() as AddressInfo).port;

  test('an agent call is cancelled when the client disconnects', async () => {
    const started = deferred<Call>();
    const left = deferred();
    await using frontend = frontendWithAgent(
      call =>
        new Promise((_, reject) => {
          call.signal?.addEventListener('abort', () => {
            reject(unavailable('the caller went away'));
            left.resolve();
          });
          started.resolve(call);
        }),
    );
    await frontend.listen();
    const request = http.request({ port: portOf(frontend), host: '127.0.0.1', path: URL_OF_IT, method: 'POST' });
    request.on('error', () => {});
    request.end('{}');
    await started.promise;
    request.destroy();
    await left.promise;
    await vi.waitFor(() => expect(frontend.outcomes).toEqual(['unavailable']));
    expect(frontend.lines).toEqual([]);
  });

  test('an agent call is not cancelled while the client waits, and the connection serves more calls', async () => {
    const signals = new Set<CallSignal | undefined>();
    await using frontend = frontendWithAgent(call => {
      signals.add(call.signal);
      return ok(call.body.toString());
    });
    await frontend.listen();
    const agent = new http.Agent({ keepAlive: true, maxSockets: 1 });
    const sockets = new Set<unknown>();
    try {
      for (const event of ['1', '2', '3']) {
        const text = await new Promise<string>((resolve, reject) => {
          const request = http.request(
            { port: portOf(frontend), host: '127.0.0.1', path: URL_OF_IT, method: 'POST', agent },
            response => {
              sockets.add(response.socket);
              let received = '';
              response.setEncoding('utf8');
              response.on('data', chunk => {
                received += chunk;
              });
              response.on('end', () => resolve(received));
            },
          );
          request.on('error', reject);
          request.end(event);
        });
        expect(JSON.parse(text)).toEqual({ code: 200, data: Number(event), message: '' });
      }
      expect(sockets.size).toBe(1);
      expect([...signals].map(signal => signal?.aborted)).toEqual([false]);
    } finally {
      agent.destroy();
    }
  });

  test('an agent call ends normally when the server closes during the call', async () => {
    const started = deferred();
    const finish = deferred();
    const frontend = frontendWithAgent(async () => {
      started.resolve();
      await finish.promise;
      return ok('"done"');
    });
    const url = await frontend.listen();
    const answer = fetch(`${url}${URL_OF_IT}`, { method: 'POST', body: '{}' });
    await started.promise;
    const closed = frontend.app.close();
    finish.resolve();
    expect(await (await answer).json()).toMatchObject({ data: 'done' });
    await closed;
  });
});
