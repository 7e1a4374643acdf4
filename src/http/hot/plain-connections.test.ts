import { once } from 'node:events';
import net from 'node:net';
import { setImmediate as turn } from 'node:timers/promises';
import { afterAll, beforeAll, describe, expect, test, vi } from 'vitest';
import { deferred } from '../../../test/http/deferred.ts';
import { SPEC, type TestFrontend, testFrontend } from '../../../test/http/frontend.ts';
import { newInstance } from '../../../test/http/memory-instances.ts';
import { resourceExhausted } from '../../core/error.ts';

const AGENT = newInstance(SPEC);
const PATH = `/api/agent/${AGENT.id}/invoke`;
const LINE = `POST ${PATH} HTTP/1.1\r\n`;
const HOST = 'Host: localhost\r\nX-Trace-Id: t1\r\n';
const PLAIN = `${LINE}${HOST}Content-Length: 7\r\n\r\n{"a":1}`;
const HEALTH = 'GET /healthz HTTP/1.1\r\nHost: localhost\r\nX-Trace-Id: last\r\n\r\n';

/** Creates a frontend with one agent that echoes the request body. */
function frontendWith(readsPlainRequests: boolean): TestFrontend {
  const frontend = testFrontend({ readsPlainRequests });
  frontend.instances.put(AGENT);
  frontend.instances.onInvoke = call => ({ ok: true, data: call.body, runMicros: 1 });
  return frontend;
}

/** A raw connection and all bytes received over it. */
class Raw {
  received = '';
  hasEnded = false;
  readonly socket: net.Socket;

  constructor(url: string) {
    this.socket = net.connect({
      port: Number(new URL(url).port),
      host: '127.0.0.1',
      noDelay: true,
      allowHalfOpen: true,
    });
    this.socket.setEncoding('latin1').on('data', chunk => {
      this.received += chunk;
    });
    for (const event of ['end', 'close', 'error']) this.socket.on(event, () => (this.hasEnded = true));
  }

  /** Sends the pieces one by one. A few event-loop turns between them usually keep the pieces separate. */
  async send(pieces: readonly (string | Buffer)[]): Promise<void> {
    for (const piece of pieces) {
      if (this.hasEnded) return;
      this.socket.write(typeof piece === 'string' ? Buffer.from(piece, 'latin1') : piece);
      for (let turns = 0; turns < 4; turns += 1) await turn();
    }
  }

  get answers(): number {
    return this.received.split('HTTP/1.1 ').length - 1;
  }

  async until(seen: () => boolean): Promise<void> {
    await vi.waitFor(() => expect(seen() || this.hasEnded, this.received).toBe(true), { timeout: 30_000, interval: 1 });
  }
}

/** Replaces dates, durations and ids, in which two servers may differ, with fixed text. */
function comparable(text: string): string {
  return text
    .replace(/Date: [^\r]*/g, 'Date: now')
    .replace(/dur=[\d.]+/g, 'dur=0')
    .replace(/[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}/g, id => (id === AGENT.id ? id : 'uuid'));
}

interface Seen {
  readonly received: string;
  readonly hasEnded: boolean;
  readonly bodies: readonly string[];
  readonly requests: unknown;
  readonly lines: unknown;
}

/** Two servers that differ in the fast path only. The tests that compare their answers share them. */
interface Pair {
  readonly short: TestFrontend;
  readonly long: TestFrontend;
  readonly shortUrl: string;
  readonly longUrl: string;
}
let pair: Pair;

beforeAll(async () => {
  const [short, long] = [frontendWith(true), frontendWith(false)];
  pair = { short, long, shortUrl: await short.listen(), longUrl: await long.listen() };
});
afterAll(async () => {
  await pair.short[Symbol.asyncDispose]();
  await pair.long[Symbol.asyncDispose]();
});

function forget(frontend: TestFrontend): void {
  frontend.instances.calls.length = 0;
  frontend.requests.length = 0;
  frontend.lines.length = 0;
}

/** Returns all effects of the bytes on a connection that has served `used` requests before. */
async function seen(
  frontend: TestFrontend,
  url: string,
  pieces: readonly (string | Buffer)[],
  used: number,
): Promise<Seen> {
  const raw = new Raw(url);
  await once(raw.socket, 'connect');
  for (let request = 1; request <= used; request += 1) {
    await raw.send([PLAIN]);
    await raw.until(() => raw.answers >= request);
  }
  await vi.waitFor(() => expect(frontend.requests).toHaveLength(used), { interval: 1 });
  forget(frontend);
  await raw.send(pieces);
  await raw.until(() => raw.answers > used);
  // Answers arrive in order, so the answer to this health check proves that all others are complete.
  await raw.send([HEALTH]);
  await raw.until(() => raw.received.includes('last'));
  raw.socket.destroy();
  // The server records a request before it forgets the connection.
  await vi.waitFor(async () => expect(await openConnections(frontend)).toBe(0), { interval: 1 });
  const result = {
    received: comparable(raw.received),
    hasEnded: raw.hasEnded,
    bodies: frontend.instances.calls.map(({ call }) => call.body.toString()),
    requests: [...frontend.requests],
    lines: frontend.lines.map(({ level, text, fields: { ms: _ms, traceId: _traceId, ...fields } }) => ({
      level,
      text,
      fields,
    })),
  };
  forget(frontend);
  return result;
}

function openConnections({ app }: TestFrontend): Promise<number> {
  return new Promise((resolve, reject) =>
    app.server.getConnections((error, count) => (error === null ? resolve(count) : reject(error))),
  );
}

/**
 * Sends the bytes to a server with and one without the fast path, after 0, 1 and 2 earlier requests.
 * Expects the same effects on both.
 */
async function bothWays(
  pieces: readonly (string | Buffer)[],
): Promise<{ readonly plain: Seen; readonly taken: number }> {
  const { short, long, shortUrl, longUrl } = pair;
  const tryServe = vi.spyOn(short.app.fastPath, 'tryServePlain');
  let last: Seen | undefined;
  let taken = 0;
  for (const used of [0, 1, 2]) {
    const before = () => Math.max(0, used - 1);
    tryServe.mockClear();
    last = await seen(short, shortUrl, pieces, used);
    taken = tryServe.mock.calls.length - before();
    expect(last).toEqual(await seen(long, longUrl, pieces, used));
  }
  tryServe.mockRestore();
  return { plain: last as Seen, taken };
}

const request = (headers: string, body = '{"a":1}', line = LINE) => `${line}${headers}\r\n${body}`;
const LENGTH = 'Content-Length: 7\r\n';

describe('plain requests of hot routes', () => {
  test.each<[string, string, number]>([
    ['a call', PLAIN, 200],
    ['a call without a body', `${LINE}${HOST}\r\n`, 200],
    ['an empty body', request(`${HOST}Content-Length: 0\r\n`, ''), 200],
    [
      'header names in other letters and without spaces',
      request(`HOST:localhost\r\nx-TRACE-id:t1\r\ncontent-LENGTH:7\r\n`),
      200,
    ],
    ['a connection with Keep-Alive', request(`${HOST}${LENGTH}Connection: Keep-Alive\r\n`), 200],
    ['a body that is not JSON', request(`${HOST}${LENGTH}`, '{"a":1]'), 400],
    ['a body in UTF-8', request(`${HOST}${LENGTH}`, Buffer.from('"äöx"').toString('latin1')), 200],
    ['a missing agent', PLAIN.replace(AGENT.id, '00000000-0000-4000-8000-000000000000'), 404],
    ['another host', PLAIN.replace('localhost', 'example.com'), 421],
    ['another host that resembles an address', PLAIN.replace('localhost', 'a--b--c--d.localhost'), 421],
    ['a page of another site', request(`${HOST}${LENGTH}Sec-Fetch-Site: cross-site\r\n`), 403],
    ['an invalid tenant', request(`${HOST}${LENGTH}tenantId: -\r\n`), 400],
    ['an invalid content type', request(`${HOST}${LENGTH}Content-Type: none\r\n`), 200],
    ['a timeout that is not a number', request(`${HOST}${LENGTH}X-Invoke-Timeout-Ms: soon\r\n`), 400],
    ['a request without a trace id', request(`Host: localhost\r\n${LENGTH}`), 200],
  ])('the fast reader answers %s as node:http does, byte for byte', async (_title, bytes, status) => {
    const { plain, taken } = await bothWays([bytes]);
    expect(taken).toBe(1);
    expect(plain.received).toContain(`HTTP/1.1 ${status} `);
  });

  test('an answer that is larger than one chunk arrives completely', async () => {
    const body = JSON.stringify('x'.repeat(40_000));
    expect((await bothWays([request(`${HOST}Content-Length: ${body.length}\r\n`, body)])).taken).toBe(1);
  });
});

const DELETE = `DELETE /api/agent/${AGENT.id} HTTP/1.1\r\n${HOST}\r\n`;

test('a delete that is pipelined behind a call runs after the answer of the call', async () => {
  for (const readsPlain of [true, false]) {
    await using frontend = frontendWith(readsPlain);
    const finish = deferred();
    frontend.instances.onInvoke = async call => {
      await finish.promise;
      return { ok: true, data: call.body, runMicros: 1 };
    };
    const raw = new Raw(await frontend.listen());
    await raw.send([PLAIN + DELETE]);
    await vi.waitFor(() => expect(frontend.instances.calls).toHaveLength(1));
    expect(frontend.instances.deletes).toHaveLength(0);
    finish.resolve();
    await raw.until(() => raw.answers === 2);
    expect(frontend.instances.deletes).toHaveLength(1);
    raw.socket.destroy();
  }
});

const CHUNKED = '7\r\n{"a":1}\r\n0\r\n\r\n';
const SMUGGLED = `POST ${PATH} HTTP/1.1\r\nHost: localhost\r\nX-Trace-Id: t2\r\nContent-Length: 3\r\n\r\n"s"`;

describe('requests that are passed to node:http', () => {
  test.each<[string, readonly (string | Buffer)[]]>([
    ['a length and an encoding', [request(`${HOST}${LENGTH}Transfer-Encoding: chunked\r\n`, CHUNKED)]],
    [
      'an encoding and a length, with a request in the remaining bytes',
      [request(`${HOST}Transfer-Encoding: chunked\r\nContent-Length: 5\r\n`, `0\r\n\r\n${SMUGGLED}`)],
    ],
    ['chunks', [request(`${HOST}Transfer-Encoding: chunked\r\n`, CHUNKED)]],
    [
      'chunks with a trailer',
      [request(`${HOST}Transfer-Encoding: chunked\r\nTrailer: x\r\n`, '7\r\n{"a":1}\r\n0\r\nx: y\r\n\r\n')],
    ],
    ['an unknown encoding', [request(`${HOST}${LENGTH}Transfer-Encoding: xchunked\r\n`)]],
    ['an encoding behind a space', [request(`${HOST}${LENGTH}Transfer-Encoding : chunked\r\n`)]],
    ['an encoding on a folded line', [request(`${HOST}${LENGTH}X: y\r\n Transfer-Encoding: chunked\r\n`)]],
    ['an encoding in odd letters', [request(`${HOST}${LENGTH}Transfer-Encoding:\x0bchunked\r\n`)]],
    ['identity', [request(`${HOST}${LENGTH}Transfer-Encoding: identity\r\n`)]],
    ['two lengths that agree', [request(`${HOST}${LENGTH}${LENGTH}`)]],
    ['two lengths that differ', [request(`${HOST}${LENGTH}Content-Length: 8\r\n`)]],
    ['a list of lengths', [request(`${HOST}Content-Length: 7, 7\r\n`)]],
    ['a length with a sign', [request(`${HOST}Content-Length: +7\r\n`)]],
    ['a negative length', [request(`${HOST}Content-Length: -7\r\n`)]],
    ['a length in other digits', [request(`${HOST}Content-Length: 0x7\r\n`)]],
    ['a length with zeros before it', [request(`${HOST}Content-Length: 007\r\n`)]],
    ['an empty length', [request(`${HOST}Content-Length:\r\n`)]],
    ['a length with a space behind it', [request(`${HOST}Content-Length: 7 \r\n`)]],
    ['a length behind a tab', [request(`${HOST}Content-Length:\t7\r\n`)]],
    ['a length above all limits', [request(`${HOST}Content-Length: 99999999999999999999\r\n`)]],
    ['a length above the limit', [request(`${HOST}Content-Length: 6291457\r\n`, ''), Buffer.alloc(6_291_457, 'x')]],
    ['a request with Expect: 100-continue', [request(`${HOST}${LENGTH}Expect: 100-continue\r\n`)]],
    ['a request with another Expect', [request(`${HOST}${LENGTH}Expect: 200-ok\r\n`)]],
    ['an upgrade', [request(`${HOST}${LENGTH}Connection: Upgrade\r\nUpgrade: websocket\r\n`)]],
    [
      'an upgrade to HTTP/2',
      [
        request(
          `${HOST}${LENGTH}Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQAAP__\r\n`,
        ),
      ],
    ],
    ['the beginning of HTTP/2', ['PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n']],
    ['a request with Connection: close', [request(`${HOST}${LENGTH}Connection: close\r\n`)]],
    ['a request with another Connection header', [request(`${HOST}${LENGTH}Connection: keep-alive, x\r\n`)]],
    ['a request with Proxy-Connection', [request(`${HOST}${LENGTH}Proxy-Connection: close\r\n`)]],
    [
      'a request line with a whole URL',
      [request(`${HOST}${LENGTH}`, undefined, `POST http://localhost${PATH} HTTP/1.1\r\n`)],
    ],
    ['a request line with an authority', [request(`${HOST}${LENGTH}`, undefined, `CONNECT localhost:80 HTTP/1.1\r\n`)]],
    ['a request line with an asterisk', [request(`${HOST}`, '', 'OPTIONS * HTTP/1.1\r\n')]],
    ['a query', [request(`${HOST}${LENGTH}`, undefined, `POST ${PATH}?a=1 HTTP/1.1\r\n`)]],
    ['a fragment', [request(`${HOST}${LENGTH}`, undefined, `POST ${PATH}#a HTTP/1.1\r\n`)]],
    [
      'an escaped path',
      [request(`${HOST}${LENGTH}`, undefined, `POST ${PATH.replace('/api', '/%61pi')} HTTP/1.1\r\n`)],
    ],
    ['a path with two slashes', [request(`${HOST}${LENGTH}`, undefined, `POST /${PATH} HTTP/1.1\r\n`)]],
    ['another method', [request(`${HOST}${LENGTH}`, undefined, `PUT ${PATH} HTTP/1.1\r\n`)]],
    ['a method in small letters', [request(`${HOST}${LENGTH}`, undefined, `post ${PATH} HTTP/1.1\r\n`)]],
    ['HTTP/1.0', [request(`${HOST}${LENGTH}`, undefined, `POST ${PATH} HTTP/1.0\r\n`)]],
    [
      'HTTP/1.0 that is kept',
      [request(`${HOST}${LENGTH}Connection: keep-alive\r\n`, undefined, `POST ${PATH} HTTP/1.0\r\n`)],
    ],
    ['an invalid version', [request(`${HOST}${LENGTH}`, undefined, `POST ${PATH} HTTP/1.9\r\n`)]],
    ['no version', [`POST ${PATH}\r\n\r\n`]],
    ['two spaces in the first line', [request(`${HOST}${LENGTH}`, undefined, `POST  ${PATH} HTTP/1.1\r\n`)]],
    ['a space at the end of the first line', [request(`${HOST}${LENGTH}`, undefined, `POST ${PATH} HTTP/1.1 \r\n`)]],
    ['an empty line before', [`\r\n${PLAIN}`]],
    ['bare line ends', [PLAIN.replaceAll('\r\n', '\n')]],
    ['a bare line end in a header', [request(`${HOST}${LENGTH}X: a\nY: b\r\n`)]],
    ['a bare return in a header', [request(`${HOST}${LENGTH}X: a\rY: b\r\n`)]],
    ['a null in a header', [request(`${HOST}${LENGTH}X: a\0b\r\n`)]],
    ['bytes above ASCII in a header', [request(`${HOST}${LENGTH}X: \xe4\r\n`)]],
    ['bytes above ASCII in the path', [request(`${HOST}${LENGTH}`, undefined, `POST ${PATH}\xe4 HTTP/1.1\r\n`)]],
    ['a space before a colon', [request(`${HOST}Content-Length : 7\r\n`)]],
    ['a space before a name', [request(`${HOST} Content-Length: 7\r\n`)]],
    ['an empty name', [request(`${HOST}${LENGTH}: x\r\n`)]],
    ['a line without a colon', [request(`${HOST}${LENGTH}X\r\n`)]],
    ['an empty value', [request(`${HOST}${LENGTH}X:\r\n`)]],
    ['a name with an underscore', [request(`${HOST}${LENGTH}content_length: 9\r\n`)]],
    ['the name __proto__', [request(`${HOST}${LENGTH}__proto__: x\r\n`)]],
    ['two hosts', [request(`${HOST}Host: example.com\r\n${LENGTH}`)]],
    ['two hosts that agree', [request(`${HOST}Host: localhost\r\n${LENGTH}`)]],
    ['no host', [request(LENGTH)]],
    ['two trace ids', [request(`${HOST}X-Trace-Id: t2\r\n${LENGTH}`)]],
    ['two tokens', [request(`${HOST}X-Auth: a\r\nX-Auth: b\r\n${LENGTH}`)]],
    ['two cookies', [request(`${HOST}Cookie: a=b\r\nCookie: c=d\r\n${LENGTH}`)]],
    [
      'many headers',
      [request(`${HOST}${LENGTH}${Array.from({ length: 90 }, (_, index) => `X-${index}: y\r\n`).join('')}`)],
    ],
    ['a long head', [request(`${HOST}${LENGTH}X: ${'y'.repeat(9000)}\r\n`)]],
    ['a head that is too long', [request(`${HOST}${LENGTH}X: ${'y'.repeat(20_000)}\r\n`)]],
    ['bytes that are not HTTP', ['\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n']],
    ['a request, and another one in the same piece', [PLAIN + SMUGGLED]],
    ['a request, and garbage behind it', [`${PLAIN}garbage\r\n\r\n`]],
    ['a request, and the beginning of the next one', [PLAIN + SMUGGLED.slice(0, 20), SMUGGLED.slice(20)]],
    ['a body longer than its declared length', [request(`${HOST}Content-Length: 3\r\n`, `"a"${SMUGGLED}`)]],
    ['a body in a separate piece', [PLAIN.slice(0, -7), PLAIN.slice(-7)]],
    ['a body in two pieces, with more behind the second', [PLAIN.slice(0, -3), PLAIN.slice(-3) + SMUGGLED]],
    ['another route', [request(`${HOST}${LENGTH}`, undefined, 'POST /api/nothing HTTP/1.1\r\n')]],
    ['a host of an address', [PLAIN.replace('localhost', 'hello--default.localhost')]],
    ['a host of an address in other letters, with a port', [PLAIN.replace('localhost', 'Hello--Default.LOCALHOST:80')]],
  ])('the fast reader passes %s to node:http', async (_title, pieces) => {
    expect((await bothWays(pieces)).taken).toBe(0);
  });

  test.each([
    ['a byte that is not UTF-8', 't\xe4'],
    ['UTF-8', 't\xc3\xa4'],
    ['a tab', 't\t1'],
  ])('a trace id with %s is answered with a new one, by either way', async (_title, traceId) => {
    const { plain, taken } = await bothWays([request(`Host: localhost\r\nX-Trace-Id: ${traceId}\r\n${LENGTH}`)]);
    expect(taken).toBe(0);
    expect(plain.received).toMatch(/\r\nX-Trace-Id: uuid\r\n/i);
    expect(plain.received).not.toMatch(/[^ -~\r\n]/);
  });

  test('a request in two pieces passes to node:http unchanged, wherever it is cut', async () => {
    const [short, long] = [new Raw(pair.shortUrl), new Raw(pair.longUrl)];
    for (let cut = 1; cut < PLAIN.length; cut += 1) {
      const pieces = [PLAIN.slice(0, cut), PLAIN.slice(cut)];
      const answers = await Promise.all(
        [short, long].map(async raw => {
          raw.received = '';
          await raw.send(pieces);
          await raw.until(() => raw.received.endsWith('}'));
          return comparable(raw.received);
        }),
      );
      expect(answers[0], `cut at ${cut}`).toContain('{"code":200,"data":{"a":1},"message":""}');
      expect(answers[0], `cut at ${cut}`).toBe(answers[1]);
    }
    for (const frontend of [pair.short, pair.long]) {
      await vi.waitFor(() => expect(frontend.instances.calls).toHaveLength(PLAIN.length - 1));
      expect(new Set(frontend.instances.calls.map(({ call }) => call.body.toString()))).toEqual(new Set(['{"a":1}']));
      expect(frontend.lines).toEqual([]);
    }
    for (const raw of [short, long]) raw.socket.destroy();
    for (const frontend of [pair.short, pair.long]) {
      await vi.waitFor(async () => expect(await openConnections(frontend)).toBe(0), { interval: 1 });
      forget(frontend);
    }
  });
});

describe('a connection of the fast reader', () => {
  test('requests sent while another one runs are answered in order, however large', async () => {
    await using frontend = frontendWith(true);
    const finish = deferred();
    frontend.instances.onInvoke = async call => {
      if (call.body.toString() === '"slow"') await finish.promise;
      return { ok: true, data: call.body, runMicros: 1 };
    };
    const raw = new Raw(await frontend.listen());
    await raw.send([PLAIN]);
    await raw.until(() => raw.answers === 1);
    await raw.send([request(`${HOST}Content-Length: 6\r\n`, '"slow"')]);
    await vi.waitFor(() => expect(frontend.instances.calls).toHaveLength(2));
    const large = JSON.stringify('x'.repeat(100_000));
    await raw.send([SMUGGLED, request(`${HOST}Content-Length: ${large.length}\r\n`, large), PLAIN]);
    expect(raw.answers).toBe(1);
    finish.resolve();
    await raw.until(() => raw.answers === 5);
    const data = [...raw.received.matchAll(/"data":(.{3})/g)].map(([, text]) => text);
    expect(data).toEqual(['{"a', '"sl', '"s"', '"xx', '{"a']);
    raw.socket.destroy();
  });

  test('a request sent byte by byte while another one runs is answered as any other', async () => {
    await using frontend = frontendWith(true);
    const finish = deferred();
    frontend.instances.onInvoke = async call => {
      if (call.body.toString() === '"slow"') await finish.promise;
      return { ok: true, data: call.body, runMicros: 1 };
    };
    const connected = once(frontend.app.server, 'connection') as Promise<[net.Socket]>;
    const raw = new Raw(await frontend.listen());
    const [socket] = await connected;
    await raw.send([PLAIN]);
    await raw.until(() => raw.answers === 1);
    await raw.send([request(`${HOST}Content-Length: 6\r\n`, '"slow"')]);
    await vi.waitFor(() => expect(frontend.instances.calls).toHaveLength(2));
    const body = JSON.stringify('0123456789'.repeat(40));
    const concat = vi.spyOn(Buffer, 'concat');
    try {
      // Simulates a client whose bytes the kernel delivers one at a time.
      const bytes = Buffer.from(request(`${HOST}Content-Length: ${body.length}\r\n`, body));
      for (const byte of bytes) socket.emit('data', Buffer.of(byte));
      finish.resolve();
      await raw.until(() => raw.answers === 3);
      expect(raw.received.endsWith(`{"code":200,"data":${body},"message":""}`)).toBe(true);
      expect(Math.max(...concat.mock.calls.map(([pieces]) => pieces.length))).toBeLessThanOrEqual(65);
    } finally {
      concat.mockRestore();
      raw.socket.destroy();
    }
  });

  test('a connection without requests is closed after a time, but never during a call', async () => {
    await using frontend = frontendWith(true);
    frontend.app.server.keepAliveTimeout = 50;
    const connected = once(frontend.app.server, 'connection') as Promise<[net.Socket]>;
    const raw = new Raw(await frontend.listen());
    const [socket] = await connected;
    const [started, finish] = [deferred(), deferred()];
    frontend.instances.onInvoke = async call => {
      if (call.body.toString() === '"slow"') {
        started.resolve();
        await finish.promise;
      }
      return { ok: true, data: call.body, runMicros: 1 };
    };
    await raw.send([PLAIN]);
    await raw.until(() => raw.answers === 1);
    await raw.send([request(`${HOST}Content-Length: 6\r\n`, '"slow"')]);
    await started.promise;
    await once(socket, 'timeout');
    expect(socket.destroyed).toBe(false);
    finish.resolve();
    await raw.until(() => raw.answers === 2);
    // The keep-alive timeout applies again after the answer.
    await once(socket, 'close');
  });

  test('the idle time of a connection begins only when its client has read the answer', async () => {
    await using frontend = frontendWith(true);
    frontend.app.server.keepAliveTimeout = 50;
    const connected = once(frontend.app.server, 'connection') as Promise<[net.Socket]>;
    const raw = new Raw(await frontend.listen());
    const [socket] = await connected;
    const large = JSON.stringify('x'.repeat(5_000_000));
    frontend.instances.onInvoke = async call => ({
      ok: true,
      data: call.body.toString() === '"large"' ? Buffer.from(large) : call.body,
      runMicros: 1,
    });
    await raw.send([PLAIN]);
    await raw.until(() => raw.answers === 1);
    raw.socket.pause();
    await raw.send([request(`${HOST}Content-Length: 7\r\n`, '"large"')]);
    await once(socket, 'timeout');
    expect(socket.writableLength).toBeGreaterThan(0);
    expect(socket.destroyed).toBe(false);
    raw.socket.resume();
    await raw.until(() => raw.received.length > large.length);
    await once(socket, 'close');
  });

  test('a call ends when its caller closes the connection', async () => {
    await using frontend = frontendWith(true);
    const left = deferred();
    const started = deferred();
    frontend.instances.onInvoke = async call => {
      call.signal?.addEventListener('abort', () => left.resolve());
      started.resolve();
      await left.promise;
      throw resourceExhausted('nobody is there');
    };
    const raw = new Raw(await frontend.listen());
    await raw.send([HEALTH]);
    await raw.until(() => raw.answers === 1);
    await raw.send([PLAIN]);
    await started.promise;
    raw.socket.destroy();
    await left.promise;
  });

  test('a connection with a running call gets its answer when the server closes, and then ends', async () => {
    const frontend = frontendWith(true);
    const tryServe = vi.spyOn(frontend.app.fastPath, 'tryServePlain');
    const [started, finish] = [deferred(), deferred()];
    frontend.instances.onInvoke = async call => {
      if (call.body.toString() !== '7') return { ok: true, data: call.body, runMicros: 1 };
      started.resolve();
      await finish.promise;
      return { ok: true, data: call.body, runMicros: 1 };
    };
    const raw = new Raw(await frontend.listen());
    await raw.send([PLAIN]);
    await raw.until(() => raw.answers === 1);
    await raw.send([request(`${HOST}Content-Length: 1\r\n`, '7')]);
    await started.promise;
    expect(tryServe).toHaveBeenCalledOnce();
    const closed = frontend.app.close();
    for (let turns = 0; turns < 10; turns += 1) await turn();
    expect(raw.hasEnded).toBe(false);
    finish.resolve();
    await closed;
    await raw.until(() => raw.hasEnded);
    expect(raw.received).toContain('{"code":200,"data":7,"message":""}');
    raw.socket.destroy();
  });

  test('a connection continues with plain requests after one of another route, and after a body in pieces', async () => {
    await using frontend = frontendWith(true);
    const tryServe = vi.spyOn(frontend.app.fastPath, 'tryServePlain');
    const raw = new Raw(await frontend.listen());
    for (const [index, pieces] of [
      [PLAIN],
      [PLAIN],
      [HEALTH],
      [PLAIN],
      [PLAIN.slice(0, -7), PLAIN.slice(-7)],
      [PLAIN],
    ].entries()) {
      await raw.send(pieces);
      await raw.until(() => raw.answers === index + 1);
    }
    expect(tryServe).toHaveBeenCalledTimes(3);
    raw.socket.destroy();
  });

  test('connections share a cache of heads, and each call is answered correctly with more heads than the cache holds', async () => {
    await using frontend = frontendWith(true);
    const routeOf = vi.spyOn(frontend.app.fastPath, 'routeOf');
    const url = await frontend.listen();
    const connections = [new Raw(url), new Raw(url)];
    for (const raw of connections) {
      await raw.send([HEALTH]);
      await raw.until(() => raw.answers === 1);
      for (const body of ['7', '{"a":1}']) {
        const before = raw.answers;
        await raw.send([request(`${HOST}Content-Length: ${body.length}\r\n`, body)]);
        await raw.until(() => raw.answers > before);
        expect(raw.received.endsWith(`{"code":200,"data":${body},"message":""}`)).toBe(true);
      }
    }
    expect(routeOf.mock.calls.filter(([head]) => head.method === 'POST')).toHaveLength(2);
    const [raw] = connections as [Raw, Raw];
    for (let round = 0; round < 2; round += 1) {
      for (let number = 0; number < 1100; number += 1) {
        raw.received = '';
        raw.socket.write(`${LINE}Host: localhost\r\nX-Trace-Id: n${number}\r\nContent-Length: 1\r\n\r\n${number % 10}`);
        await once(raw.socket, 'data');
        expect(raw.received).toContain(`X-Trace-Id: n${number}\r\n`);
        expect(raw.received).toContain(`"data":${number % 10},`);
      }
    }
    for (const each of connections) each.socket.destroy();
  });
});
