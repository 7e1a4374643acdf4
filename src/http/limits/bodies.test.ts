import { EventEmitter, once } from 'node:events';
import { createServer, type IncomingMessage } from 'node:http';
import net from 'node:net';
import { describe, expect, test, vi } from 'vitest';
import { SPEC, testFrontend } from '../../../test/http/frontend.ts';
import { newInstance } from '../../../test/http/memory-instances.ts';
import { MEBIBYTE } from '../../core/units.ts';
import { Bodies } from './bodies.ts';

const BOUNDS = {
  maxConnections: 1000,
  maxConnectionsOfAddress: 1000,
  maxBodyBytes: 8 * MEBIBYTE,
  bodyIdleMs: 60_000,
  maxAnswerBytes: 64 * MEBIBYTE,
  answerIdleMs: 60_000,
  keepAliveMs: 60_000,
};
const AGENT = newInstance(SPEC);
const INVOKE = `/api/agent/${AGENT.id}/invoke`;

/** A client connection that has sent the head of a request and the first bytes of its body. */
class Caller {
  readonly socket: net.Socket;
  text = '';

  private constructor(socket: net.Socket) {
    this.socket = socket;
    socket.setEncoding('latin1').on('data', (chunk: string) => {
      this.text += chunk;
    });
    socket.on('error', () => undefined);
  }

  static async begin(url: string, { path = INVOKE, length = 6 * MEBIBYTE, tenant = 'default', chunked = false } = {}) {
    const socket = net.connect(Number(new URL(url).port), '127.0.0.1');
    const caller = new Caller(socket);
    await once(socket, 'connect');
    const size = chunked ? 'Transfer-Encoding: chunked' : `Content-Length: ${length}`;
    socket.write(`POST ${path} HTTP/1.1\r\nHost: localhost\r\nX-Tenant-Id: ${tenant}\r\n${size}\r\n\r\n`);
    return caller;
  }

  async send(bytes: number): Promise<void> {
    await new Promise<unknown>(resolve => this.socket.write(Buffer.alloc(bytes, 0x20), resolve));
  }

  get status(): number | null {
    return this.text === '' ? null : Number(this.text.split(' ', 2)[1]);
  }
}

test.each([
  ['by the fast path', 1, { path: INVOKE, length: 6 * MEBIBYTE, chunked: false }],
  ['by the router', 6, { path: '/api/agent', length: MEBIBYTE, chunked: false }],
])('unfinished bodies above the budget are refused with 429 and Retry-After: %s', async (_, fitting, request) => {
  await using frontend = testFrontend({ bounds: BOUNDS });
  frontend.instances.put(AGENT);
  const url = await frontend.listen();
  const callers: Caller[] = [];
  try {
    for (let count = 0; count < 16; count += 1) {
      const caller = await Caller.begin(url, request);
      callers.push(caller);
      await caller.send(request.length - 1000);
    }
    const waiting = () => callers.filter(({ status }) => status === null);
    await vi.waitFor(() => expect(waiting().length).toBeLessThanOrEqual(fitting), 20_000);
    const refused = callers.find(({ status }) => status === 429);
    expect(refused?.text).toMatch(/retry-after: 1/i);
    expect(refused?.text).toContain('too many request bodies are being received');
    // A request that already has capacity still finishes.
    const [held] = waiting();
    await held?.send(1000);
    await vi.waitFor(() => expect([200, 400]).toContain(held?.status), 20_000);
    // A small body needs no capacity.
    const small = await fetch(`${url}${INVOKE}`, { method: 'POST', body: '{}' });
    expect(small.status).toBe(200);
  } finally {
    for (const { socket } of callers) socket.destroy();
  }
});

test('unfinished bodies of one tenant do not take all of the budget', async () => {
  await using frontend = testFrontend({ bounds: BOUNDS });
  frontend.instances.put(AGENT);
  const url = await frontend.listen();
  const greedy = await Promise.all([1, 2].map(() => Caller.begin(url, { tenant: 'greedy' })));
  const other = await Caller.begin(url, { tenant: 'other', length: 2 * MEBIBYTE });
  try {
    for (const caller of greedy) await caller.send(4 * MEBIBYTE);
    await vi.waitFor(() => expect(greedy.map(({ status }) => status)).toContain(429), 20_000);
    await other.send(2 * MEBIBYTE);
    // Status 400 shows that the service read the body: it is not JSON.
    await vi.waitFor(() => expect(other.status).toBe(400), 20_000);
  } finally {
    for (const { socket } of [...greedy, other]) socket.destroy();
  }
});

test('bodies of clients that disconnect release their bytes', async () => {
  await using frontend = testFrontend({ bounds: BOUNDS });
  frontend.instances.put(AGENT);
  const url = await frontend.listen();
  for (let round = 0; round < 5; round += 1) {
    const caller = await Caller.begin(url);
    await caller.send(5 * MEBIBYTE);
    caller.socket.destroy();
    const whole = await vi.waitFor(async () => {
      const answer = await fetch(`${url}${INVOKE}`, { method: 'POST', body: JSON.stringify('x'.repeat(5 * MEBIBYTE)) });
      expect(answer.status).toBe(200);
      return answer;
    }, 20_000);
    await whole.arrayBuffer();
  }
});

test.each([
  ['of a known length', false],
  ['in chunks', true],
])('a body that stalls is answered with 408 and its connection ends: %s', async (_, chunked) => {
  await using frontend = testFrontend({ bounds: { ...BOUNDS, bodyIdleMs: 100 } });
  frontend.instances.put(AGENT);
  const caller = await Caller.begin(await frontend.listen(), { chunked });
  const ended = once(caller.socket, 'close');
  caller.socket.write(chunked ? '4\r\n{"a"\r\n' : '{"a"');
  await ended;
  expect(caller.status).toBe(408);
  expect(caller.text).toContain('did not arrive in time');
});

test.each([
  ['with a length', { length: 100, chunked: false }, ''],
  ['in chunks', { length: 0, chunked: true }, ''],
  ['in chunks, after the head of the first', { length: 0, chunked: true }, '10\r\n'],
])('a body of which no byte came ends with its caller: %s', async (_, request, sent) => {
  const bodies = new Bodies({ maxBytes: MEBIBYTE, idleMs: 60_000 });
  const ends: (Error | null)[] = [];
  let read = 0;
  const server = createServer(raw => {
    bodies.read(raw, 'default', MEBIBYTE, error => ends.push(error));
    read += 1;
  });
  await once(server.listen(0, '127.0.0.1'), 'listening');
  try {
    const { port } = server.address() as net.AddressInfo;
    const caller = await Caller.begin(`http://127.0.0.1:${port}`, request);
    caller.socket.write(sent);
    await vi.waitFor(() => expect(read).toBe(1));
    caller.socket.destroy();
    await vi.waitFor(() => expect(ends).toEqual([expect.objectContaining({ name: 'BodyError', statusCode: 400 })]));
    expect(bodies.heldBytes).toBe(0);
  } finally {
    server.close();
  }
});

describe('bodies without remaining budget', () => {
  const STALE_MS = 2000;

  /** Creates a budget of 1000 bytes, of which one tenant may use three quarters (750 bytes). */
  function budget() {
    const bodies = new Bodies({ maxBytes: 1000, idleMs: 60_000 });
    const ends: Record<string, number | string> = {};
    const begin = (name: string, bytes: number, onEnd?: () => void, tenant = 'default') => {
      const request = new EventEmitter();
      Object.assign(request, { headers: { 'content-length': '5000' } });
      bodies.read(request as IncomingMessage, tenant, MEBIBYTE, (error, body) => {
        ends[name] = error === null ? (body?.length ?? 0) : ((error as { statusCode?: number }).statusCode ?? 429);
        onEnd?.();
      });
      request.emit('data', Buffer.alloc(bytes));
      return {
        send: (more: number) => request.emit('data', Buffer.alloc(more)),
        end: () => request.emit('end'),
        leave: () => request.emit('close'),
      };
    };
    return { bodies, ends, begin };
  }

  test('a silent body is ended in favour of a growing one, and a growing body never ends itself', () => {
    vi.useFakeTimers({ toFake: ['performance'] });
    try {
      const { bodies, ends, begin } = budget();
      const [asking, silent] = [begin('asking', 600), begin('silent', 140)];
      vi.advanceTimersByTime(STALE_MS);
      asking.send(90);
      expect(ends).toEqual({ silent: 408 });
      expect(bodies.heldBytes).toBe(690);
      // Later bytes of this body are dropped.
      silent.send(10);
      asking.end();
      expect(ends).toEqual({ silent: 408, asking: 690 });
      expect(bodies.heldBytes).toBe(0);
    } finally {
      vi.useRealTimers();
    }
  });

  test('a body above the share of its tenant ends no body of another tenant', () => {
    vi.useFakeTimers({ toFake: ['performance'] });
    try {
      const { ends, begin } = budget();
      const asking = begin('asking', 700);
      begin('other', 100, undefined, 'another');
      vi.advanceTimersByTime(STALE_MS);
      asking.send(90);
      expect(ends).toEqual({ asking: 429 });
    } finally {
      vi.useRealTimers();
    }
  });

  test('a body is refused when no other is silent, and its bytes are released', () => {
    vi.useFakeTimers({ toFake: ['performance'] });
    try {
      const { bodies, ends, begin } = budget();
      const [asking, other] = [begin('asking', 600), begin('other', 10)];
      vi.advanceTimersByTime(STALE_MS);
      other.send(130);
      asking.send(90);
      expect(ends).toEqual({ asking: 429 });
      expect(bodies.heldBytes).toBe(140);
      other.leave();
      expect(bodies.heldBytes).toBe(0);
      expect(ends).toEqual({ asking: 429, other: 400 });
    } finally {
      vi.useRealTimers();
    }
  });

  test('a body whose client leaves during the end of another body holds no bytes', () => {
    vi.useFakeTimers({ toFake: ['performance'] });
    try {
      const { bodies, ends, begin } = budget();
      const asking = begin('asking', 600);
      begin('silent', 140, () => asking.leave());
      vi.advanceTimersByTime(STALE_MS);
      asking.send(90);
      expect(ends).toEqual({ silent: 408, asking: 400 });
      expect(bodies.heldBytes).toBe(0);
    } finally {
      vi.useRealTimers();
    }
  });
});

test('a body of tiny chunks takes no more than its bytes, and arrives whole', async () => {
  await using frontend = testFrontend({ bounds: BOUNDS });
  frontend.instances.put(AGENT);
  const caller = await Caller.begin(await frontend.listen(), { chunked: true });
  const text = JSON.stringify('x'.repeat(20_000));
  caller.socket.write([...text].map(character => `1\r\n${character}\r\n`).join(''));
  caller.socket.write('0\r\n\r\n');
  await vi.waitFor(() => expect(caller.status).toBe(200), 20_000);
  expect(frontend.instances.calls[0]?.call.body.toString()).toBe(text);
  caller.socket.destroy();
});

test('a body in chunks above the limit of its route is 413', async () => {
  await using frontend = testFrontend({ bounds: BOUNDS });
  const caller = await Caller.begin(await frontend.listen(), { path: '/api/agent', chunked: true });
  caller.socket.write(`${(2 * MEBIBYTE).toString(16)}\r\n`);
  await caller.send(2 * MEBIBYTE);
  await vi.waitFor(() => expect(caller.status).toBe(413), 20_000);
  caller.socket.destroy();
});

test('connections above the bound are closed, and the end of one frees capacity', async () => {
  await using frontend = testFrontend({ bounds: { ...BOUNDS, maxConnections: 2 } });
  const url = await frontend.listen();
  const open = await Promise.all([1, 2].map(() => Caller.begin(url)));
  await vi.waitFor(() => expect(frontend.app.server.listening).toBe(true));
  const third = net.connect(Number(new URL(url).port), '127.0.0.1');
  third.on('error', () => undefined);
  await once(third.resume(), 'close');
  for (const { socket } of open) socket.destroy();
  await vi.waitFor(async () => expect((await fetch(`${url}/healthz`)).status).toBe(200), 20_000);
});
