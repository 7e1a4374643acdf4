import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, test, vi } from 'vitest';
import { ScriptedRuntime } from '../../test/fakes/scripted-runtime.ts';
import type { Call } from './call.ts';
import { Channel, ChannelClosed } from './channel.ts';
import { encodeFrame } from './frames.ts';
import { FRAME, type Init } from './protocol.ts';

const SIGNAL = () => AbortSignal.timeout(30_000);
const HEADER = { traceId: 't', traceparent: '', requestId: 'r' };
const CALL: Call = { header: HEADER, body: Buffer.from('{"a":1}'), timeoutMs: 10_000 };

let directory: string;
let path: string;
let runtime: ScriptedRuntime;

beforeEach(async () => {
  directory = mkdtempSync(join(tmpdir(), 'rookery-channel-'));
  path = join(directory, 'runtime.sock');
  runtime = new ScriptedRuntime();
});

afterEach(async () => {
  vi.useRealTimers();
  await runtime.close();
  rmSync(directory, { recursive: true });
});

async function open(): Promise<Channel> {
  await runtime.listen(path);
  return await Channel.open({ kind: 'unix', path }, 'secret', SIGNAL());
}

function result(callId: number, json: string): Buffer {
  return encodeFrame(FRAME.RESULT, callId, Buffer.concat([Buffer.from([0, 0, 0, 9]), Buffer.from(json)]));
}

test('Channel.open waits for a runtime that does not listen yet', async () => {
  const opening = Channel.open({ kind: 'unix', path }, 'secret', SIGNAL());
  setImmediate(() => void runtime.listen(path));
  const channel = await opening;
  expect(channel.hello).toMatchObject({ runtime: 'scripted', state: 'ready' });
  channel.close();
});

test('Channel.open fails with deadline_exceeded when no runtime listens or answers in time', async () => {
  const nobody = Channel.open({ kind: 'unix', path }, 'secret', AbortSignal.timeout(30));
  await expect(nobody).rejects.toMatchObject({ code: 'deadline_exceeded' });
  runtime.answer = () => Buffer.alloc(0);
  await runtime.listen(path);
  const silent = Channel.open({ kind: 'unix', path }, 'secret', AbortSignal.timeout(30));
  await expect(silent).rejects.toMatchObject({ code: 'deadline_exceeded' });
});

test('a call fails with unavailable when a stopping runtime refuses the call', async () => {
  const channel = await open();
  const refusal = JSON.stringify({ code: 4000, message: 'the instance is stopping' });
  runtime.onFrame = ({ type, callId }, socket) => {
    if (type === FRAME.CALL) socket.write(encodeFrame(FRAME.ERROR, callId, refusal));
  };
  await expect(channel.call(CALL)).rejects.toMatchObject({
    code: 'unavailable',
    message: 'instance exited: it is stopping',
  });
  channel.close();
});

test('Channel.open fails with unavailable on a refusal, a foreign protocol and a closed connection', async () => {
  await runtime.listen(path);
  runtime.answer = () => encodeFrame(FRAME.ERROR, 0, JSON.stringify({ code: 4000, message: 'wrong secret' }));
  await expect(Channel.open({ kind: 'unix', path }, 'x', SIGNAL())).rejects.toMatchObject({
    code: 'unavailable',
    message: 'the runtime refused the connection: wrong secret',
  });
  runtime.answer = () => Buffer.from('HTTP/1.1 400 Bad Request\r\n\r\n');
  await expect(Channel.open({ kind: 'unix', path }, 'x', SIGNAL())).rejects.toMatchObject({ code: 'unavailable' });
  runtime.answer = hello => {
    runtime.sockets.get(hello.role)?.destroy();
    return Buffer.alloc(0);
  };
  await expect(Channel.open({ kind: 'unix', path }, 'x', SIGNAL())).rejects.toMatchObject({ code: 'unavailable' });
});

test('Channel.open with INIT waits for the code only and opens the control connection afterwards', async () => {
  await runtime.listen(path);
  let greetControl: () => void = () => undefined;
  const { answer } = runtime;
  runtime.answer = hello => {
    if (hello.role === 'data') return answer(hello);
    greetControl = () => runtime.sockets.get('control')?.write(answer(hello));
    return Buffer.alloc(0);
  };
  let initialize: () => void = () => undefined;
  runtime.onFrame = ({ type, callId }, socket) => {
    const ok = encodeFrame(FRAME.INIT_OK, 0, JSON.stringify({ loadMicros: 1, initMicros: 2 }));
    if (type === FRAME.INIT) initialize = () => socket.write(ok);
    if (type === FRAME.CALL && callId === 1) socket.write(result(1, '1'));
  };
  const channel = await Channel.open({ kind: 'unix', path }, 'secret', SIGNAL(), {} as Init);
  await vi.waitFor(() => expect(runtime.frames).toHaveLength(1));
  expect([...runtime.sockets.keys()]).toEqual(['data']);
  initialize();
  expect(await channel.initialized(SIGNAL())).toEqual({ ok: true, timing: { loadMicros: 1, initMicros: 2 } });
  expect(await channel.call(CALL)).toMatchObject({ ok: true });
  await vi.waitFor(() => expect([...runtime.sockets.keys()]).toEqual(['data', 'control']));
  await expect(channel.call({ ...CALL, timeoutMs: 1 })).rejects.toMatchObject({ code: 'deadline_exceeded' });
  expect(runtime.frames.some(({ role }) => role === 'control')).toBe(false);
  greetControl();
  await vi.waitFor(() =>
    expect(runtime.frames.at(-1)).toMatchObject({ role: 'control', type: FRAME.CANCEL, callId: 2 }),
  );
  channel.close();
});

test('stop opens the control connection while the code loads', async () => {
  await runtime.listen(path);
  runtime.onFrame = ({ type }, socket) => {
    if (type === FRAME.STOP) socket.write(encodeFrame(FRAME.STOPPED, 0, '{}'));
  };
  const channel = await Channel.open({ kind: 'unix', path }, 'secret', SIGNAL(), {} as Init);
  expect(await channel.stop(1, SIGNAL())).toEqual({});
  channel.close();
});

describe('a runtime that accepts STOP over the data connection', () => {
  const stopped = () => encodeFrame(FRAME.STOPPED, 0, '{}');
  const framesOf = (type: number) => runtime.frames.filter(frame => frame.type === type).map(({ role }) => role);

  beforeEach(async () => {
    const hello = { version: 1, runtime: 'scripted', sdk: 'scripted/1', state: 'ready', stopsOverData: true };
    runtime.answer = () => encodeFrame(FRAME.HELLO_OK, 0, JSON.stringify(hello));
    runtime.onFrame = ({ type }, socket) => {
      if (type === FRAME.INIT) socket.write(encodeFrame(FRAME.INIT_OK, 0, '{"loadMicros":1,"initMicros":1}'));
      if (type === FRAME.STOP) socket.write(stopped());
    };
    await runtime.listen(path);
  });

  const openWith = async (init?: Init) => {
    const channel = await Channel.open({ kind: 'unix', path }, 'secret', SIGNAL(), init);
    if (init !== undefined) await channel.initialized(SIGNAL());
    return channel;
  };

  test.each([undefined, {} as Init])('a short-lived channel opens no control connection (INIT: %o)', async init => {
    const channel = await openWith(init);
    expect(await channel.stop(1, SIGNAL())).toEqual({});
    expect(framesOf(FRAME.STOP)).toEqual(['data']);
    runtime.sockets.get('data')?.destroy();
    await channel.closed;
    expect([...runtime.sockets.keys()]).toEqual(['data']);
  });

  test.each([undefined, {} as Init])(
    'a longer-lived channel opens the control connection and sends STOP over it (INIT: %o)',
    async init => {
      vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout'] });
      const channel = await openWith(init);
      await vi.advanceTimersByTimeAsync(999);
      expect([...runtime.sockets.keys()]).toEqual(['data']);
      await vi.advanceTimersByTimeAsync(1001);
      vi.useRealTimers();
      await vi.waitFor(() => expect([...runtime.sockets.keys()]).toEqual(['data', 'control']));
      expect(await channel.stop(1, SIGNAL())).toEqual({});
      expect(framesOf(FRAME.STOP)).toEqual(['control']);
      channel.close();
    },
  );

  test.each(['open', 'initialize'])(
    'a closed channel leaves no timer for its control connection (INIT sent with %s)',
    async way => {
      vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout'] });
      const channel = await openWith(way === 'open' ? ({} as Init) : undefined);
      if (way === 'initialize') await channel.initialize({} as Init, SIGNAL());
      channel.close();
      expect(vi.getTimerCount()).toBe(0);
    },
  );

  test('stop uses the control connection while a call is in flight', async () => {
    const channel = await openWith({} as Init);
    const call = channel.call(CALL);
    expect(await channel.stop(1, SIGNAL())).toEqual({});
    expect(framesOf(FRAME.STOP)).toEqual(['control']);
    channel.close();
    await expect(call).rejects.toBeInstanceOf(ChannelClosed);
  });

  test('stop also sends STOP over the control connection when the data connection brings no answer', async () => {
    const channel = await openWith({} as Init);
    runtime.onFrame = ({ type }, socket) => {
      if (type === FRAME.STOP && socket === runtime.sockets.get('control')) socket.write(stopped());
    };
    expect(await channel.stop(1, SIGNAL())).toEqual({});
    expect(framesOf(FRAME.STOP)).toEqual(['data', 'control']);
    channel.close();
  });

  test('stop succeeds when the runtime ends the connection without an answer', async () => {
    const channel = await openWith({} as Init);
    runtime.onFrame = (_, socket) => socket.destroy();
    expect(await channel.stop(1, SIGNAL())).toEqual({});
    await channel.closed;
  });

  test('an unrequested STOPPED closes the channel as a protocol violation', async () => {
    const channel = await openWith({} as Init);
    runtime.sockets.get('data')?.write(stopped());
    await channel.closed;
    expect(channel.closedBecause).toBe('the runtime broke the protocol: STOPPED that answers nothing');
  });
});

test('a channel closes when the runtime refuses the control connection after INIT', async () => {
  await runtime.listen(path);
  const { answer } = runtime;
  runtime.answer = hello =>
    hello.role === 'data' ? answer(hello) : encodeFrame(FRAME.ERROR, 0, JSON.stringify({ code: 4000, message: 'no' }));
  runtime.onFrame = ({ type }, socket) => {
    if (type === FRAME.INIT) socket.write(encodeFrame(FRAME.INIT_OK, 0, '{"loadMicros":1,"initMicros":1}'));
  };
  const channel = await Channel.open({ kind: 'unix', path }, 'secret', SIGNAL(), {} as Init);
  const call = channel.call(CALL);
  await expect(call).rejects.toThrow('the connection to the instance was lost');
  await channel.closed;
});

test('a channel waits minutes for the greeting of the control connection while calls still succeed', async () => {
  await runtime.listen(path);
  const { answer } = runtime;
  let greetControl: () => void = () => undefined;
  runtime.answer = hello => {
    if (hello.role === 'data') return answer(hello);
    greetControl = () => runtime.sockets.get('control')?.write(answer(hello));
    return Buffer.alloc(0);
  };
  runtime.onFrame = ({ type, callId }, socket) => {
    if (type === FRAME.INIT) socket.write(encodeFrame(FRAME.INIT_OK, 0, '{"loadMicros":1,"initMicros":1}'));
    if (type === FRAME.CALL) socket.write(result(callId, '1'));
    if (type === FRAME.PING) socket.write(encodeFrame(FRAME.PONG, 0, '{"running":0,"queued":0}'));
  };
  vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout'] });
  const channel = await Channel.open({ kind: 'unix', path }, 'secret', SIGNAL(), {} as Init);
  await channel.initialized(SIGNAL());
  const ping = channel.ping(SIGNAL());
  await vi.waitFor(() => expect(runtime.sockets.has('control')).toBe(true));
  await vi.advanceTimersByTimeAsync(300_000);
  vi.useRealTimers();
  expect(await channel.call(CALL)).toMatchObject({ ok: true });
  greetControl();
  expect(await ping).toEqual({ running: 0, queued: 0 });
  channel.close();
});

test('close ends a control connection that is still being opened', async () => {
  await runtime.listen(path);
  const { answer } = runtime;
  runtime.answer = hello => (hello.role === 'data' ? answer(hello) : Buffer.alloc(0));
  const channel = await Channel.open({ kind: 'unix', path }, 'secret', SIGNAL(), {} as Init);
  const stop = channel.stop(1, SIGNAL());
  await vi.waitFor(() => expect(runtime.sockets.has('control')).toBe(true));
  const ended = new Promise(resolve => runtime.sockets.get('control')?.once('close', resolve));
  channel.close();
  expect(await stop).toEqual({});
  await ended;
});

test('a call is one CALL frame with the remaining time in its header and the body unchanged', async () => {
  const channel = await open();
  runtime.onFrame = (frame, socket) => socket.write(result(frame.callId, '[1]'));
  const outcome = await channel.call({ ...CALL, header: { ...HEADER, sessionId: 's' } });
  expect(outcome).toMatchObject({ ok: true, runMicros: 9 });
  expect(outcome.ok && outcome.data.toString()).toBe('[1]');
  const payload = runtime.frames[0]?.payload as Buffer;
  const headerBytes = payload.readUInt16BE(0);
  expect(JSON.parse(payload.subarray(2, 2 + headerBytes).toString())).toEqual({
    ...HEADER,
    sessionId: 's',
    remainingMs: 10_000,
    atMs: expect.any(Number),
  });
  expect(payload.subarray(2 + headerBytes).toString()).toBe('{"a":1}');
  channel.close();
});

test('a call that waited before gets the remaining time, and its error names the full timeout', async () => {
  const channel = await open();
  const received = new Promise<Buffer>(resolve => {
    runtime.onFrame = ({ payload }) => resolve(payload);
  });
  vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout'] });
  const onError = vi.fn();
  const call = channel.call({ ...CALL, timeoutMs: 3_600_000, waitedMs: 3_599_980 }).catch(onError);
  const payload = await received;
  expect(JSON.parse(payload.subarray(2, 2 + payload.readUInt16BE(0)).toString())).toMatchObject({ remainingMs: 20 });
  await vi.advanceTimersByTimeAsync(19);
  expect(onError).not.toHaveBeenCalled();
  await vi.advanceTimersByTimeAsync(1);
  await call;
  expect(onError).toHaveBeenCalledWith(
    expect.objectContaining({ code: 'deadline_exceeded', message: 'timed out after 3600 s' }),
  );
  channel.close();
});

test('a call over TCP carries no clock time in its header', async () => {
  const port = await runtime.listenOnTcp();
  const channel = await Channel.open({ kind: 'tcp', host: '127.0.0.1', port }, 'secret', SIGNAL());
  const call = channel.call(CALL);
  await vi.waitFor(() => expect(runtime.frames).toHaveLength(1));
  const payload = runtime.frames[0]?.payload as Buffer;
  const header = JSON.parse(payload.subarray(2, 2 + payload.readUInt16BE(0)).toString());
  expect(header).toEqual({ ...HEADER, remainingMs: 10_000 });
  channel.close();
  await expect(call).rejects.toBeInstanceOf(ChannelClosed);
});

test('a call that was interrupted before the connection sends CANCEL right after CALL', async () => {
  const channel = await open();
  const signal = { aborted: false, reason: 'interrupt', addEventListener: vi.fn(), removeEventListener: vi.fn() };
  const call = channel.call({ ...CALL, signal });
  await vi.waitFor(() => expect(runtime.frames.map(({ type }) => type)).toContain(FRAME.CANCEL));
  expect(runtime.frames.map(({ type }) => type)).toEqual([FRAME.CALL, FRAME.CANCEL]);
  channel.close();
  await expect(call).rejects.toBeInstanceOf(ChannelClosed);
});

test('small and large bodies arrive complete and in the order of the calls', async () => {
  const channel = await open();
  runtime.onFrame = (frame, socket) => {
    const text = frame.payload.subarray(2 + frame.payload.readUInt16BE(0));
    socket.write(result(frame.callId, JSON.stringify([text.length, text.at(-1)])));
  };
  const sizes = [1, 65_536, 65_537, 6 * 1024 * 1024, 3];
  const calls = sizes.map((size, index) => channel.call({ ...CALL, body: Buffer.alloc(size, index + 48) }));
  const answers = (await Promise.all(calls)).map(outcome => outcome.ok && JSON.parse(outcome.data.toString()));
  expect(answers).toEqual(sizes.map((size, index) => [size, index + 48]));
  expect(runtime.frames.map(frame => frame.callId)).toEqual([1, 2, 3, 4, 5]);
  channel.close();
});

test('a call rejects a header that exceeds its frame before any bytes are sent', async () => {
  const channel = await open();
  const call = channel.call({ ...CALL, header: { ...HEADER, headers: { a: 'x'.repeat(70_000) } } });
  await expect(call).rejects.toMatchObject({ code: 'invalid_request' });
  expect(channel.inFlight).toBe(0);
  channel.close();
});

test('an ERROR frame becomes an outcome of the call, not a rejection', async () => {
  const channel = await open();
  runtime.onFrame = (frame, socket) =>
    socket.write(encodeFrame(FRAME.ERROR, frame.callId, JSON.stringify({ code: 4002, message: 'é', runMicros: 3 })));
  expect(await channel.call(CALL)).toEqual({ ok: false, code: 4002, text: 'é', runMicros: 3 });
  channel.close();
});

test('SPANS arrive with the outcome of their call, a success or a failure', async () => {
  const channel = await open();
  const error = encodeFrame(FRAME.ERROR, 2, JSON.stringify({ code: 4002, message: 'no' }));
  const answers = [result(1, '1'), error, result(3, '1')];
  runtime.onFrame = ({ type, callId }, socket) => {
    if (type !== FRAME.CALL) return;
    if (callId < 3) socket.write(encodeFrame(FRAME.SPANS, callId, `{"spans":[],"dropped":${callId}}`));
    socket.write(answers[callId - 1] as Buffer);
  };
  expect(String((await channel.call(CALL)).spans)).toBe('{"spans":[],"dropped":1}');
  const failed = await channel.call(CALL);
  expect([failed.ok, String(failed.spans)]).toEqual([false, '{"spans":[],"dropped":2}']);
  expect(await channel.call(CALL)).not.toHaveProperty('spans');
  channel.close();
});

test('SPANS of an abandoned call are discarded, and its late answer frees the slot', async () => {
  const channel = await open();
  const controller = new AbortController();
  let answer: () => void = () => undefined;
  runtime.onFrame = ({ type, callId }, socket) => {
    if (type !== FRAME.CALL) return;
    answer = () =>
      void socket.write(Buffer.concat([encodeFrame(FRAME.SPANS, callId, '{"spans":[]}'), result(callId, '1')]));
    controller.abort();
  };
  await expect(channel.call({ ...CALL, signal: controller.signal })).rejects.toMatchObject({ code: 'unavailable' });
  expect(channel.inFlight).toBe(1);
  answer();
  await vi.waitFor(() => expect(channel.inFlight).toBe(0));
  channel.close();
});

test('a call past its timeout rejects, sends CANCEL, and stays in flight until the answer arrives', async () => {
  const channel = await open();
  await expect(channel.call({ ...CALL, timeoutMs: 20 })).rejects.toMatchObject({
    code: 'deadline_exceeded',
    message: 'timed out after 0.02 s',
  });
  expect(channel.inFlight).toBe(1);
  await vi.waitFor(() =>
    expect(runtime.frames.at(-1)).toMatchObject({ role: 'control', type: FRAME.CANCEL, callId: 1 }),
  );
  expect(JSON.parse(String(runtime.frames.at(-1)?.payload))).toEqual({ reason: 'timeout' });
  runtime.sockets.get('data')?.write(result(1, '1'));
  await vi.waitFor(() => expect(channel.inFlight).toBe(0));
  channel.close();
});

test('a timeout longer than the maximum timer of Node does not expire early', async () => {
  const channel = await open();
  runtime.onFrame = () => undefined;
  vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout'] });
  const timeoutMs = 8_640_000_000;
  const ended = vi.fn();
  const call = channel.call({ ...CALL, timeoutMs }).catch(ended);
  await vi.advanceTimersByTimeAsync(timeoutMs - 1);
  expect(ended).not.toHaveBeenCalled();
  await vi.advanceTimersByTimeAsync(1);
  await call;
  expect(ended).toHaveBeenCalledWith(expect.objectContaining({ message: 'timed out after 8640000 s' }));
  channel.close();
});

test('an aborted call rejects and sends CANCEL, and an interrupted call waits for its result', async () => {
  const channel = await open();
  const gone = new AbortController();
  const left = channel.call({ ...CALL, signal: gone.signal });
  gone.abort();
  await expect(left).rejects.toMatchObject({ code: 'unavailable' });
  await expect(channel.call({ ...CALL, signal: gone.signal })).rejects.toMatchObject({ code: 'unavailable' });
  runtime.onFrame = frame => {
    if (frame.type === FRAME.CANCEL && frame.callId === 2) runtime.sockets.get('data')?.write(result(2, '"partial"'));
  };
  const interrupter = new AbortController();
  const interrupted = channel.call({ ...CALL, signal: interrupter.signal });
  interrupter.abort('interrupt');
  expect(await interrupted).toMatchObject({ ok: true });
  expect(
    runtime.frames.filter(frame => frame.type === FRAME.CANCEL).map(frame => JSON.parse(String(frame.payload))),
  ).toEqual([{ reason: 'caller' }, { reason: 'interrupt' }]);
  channel.close();
});

test('a call sends CANCEL for each interrupt and again when the caller aborts', async () => {
  const channel = await open();
  runtime.onFrame = () => undefined;
  const signal = Object.assign(new EventTarget(), { aborted: false, reason: undefined as unknown });
  const call = channel.call({ ...CALL, signal });
  signal.reason = 'interrupt';
  signal.dispatchEvent(new Event('abort'));
  signal.dispatchEvent(new Event('abort'));
  signal.aborted = true;
  signal.reason = undefined;
  signal.dispatchEvent(new Event('abort'));
  await expect(call).rejects.toMatchObject({ code: 'unavailable' });
  const cancels = () => runtime.frames.filter(frame => frame.type === FRAME.CANCEL);
  await vi.waitFor(() => expect(cancels()).toHaveLength(3));
  expect(cancels().map(({ payload }) => JSON.parse(String(payload)).reason)).toEqual([
    'interrupt',
    'interrupt',
    'caller',
  ]);
  channel.close();
});

test('credit sends a grant while the call runs and nothing after the result', async () => {
  const channel = await open();
  runtime.onFrame = (frame, socket) => {
    if (frame.type === FRAME.CALL) socket.write(encodeFrame(FRAME.CHUNK, frame.callId, 'one'));
    if (frame.type === FRAME.CREDIT) {
      runtime.sockets
        .get('data')
        ?.write(Buffer.concat([encodeFrame(FRAME.CHUNK, frame.callId, 'two'), result(frame.callId, 'null')]));
    }
  };
  const events: string[] = [];
  await channel.call({
    ...CALL,
    header: { ...HEADER, stream: true, credit: 1 },
    onChunk: (event, callId) => {
      if (events.push(event.toString()) === 1) channel.credit(callId, 7);
    },
  });
  channel.credit(1, 7);
  expect(events).toEqual(['one', 'two']);
  const credits = runtime.frames.filter(frame => frame.type === FRAME.CREDIT);
  expect(credits.map(frame => [frame.role, frame.callId, frame.payload.readUInt32BE(0)])).toEqual([['control', 1, 7]]);
  channel.close();
});

test.each(['data', 'control'] as const)('the end of the %s connection ends the channel and every wait', async role => {
  const channel = await open();
  runtime.onFrame = () => undefined;
  const waits = [channel.call(CALL), channel.ping(SIGNAL()), channel.initialize({} as Init, SIGNAL())];
  runtime.sockets.get(role)?.destroy();
  for (const wait of waits) await expect(wait).rejects.toBeInstanceOf(ChannelClosed);
  await channel.closed;
  expect(channel.isClosed).toBe(true);
  await expect(channel.call(CALL)).rejects.toBeInstanceOf(ChannelClosed);
  await expect(channel.ping(SIGNAL())).rejects.toBeInstanceOf(ChannelClosed);
  await expect(channel.initialize({} as Init, SIGNAL())).rejects.toBeInstanceOf(ChannelClosed);
  expect(await channel.stop(1, SIGNAL())).toEqual({});
});

test('bytes that are not frames close the channel', async () => {
  const channel = await open();
  const call = channel.call(CALL);
  runtime.sockets.get('data')?.write(Buffer.alloc(20, 0xff));
  await expect(call).rejects.toBeInstanceOf(ChannelClosed);
});

test('stop returns the STOPPED of the runtime when the data connection ends first', async () => {
  const channel = await open();
  const stopped = { error: { code: 4009, message: 'pre_stop failed: ValueError: boom' } };
  const call = channel.call(CALL);
  runtime.onFrame = (frame, socket) => {
    if (frame.type !== FRAME.STOP) return;
    runtime.sockets.get('data')?.destroy();
    void call.catch(() => socket.end(encodeFrame(FRAME.STOPPED, 0, JSON.stringify(stopped))));
  };
  const outcome = channel.stop(1000, SIGNAL());
  await expect(call).rejects.toBeInstanceOf(ChannelClosed);
  expect(await outcome).toEqual(stopped);
  await channel.closed;
});

test('stop, ping and initialize fail with deadline_exceeded when their signal aborts', async () => {
  const channel = await open();
  runtime.onFrame = () => undefined;
  const aborted = () => AbortSignal.timeout(20);
  await expect(channel.ping(aborted())).rejects.toMatchObject({ code: 'deadline_exceeded' });
  await expect(channel.initialize({} as Init, aborted())).rejects.toMatchObject({ code: 'deadline_exceeded' });
  await expect(channel.stop(1, aborted())).rejects.toMatchObject({ code: 'deadline_exceeded' });
  channel.close();
});

test('a late PONG does not answer the next ping', async () => {
  const channel = await open();
  const pongs: Buffer[] = [1, 2].map(running => encodeFrame(FRAME.PONG, 0, JSON.stringify({ running, queued: 0 })));
  runtime.onFrame = () => undefined;
  await expect(channel.ping(AbortSignal.timeout(20))).rejects.toMatchObject({ code: 'deadline_exceeded' });
  runtime.onFrame = (_, socket) => socket.write(Buffer.concat(pongs));
  expect(await channel.ping(SIGNAL())).toEqual({ running: 2, queued: 0 });
  channel.close();
});
