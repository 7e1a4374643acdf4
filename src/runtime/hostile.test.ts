import { mkdtempSync, rmSync } from 'node:fs';
import type net from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, test, vi } from 'vitest';
import { ScriptedRuntime } from '../../test/fakes/scripted-runtime.ts';
import { LIMITS } from '../core/limits.ts';
import type { Call, StateSaver } from './call.ts';
import { Channel } from './channel.ts';
import { encodeFrame, writeHeader } from './frames.ts';
import { FRAME, type Init } from './protocol.ts';

const SIGNAL = () => AbortSignal.timeout(30_000);
const HEADER = { traceId: 't', traceparent: '', requestId: 'r' };
const CALL: Call = { header: HEADER, body: Buffer.from('{}'), timeoutMs: 10_000 };
const STREAM: Call = { ...CALL, header: { ...HEADER, stream: true, credit: 4 }, onChunk: () => undefined };
const HELLO_OK = { version: 1, runtime: 'scripted', sdk: 'scripted/1', state: 'ready' };

let directory: string;
let runtime: ScriptedRuntime;
let channels: Channel[];

beforeEach(async () => {
  directory = mkdtempSync(join(tmpdir(), 'rookery-hostile-'));
  runtime = new ScriptedRuntime();
  channels = [];
  await runtime.listen(join(directory, 'runtime.sock'));
});

afterEach(async () => {
  for (const channel of channels) channel.close();
  await runtime.close();
  rmSync(directory, { recursive: true });
});

async function open(init?: Init): Promise<Channel> {
  const endpoint = { kind: 'unix', path: join(directory, 'runtime.sock') } as const;
  const channel = await Channel.open(endpoint, 'secret', SIGNAL(), init);
  channels.push(channel);
  return channel;
}

function json(type: number, callId: number, message: unknown): Buffer {
  return encodeFrame(type, callId, JSON.stringify(message));
}

function result(callId: number, value: string | Buffer): Buffer {
  return encodeFrame(FRAME.RESULT, callId, Buffer.concat([Buffer.alloc(4), Buffer.from(value)]));
}

/** Makes the runtime answer each call with the bytes that `make` returns. */
function answering(make: (callId: number, socket: net.Socket) => Buffer): void {
  runtime.onFrame = ({ type, callId }, socket) => {
    if (type === FRAME.CALL) socket.write(make(callId, socket));
  };
}

async function expectBroken(channel: Channel, call: Promise<unknown>): Promise<void> {
  await expect(call).rejects.toThrow(/^the runtime broke the protocol: [ -~]+$/);
  await channel.closed;
  expect(channel.closedBecause).toMatch(/^the runtime broke the protocol: /);
  expect(channel.inFlight).toBe(0);
}

describe('an answer that breaks the protocol fails its call and ends the connection', () => {
  const errors: Record<string, unknown> = {
    null: null,
    'a text': 'no',
    'a list': [4002, 'x'],
    'without a code': { message: 'x' },
    'whose code is an object': { code: { a: 1 }, message: 'x' },
    'whose code has a newline': { code: '4002\r\nSet-Cookie: a=b', message: 'x' },
    'whose code is "constructor"': { code: 'constructor', message: 'x' },
    'whose code is "__proto__"': { code: '__proto__', message: 'x' },
    "whose code is the platform's": { code: 200404, message: 'x' },
    'whose code is no integer': { code: 4002.5, message: 'x' },
    'whose code is negative': { code: -4002, message: 'x' },
    'whose text is an object': { code: 4002, message: { toString: 1 } },
    'whose text is missing': { code: 4002 },
    'whose time is negative': { code: 4002, message: 'x', runMicros: -1 },
    'whose time is a text': { code: 4002, message: 'x', runMicros: '1' },
  };
  test.each(Object.entries(errors))('an ERROR frame %s fails its call and ends the connection', async (_, message) => {
    const channel = await open();
    answering(callId => json(FRAME.ERROR, callId, message));
    await expectBroken(channel, channel.call(CALL));
  });

  test('an ERROR frame that is not JSON or is empty fails its call and ends the connection', async () => {
    for (const text of ['{"code":4002,', '']) {
      const channel = await open();
      answering(callId => encodeFrame(FRAME.ERROR, callId, text));
      await expectBroken(channel, channel.call(CALL));
    }
  });

  test.each([0, 1, 2, 3])('a RESULT frame of %i bytes fails its call and ends the connection', async length => {
    const channel = await open();
    answering(callId => encodeFrame(FRAME.RESULT, callId, Buffer.alloc(length)));
    await expectBroken(channel, channel.call(CALL));
  });

  test('a RESULT frame above the limit ends the connection before its bytes arrive', async () => {
    const channel = await open();
    answering(callId => {
      const head = Buffer.alloc(9);
      writeHeader(head, FRAME.RESULT, callId, LIMITS.responseBodyBytes + 5);
      return head;
    });
    await expectBroken(channel, channel.call(CALL));
  });

  test.each([
    ['twice for one call', (id: number) => Buffer.concat([json(FRAME.SPANS, id, {}), json(FRAME.SPANS, id, {})])],
    ['of a call that was never sent', (id: number) => json(FRAME.SPANS, id + 1, {})],
    ['of the connection itself', () => json(FRAME.SPANS, 0, {})],
    ['above the limit', (id: number) => encodeFrame(FRAME.SPANS, id, Buffer.alloc(LIMITS.callSpansBytes.sent + 1))],
  ])('SPANS %s fail the call and end the connection', async (_, make) => {
    const channel = await open();
    answering(callId => make(callId));
    await expectBroken(channel, channel.call(CALL));
  });

  test.each([
    ['of a call that was never sent', (callId: number) => result(callId + 1, '1')],
    ['twice', (callId: number) => Buffer.concat([result(callId, '1'), result(callId, '1')])],
    ['of the connection itself', () => result(0, '1')],
  ])('an answer %s fails its call and ends the connection', async (_, make) => {
    const channel = await open();
    answering(callId => make(callId));
    const call = channel.call(CALL).catch((error: unknown) => {
      throw error;
    });
    const other = channel.call({ ...CALL, timeoutMs: 5_000 });
    const settled = await Promise.allSettled([call, other]);
    await channel.closed;
    expect(settled.some(({ status }) => status === 'rejected')).toBe(true);
    expect(channel.closedBecause).toMatch(/^the runtime broke the protocol: /);
  });

  test.each([1, 2, 3, 4, 5, 9, 10, 11, 12, 13, 14, 15, 0, 255])(
    'a frame of type %i ends the connection',
    async type => {
      const channel = await open();
      answering(callId => encodeFrame(type, callId, '{}'));
      await expectBroken(channel, channel.call(CALL));
    },
  );
});

describe('the result of a hostile runtime', () => {
  test.each([
    '1,"code":500,"data":2',
    '1}\n{"code":200',
    '{"a":1}}',
    '"a","message":"forged"',
    '',
    'NaN',
    '{"a":1',
    Buffer.from([0x22, 0xff, 0x22]),
  ])('a result that is not one JSON value fails only its call, with 4007: %s', async value => {
    const channel = await open();
    answering(callId => result(callId, value));
    expect(await channel.call(CALL)).toMatchObject({
      ok: false,
      code: 4007,
      text: 'the value that the runtime answered with is not JSON',
    });
    answering(callId => result(callId, ' [1] '));
    expect(await channel.call(CALL)).toMatchObject({ ok: true });
  });
});

describe('the error text of a hostile runtime', () => {
  test('an error text is cut to the limit, and a text that the runtime has cut stays unchanged', async () => {
    const channel = await open();
    answering(callId => json(FRAME.ERROR, callId, { code: 4002, message: 'é'.repeat(200_000) }));
    const long = await channel.call(CALL);
    expect(long.ok || long.text).toBe(`${'é'.repeat(LIMITS.callErrorChars)}...`);
    answering(callId => json(FRAME.ERROR, callId, { code: 4002, message: `${'x'.repeat(LIMITS.callErrorChars)}...` }));
    const cut = await channel.call(CALL);
    expect(cut.ok || cut.text).toBe(`${'x'.repeat(LIMITS.callErrorChars)}...`);
  });
});

describe('the greeting of a hostile runtime', () => {
  test.each([
    ['no version', { ...HELLO_OK, version: undefined }],
    ['another version', { ...HELLO_OK, version: 2 }],
    ['an unknown state', { ...HELLO_OK, state: 'constructor' }],
    ['a name with a newline', { ...HELLO_OK, runtime: 'a\nb' }],
    ['a name that is an object', { ...HELLO_OK, sdk: {} }],
    ['an error whose code is an object', { ...HELLO_OK, error: { code: {}, message: 'x' } }],
    ['null', null],
  ])('a greeting with %s is refused', async (_, hello) => {
    runtime.answer = () => json(FRAME.HELLO_OK, 0, hello);
    await expect(open()).rejects.toMatchObject({
      code: 'unavailable',
      message: expect.stringMatching(/^the runtime broke the protocol: [ -~]+$/),
    });
  });

  test('a greeting after another frame is refused', async () => {
    runtime.answer = () => Buffer.concat([result(1, '1'), json(FRAME.HELLO_OK, 0, HELLO_OK)]);
    await expect(open()).rejects.toMatchObject({ code: 'unavailable' });
  });

  test('a refused greeting with many lines is reported in one line', async () => {
    runtime.answer = () => json(FRAME.ERROR, 0, { code: 4000, message: `a\r\nb${'c'.repeat(10_000)}` });
    await expect(open()).rejects.toMatchObject({
      message: expect.stringMatching(/^the runtime refused the connection: a b[c]+\.\.\.$/),
    });
  });
});

describe('frames before the code is loaded', () => {
  const FLOOD = Buffer.concat(Array.from({ length: 64 }, () => encodeFrame(FRAME.CHUNK, 1, Buffer.alloc(64 * 1024))));

  test('a frame other than the answer of INIT ends the connection before the code is loaded', async () => {
    runtime.answer = hello =>
      Buffer.concat([
        json(FRAME.HELLO_OK, 0, { ...HELLO_OK, state: 'new' }),
        hello.role === 'data' ? FLOOD : Buffer.alloc(0),
      ]);
    const channel = await open({} as Init);
    await expectBroken(channel, channel.initialized(SIGNAL()));
  });

  test('data on a connection whose other half is not open yet is not read', async () => {
    let greetControl: (() => void) | undefined;
    let backlog: net.Socket | undefined;
    runtime.answer = hello => {
      const greeting = json(FRAME.HELLO_OK, 0, HELLO_OK);
      const socket = runtime.sockets.get(hello.role) as net.Socket;
      if (hello.role === 'control') {
        greetControl = () => socket.write(greeting);
        return Buffer.alloc(0);
      }
      backlog = socket;
      return greeting;
    };
    const opening = open();
    await vi.waitFor(() => expect(backlog).toBeDefined());
    for (let count = 0; count < 16; count++) backlog?.write(FLOOD);
    // The kernel buffers only a small part of the written bytes.
    await vi.waitFor(() => expect(backlog?.writableNeedDrain).toBe(true));
    await new Promise(resolve => setImmediate(resolve));
    expect(backlog?.writableLength).toBeGreaterThan(48 * 1024 * 1024);
    await vi.waitFor(() => expect(greetControl).toBeDefined());
    greetControl?.();
    const channel = await opening;
    await channel.closed;
    expect(channel.closedBecause).toMatch(/^the runtime broke the protocol: /);
  });

  test.each([
    ['INIT_OK with times that are texts', json(FRAME.INIT_OK, 0, { loadMicros: '1', initMicros: 1 })],
    ['INIT_OK with a negative begin time', json(FRAME.INIT_OK, 0, { loadMicros: 1, initMicros: 1, beganMicros: -1 })],
    ['INIT_OK that is null', json(FRAME.INIT_OK, 0, null)],
    ['ERROR whose code has a newline', json(FRAME.ERROR, 0, { code: '4001\n', message: 'x' })],
    ['ERROR whose code is missing', json(FRAME.ERROR, 0, { message: 'x' })],
  ])('an answer of INIT with %s ends the connection', async (_, frame) => {
    runtime.onFrame = ({ type }, socket) => {
      if (type === FRAME.INIT) socket.write(frame);
    };
    const channel = await open({} as Init);
    await expectBroken(channel, channel.initialized(SIGNAL()));
  });

  test('a second answer of INIT ends the connection', async () => {
    const ok = json(FRAME.INIT_OK, 0, { loadMicros: 1, initMicros: 1 });
    runtime.onFrame = ({ type }, socket) => {
      if (type === FRAME.INIT) socket.write(Buffer.concat([ok, ok]));
    };
    const channel = await open({} as Init);
    await channel.closed;
    expect(channel.closedBecause).toMatch(/^the runtime broke the protocol: /);
  });
});

describe('the control connection', () => {
  test.each([
    ['a PONG without a PING', json(FRAME.PONG, 0, { running: 0, queued: 0 })],
    ['a STOPPED without a STOP', json(FRAME.STOPPED, 0, {})],
    ['a RESULT', result(1, '1')],
  ])('a control connection with %s ends both connections', async (_, frame) => {
    const channel = await open();
    runtime.onFrame = () => undefined;
    const call = channel.call(CALL);
    runtime.sockets.get('control')?.write(frame);
    await expectBroken(channel, call);
  });

  test.each([null, { running: 'many', queued: 0 }, { running: 1 }, { running: 0.5, queued: 0 }])(
    'a PONG %j ends both connections',
    async pong => {
      const channel = await open();
      runtime.onFrame = ({ type }, socket) => {
        if (type === FRAME.PING) socket.write(json(FRAME.PONG, 0, pong));
      };
      await expectBroken(channel, channel.ping(SIGNAL()));
    },
  );

  test('a STOPPED with an invalid error counts as the end of the runtime', async () => {
    const channel = await open();
    runtime.onFrame = ({ type }, socket) => {
      if (type === FRAME.STOP) socket.write(json(FRAME.STOPPED, 0, { error: { code: 'constructor' } }));
    };
    expect(await channel.stop(1000, SIGNAL())).toEqual({});
    expect(channel.isClosed).toBe(true);
  });
});

describe('the stream of a hostile runtime', () => {
  test('a stream may exceed its credit by one chunk, and not by two', async () => {
    const channel = await open();
    answering(callId => encodeFrame(FRAME.CHUNK, callId, 'x'.repeat(1000)));
    const events: number[] = [];
    const call = channel.call({ ...STREAM, onChunk: event => void events.push(event.length) });
    await vi.waitFor(() => expect(events).toEqual([1000]));
    runtime.sockets.get('data')?.write(encodeFrame(FRAME.CHUNK, 1, 'y'));
    await expectBroken(channel, call);
    expect(events).toEqual([1000]);
  });

  test('each empty chunk of a stream spends credit', async () => {
    const channel = await open();
    answering(callId => Buffer.concat(Array.from({ length: 5 }, () => encodeFrame(FRAME.CHUNK, callId))));
    const events: number[] = [];
    await expectBroken(channel, channel.call({ ...STREAM, onChunk: event => void events.push(event.length) }));
    expect(events).toEqual([0, 0, 0, 0]);
  });

  test('a stream continues as its reader grants credit', async () => {
    const channel = await open();
    let sent = 0;
    runtime.onFrame = ({ type, callId }) => {
      const data = runtime.sockets.get('data');
      if (type !== FRAME.CALL && type !== FRAME.CREDIT) return;
      data?.write(sent++ < 50 ? encodeFrame(FRAME.CHUNK, callId, 'xxxx') : result(callId, 'null'));
    };
    const outcome = await channel.call({ ...STREAM, onChunk: (event, callId) => channel.credit(callId, event.length) });
    expect([outcome.ok, sent]).toEqual([true, 51]);
  });

  test('credit for many small chunks is granted in few frames', async () => {
    const channel = await open();
    const count = 10_000;
    answering(callId => {
      const chunk = encodeFrame(FRAME.CHUNK, callId, 'x');
      return Buffer.concat([...Array.from({ length: count }, () => chunk), result(callId, 'null')]);
    });
    const call = { ...STREAM, header: { ...STREAM.header, credit: 256 } };
    const outcome = await channel.call({ ...call, onChunk: (event, callId) => channel.credit(callId, event.length) });
    expect(outcome.ok).toBe(true);
    const credits = () =>
      runtime.frames.filter(({ type }) => type === FRAME.CREDIT).map(({ payload }) => payload.readUInt32BE());
    await vi.waitFor(() => expect(credits().reduce((sum, bytes) => sum + bytes, 0)).toBeGreaterThan(count - 128));
    expect(Math.min(...credits())).toBeGreaterThanOrEqual(128);
  });

  test('a chunk for a call without a stream ends the connection', async () => {
    const channel = await open();
    answering(callId => encodeFrame(FRAME.CHUNK, callId, 'x'));
    await expectBroken(channel, channel.call(CALL));
  });

  test('a cancelled stream keeps the limit of its credit', async () => {
    const channel = await open();
    runtime.onFrame = () => undefined;
    await expect(channel.call({ ...STREAM, timeoutMs: 20 })).rejects.toMatchObject({ code: 'deadline_exceeded' });
    for (let count = 0; count < 5; count++) runtime.sockets.get('data')?.write(encodeFrame(FRAME.CHUNK, 1, 'x'));
    await channel.closed;
    expect(channel.closedBecause).toMatch(/beyond the credit/);
  });
});

describe('the memory for results of cancelled calls', () => {
  test('the result of a cancelled call is discarded, and ends the call', async () => {
    const channel = await open();
    runtime.onFrame = () => undefined;
    const ended = vi.fn();
    await expect(channel.call({ ...CALL, timeoutMs: 20, onLateEnd: ended })).rejects.toMatchObject({
      code: 'deadline_exceeded',
    });
    const large = result(1, Buffer.alloc(LIMITS.responseBodyBytes, 0x31));
    runtime.sockets.get('data')?.write(large.subarray(0, -1));
    await vi.waitFor(() => expect(runtime.sockets.get('data')?.writableLength).toBe(0));
    expect(channel.inFlight).toBe(1);
    runtime.sockets.get('data')?.write(large.subarray(-1));
    await vi.waitFor(() => expect(ended).toHaveBeenCalledOnce());
    expect(channel.inFlight).toBe(0);
  });

  test('a call that is cancelled during its result ends when the rest has arrived', async () => {
    const channel = await open();
    const gone = new AbortController();
    runtime.onFrame = ({ type, callId }, socket) => {
      if (type === FRAME.CALL) socket.write(result(callId, '"0123456789"').subarray(0, 15));
    };
    const call = channel.call({ ...CALL, signal: gone.signal });
    await vi.waitFor(() => expect(runtime.frames).toHaveLength(1));
    await new Promise(resolve => setImmediate(resolve));
    gone.abort();
    await expect(call).rejects.toMatchObject({ message: 'the caller went away' });
    runtime.sockets.get('data')?.write(result(1, '"0123456789"').subarray(15));
    await vi.waitFor(() => expect(channel.inFlight).toBe(0));
    answering(callId => result(callId, '2'));
    expect(await channel.call(CALL)).toMatchObject({ ok: true });
  });
});

describe('ALARMS of a runtime', () => {
  const alarms = (text = '[]') => encodeFrame(FRAME.ALARMS, 0, text);
  /** A saver that lists alarms when `listed` resolves. */
  const saver = (listed: Promise<string>): StateSaver => ({
    version: 0,
    pending: undefined,
    save: async () => undefined,
    listAlarms: () => listed,
    keepAwake: () => undefined,
    succeeded: () => undefined,
    reset: () => undefined,
  });
  const broken = async (payloads: readonly string[]) => {
    const channel = await open();
    channel.saveTo(saver(new Promise(() => undefined)));
    answering(() => Buffer.concat(payloads.map(alarms)));
    await expectBroken(channel, channel.call(CALL));
  };

  test('ALARMS of an agent that is not durable ends the connection', async () => {
    const channel = await open();
    answering(() => alarms());
    await expectBroken(channel, channel.call(CALL));
  });

  test('ALARMS that is not JSON ends the connection', () => broken(['[1']));

  test('65 unanswered ALARMS end the connection', () => broken(Array.from({ length: 65 }, () => '[]')));

  test('ALARMS are answered in their order, a wrong change with an error', async () => {
    const channel = await open();
    let resolve!: (list: string) => void;
    const promise = new Promise<string>(listed => {
      resolve = listed;
    });
    channel.saveTo(saver(promise));
    const answers: string[] = [];
    runtime.onFrame = ({ type, callId, payload }, socket) => {
      if (type === FRAME.CALL) {
        socket.write(Buffer.concat([alarms(), alarms('[{"name":"a","every":1}]')]));
        resolve('[{"name":"b"}]');
        socket.write(result(callId, '1'));
      } else if (type === FRAME.ALARM_LIST) answers.push(payload.toString());
    };
    await channel.call(CALL);
    await vi.waitFor(() =>
      expect(answers).toEqual([
        '{"alarms":[{"name":"b"}]}',
        expect.stringMatching(/^\{"error":"an alarm cannot be set: /),
      ]),
    );
  });
});
