import { once } from 'node:events';
import net, { type Socket } from 'node:net';
import { text } from 'node:stream/consumers';
import { setImmediate as turn } from 'node:timers/promises';
import { afterEach, describe, expect, test, vi } from 'vitest';
import { deferred } from '../../../test/http/deferred.ts';
import { at, type Bed, bed, Inside, raw } from '../../../test/http/passthrough-bed.ts';
import { LIMITS } from '../../core/limits.ts';

const inside = new Inside();
afterEach(() => inside.close());

const SECRET = 'platform-token-of-the-caller';
const OTHER = 'another-token-of-the-platform';
const identity = { tenant: 'default', role: 'developer' } as const;
const auth = {
  known: (token: string) => (token === SECRET || token === OTHER ? identity : undefined),
  verify: (token: string) => (token === OTHER ? Promise.resolve(identity) : Promise.reject(new Error('unknown'))),
};

/** Starts a server that answers every request with `bytes`; returns its port. */
function answers(bytes: string | Buffer, goOn: (socket: Socket) => void = socket => socket.end()): Promise<number> {
  return inside.tcp(socket =>
    socket.once('data', () => {
      socket.write(typeof bytes === 'string' ? Buffer.from(bytes, 'latin1') : bytes);
      goOn(socket);
    }),
  );
}

/** Requests this port and then, on the same connection, the health check; returns all received text. */
async function twice(it: Bed, port: number, head = ''): Promise<string> {
  const first = `GET ${at(port)} HTTP/1.1\r\nHost: localhost\r\n${head}\r\n`;
  const second = 'GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n';
  const socket = net.connect(Number(new URL(it.url).port), '127.0.0.1');
  socket.write(first, 'latin1');
  // Clients that keep connections send the second request after the first answer.
  const [begin] = (await once(socket, 'data')) as [Buffer];
  socket.write(second, 'latin1');
  return begin.toString('latin1') + (await text(socket));
}

const ok = (headers = '') => `HTTP/1.1 200 OK\r\nContent-Length: 2\r\n${headers}\r\nok`;
const UPGRADE = 'Connection: Upgrade\r\nUpgrade: own\r\n';
const SWITCHING = `HTTP/1.1 101 Switching\r\n${UPGRADE}\r\n`;

describe('an invalid answer of a server is 502 and ends nothing else', () => {
  test.each<[string, string]>([
    ['a status below 100', 'HTTP/1.1 099 Low\r\nContent-Length: 0\r\n\r\n'],
    ['the status 000', 'HTTP/1.1 000 None\r\nContent-Length: 0\r\n\r\n'],
    ['a status of four digits', 'HTTP/1.1 1000 Many\r\nContent-Length: 0\r\n\r\n'],
    ['a reason with control characters', 'HTTP/1.1 200 O\x01K\r\nContent-Length: 0\r\n\r\n'],
    ['a header with control characters', ok('X: a\x01b\r\n')],
    ['a header with NUL', ok('X: a\0b\r\n')],
    ['a name with a space', ok('X Y: a\r\n')],
    ['a header that goes on in the next line', ok('X: a\r\n b\r\n')],
    ['two lengths', ok('Content-Length: 3\r\n')],
    ['a length and chunks', ok('Transfer-Encoding: chunked\r\n')],
    ['a negative length', 'HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n'],
    ['an encoding that the service does not decode', 'HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n\r\nok'],
    ['chunks twice', 'HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked, chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n'],
    ['a head that is too large', ok(`X: ${'x'.repeat(LIMITS.passHeadBytes)}\r\n`)],
    ['too many headers', ok('a:\r\n'.repeat(LIMITS.passHeaders + 1))],
    ['another protocol that the client did not request', SWITCHING],
    ['an upgrade without the name of a protocol', 'HTTP/1.1 101 Switching\r\n\r\n'],
    ['an upgrade after an interim answer', `HTTP/1.1 100 Continue\r\n\r\n${SWITCHING}`],
    ['interim answers without end', 'HTTP/1.1 102 Processing\r\n\r\n'.repeat(LIMITS.passInterimAnswers + 1) + ok()],
    ['nothing but interim answers', 'HTTP/1.1 103 Early\r\nLink: </a>\r\n\r\n'],
  ])('an invalid answer with %s is 502, and the next request is served', async (_what, bytes) => {
    await using it = await bed();
    const seen = await twice(it, await answers(bytes));
    expect(seen).toMatch(/^HTTP\/1\.1 502 .*"code":502,"message":"the server on port \d+ .*HTTP\/1\.1 200 /s);
  });

  test('the 502 for an invalid answer names the fault', async () => {
    await using it = await bed();
    const port = await answers('HTTP/1.1 099 Low\r\n\r\n');
    expect(await it.send({ method: 'GET', url: at(port) })).toMatchObject({
      status: 502,
      body: {
        message: `the server on port ${port} sent an answer that cannot be forwarded: its status is 99, which is none of an answer`,
      },
    });
  });
});

describe('bytes before or after an answer', () => {
  test.each([
    ['a malformed link', 'HTTP/1.1 103 Early Hints\r\nLink: not a link\r\n\r\n'],
    ['an empty link', 'HTTP/1.1 103 Early Hints\r\nLink: \r\n\r\n'],
    ['a link with line ends', 'HTTP/1.1 103 Early Hints\r\nLink: </a>; rel="x\u0001"\r\n\r\n'],
    ['an unknown number', 'HTTP/1.1 199 What\r\nX: y\r\n\r\n'],
    ['the status 100 without an Expect header', 'HTTP/1.1 100 Continue\r\n\r\n'],
  ])('an interim answer with %s does not reach the client, and the next request is served', async (_what, interim) => {
    await using it = await bed();
    const seen = await twice(it, await answers(interim + ok()));
    expect(seen).toMatch(/^HTTP\/1\.1 (200|502) .*HTTP\/1\.1 200 /s);
    expect(seen).not.toMatch(/HTTP\/1\.1 1\d\d/);
  });

  test('endless interim answers hold no memory and no connection', async () => {
    await using it = await bed();
    const flood = Buffer.from('HTTP/1.1 102 Processing\r\n\r\n'.repeat(2000));
    const ended = deferred();
    const port = await inside.tcp(socket => {
      const more = () => {
        while (socket.writable && socket.write(flood));
      };
      socket
        .once('data', more)
        .on('drain', more)
        .once('close', () => ended.resolve());
    });
    expect(await it.send({ method: 'GET', url: at(port) })).toMatchObject({ status: 502 });
    await ended.promise;
  });

  test('a second answer behind the first reaches no client', async () => {
    await using it = await bed();
    const seen = await twice(it, await answers(ok() + ok('X-Second: 1\r\n')));
    expect(seen).toMatch(/^HTTP\/1\.1 200 .*ok.*HTTP\/1\.1 200 /s);
    expect(seen).not.toContain('X-Second');
  });

  test('the length of an answer without a body is not passed on', async () => {
    await using it = await bed();
    const seen = await twice(it, await answers('HTTP/1.1 204 No Content\r\nContent-Length: 5\r\n\r\n'));
    expect(seen).toMatch(/^HTTP\/1\.1 204 .*HTTP\/1\.1 200 /s);
    expect(seen.split('HTTP/1.1 200')[0]).not.toMatch(/content-length/i);
  });

  test.each([
    ['with a length', 'Content-Length: 2\r\nTrailer: X\r\n\r\nok'],
    ['without a body', 'Trailer: X\r\nContent-Length: 0\r\n\r\n'],
  ])('trailers that are announced for an answer %s', async (_what, rest) => {
    await using it = await bed();
    expect(await twice(it, await answers(`HTTP/1.1 200 OK\r\n${rest}`))).toMatch(/^HTTP\/1\.1 200 .*HTTP\/1\.1 200 /s);
  });

  test('trailers with names of the service are removed as headers are', async () => {
    await using it = await bed();
    const trailers = `Set-Cookie: iam_token=forged\r\nSet-Cookie: a=1\r\nStrict-Transport-Security: max-age=1\r\nX-Trace-Id: forged\r\nContent-Type: forged\r\nX-Sum: 42\r\n`;
    const bytes = `HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n${trailers}\r\n`;
    const seen = (await twice(it, await answers(bytes))).split('HTTP/1.1 200')[1];
    expect(seen).toContain('X-Sum: 42');
    expect(seen).not.toMatch(/forged|a=1|transport/i);
  });
});

describe('headers that only the service may send', () => {
  test.each([
    'iam_token=x',
    '=iam_token=x',
    '  IAM_Token = x',
    '__Host-iam_token=x; Path=/; Secure',
    '__Secure-iam_token=x',
    'a=1; Path=/, iam_token=x',
    'a="1; iam_token=x"',
  ])('the cookie %j of a sandbox is not set', async cookie => {
    await using it = await bed();
    const seen = await twice(it, await answers(ok(`Set-Cookie: ${cookie}\r\nSet-Cookie: own=1\r\n`)));
    expect(seen).toContain('Set-Cookie: own=1');
    expect(seen).not.toMatch(/iam_token/i);
  });

  test.each([
    ...[
      'Strict-Transport-Security: max-age=1',
      'Clear-Site-Data: "*"',
      'Service-Worker-Allowed: /',
      'Alt-Svc: h3=":1"',
    ],
    ...['Public-Key-Pins: x', 'Expect-CT: x', 'NEL: {}', 'Report-To: {}', 'No-Vary-Search: params', 'Accept-CH: Width'],
    ...['Use-As-Dictionary: match="/*"', 'Set-Login: logged-in', 'Set-Cookie2: a=1', 'Origin-Agent-Cluster: ?1'],
    ...['X-Accel-Redirect: /secret', 'X-Sendfile: /etc/passwd', 'X-Reproxy-URL: http://127.0.0.1/'],
    ...['WWW-Authenticate: NTLM', 'WWW-Authenticate: Negotiate', 'Proxy-Authenticate: Basic', 'Keep-Alive: timeout=5'],
    ...['Upgrade: h2c', 'Proxy-Connection: close', 'TE: x', 'Connection: X-Named\r\nX-Named: 1', 'HTTP2-Settings: x'],
  ])('the header %s of a sandbox does not pass', async header => {
    await using it = await bed();
    const [first = ''] = (await twice(it, await answers(ok(`${header}\r\nX-Stays: 1\r\n`)))).split('ok');
    expect(first).toContain('X-Stays: 1');
    const [name = ''] = header.split(':');
    const value = header.slice(name.length + 2);
    expect(first.toLowerCase().replace('connection: keep-alive', '')).not.toContain(
      `${name.toLowerCase()}: ${value.toLowerCase()}`,
    );
    expect(first).not.toContain('X-Named: 1');
  });

  test('a WWW-Authenticate header of a sandbox passes', async () => {
    await using it = await bed();
    const port = await answers('HTTP/1.1 401 No\r\nWWW-Authenticate: Basic realm="own"\r\nContent-Length: 0\r\n\r\n');
    expect(await twice(it, port)).toContain('WWW-Authenticate: Basic realm="own"');
  });

  test('a Connection header of a sandbox cannot remove the content security policy', async () => {
    await using it = await bed();
    const port = await answers(ok('Connection: Content-Security-Policy, Content-Length, X-Trace-Id\r\n'));
    expect(await twice(it, port)).toMatch(/^HTTP\/1\.1 200 .*Content-Length: 2.*Content-Security-Policy: sandbox/s);
  });
});

describe('an upgrade', () => {
  const asking = (it: Bed, port: number, more = UPGRADE) =>
    raw(it, `GET ${at(port)} HTTP/1.1\r\nHost: localhost\r\n${more}\r\n`);

  test('a request behind a failed upgrade stays with the service, and so does its token', async () => {
    await using it = await bed({ auth });
    let heard = '';
    const port = await inside.tcp(socket =>
      socket.on('data', data => {
        heard += data;
        socket.write(SWITCHING);
      }),
    );
    const seen = await twice(it, port, `X-Auth: ${SECRET}\r\n`);
    expect(seen).toMatch(/^HTTP\/1\.1 502 .*HTTP\/1\.1 200 /s);
    expect(heard).not.toContain('healthz');
    expect(heard).not.toContain(SECRET);
  });

  test.each([
    ['another protocol', `HTTP/1.1 101 S\r\nConnection: Upgrade\r\nUpgrade: h2c\r\n\r\n`],
    ['an additional protocol', `HTTP/1.1 101 S\r\nConnection: Upgrade\r\nUpgrade: own, h2c\r\n\r\n`],
    ['no protocol', `HTTP/1.1 101 S\r\nConnection: Upgrade\r\n\r\n`],
    ['control characters in the reason', `HTTP/1.1 101 S\x02\r\n${UPGRADE}\r\n`],
    ['too many headers', `HTTP/1.1 101 S\r\n${UPGRADE}${'a:\r\n'.repeat(LIMITS.passHeaders)}\r\n`],
  ])('an upgrade that is answered with %s is 502', async (_what, bytes) => {
    await using it = await bed();
    expect(await asking(it, await answers(bytes))).toMatch(/^HTTP\/1\.1 502 /);
  });

  test('an answer to an upgrade loses the headers that any answer of a sandbox loses', async () => {
    await using it = await bed();
    const head = `${UPGRADE}Set-Cookie: iam_token=forged\r\nAlt-Svc: forged\r\nContent-Length: 7\r\nX-Own: 1\r\n`;
    const seen = await asking(it, await answers(`HTTP/1.1 101 S\r\n${head}\r\nbytes`));
    expect(seen).toMatch(
      /^HTTP\/1\.1 101 S\r\nConnection: Upgrade\r\nUpgrade: own\r\nX-Own: 1\r\nX-Trace-Id: .*bytes$/s,
    );
    expect(seen).not.toMatch(/forged|Content-Length/);
  });

  test('an upgrade with a body is answered 400', async () => {
    await using it = await bed();
    const port = await answers(SWITCHING);
    expect(await asking(it, port, `${UPGRADE}Content-Length: 5\r\n`)).toMatch(/^HTTP\/1\.1 400 /);
  });

  test('an upgrade whose caller leaves before the answer ends nothing else', async () => {
    await using it = await bed();
    const asked = deferred();
    const ended = deferred();
    const port = await inside.tcp(socket => {
      socket.once('data', () => asked.resolve()).once('end', () => ended.resolve());
    });
    const socket = net.connect(Number(new URL(it.url).port), '127.0.0.1');
    socket.write(`GET ${at(port)} HTTP/1.1\r\nHost: localhost\r\n${UPGRADE}\r\n`);
    await asked.promise;
    socket.resetAndDestroy();
    await ended.promise;
    expect(await it.send({ method: 'GET', url: '/healthz' })).toMatchObject({ status: 200 });
  });

  test('an upgrade that is never answered is 504', async () => {
    await using it = await bed();
    const limits = LIMITS as { passIdleMs: number };
    const { passIdleMs } = limits;
    limits.passIdleMs = 50;
    try {
      expect(await asking(it, await inside.tcp(() => undefined))).toMatch(/^HTTP\/1\.1 504 /);
    } finally {
      limits.passIdleMs = passIdleMs;
    }
  });
});

describe('headers and tokens for the platform', () => {
  /** Returns all bytes of a request that reach the sandbox. */
  async function heard(it: Bed, head: (port: number) => string): Promise<string> {
    let said = '';
    const port = await inside.tcp(socket => {
      socket.on('data', data => {
        said += data.toString('latin1');
        if (said.includes('\r\n\r\n')) socket.end(ok());
      });
    });
    await raw(it, head(port));
    await turn();
    return said;
  }
  const get =
    (headers: string, query = '', path = '/') =>
    (port: number) =>
      `GET ${at(port, path, query)} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n${headers}\r\n`;

  test.each<[string, string]>([
    ['in X-Auth of other letters', `x-aUTH: ${SECRET}\r\n`],
    ['in a second Authorization', `X-Auth: ${SECRET}\r\nAuthorization: Basic x\r\nAuthorization: Bearer ${SECRET}\r\n`],
    ['of another user in Authorization', `X-Auth: ${SECRET}\r\nAuthorization: Bearer ${OTHER}\r\n`],
    ['behind a tab', `X-Auth: ${SECRET}\r\nAuthorization: bEARER\t${SECRET}\r\n`],
    ['with further text after it', `X-Auth: ${SECRET}\r\nAuthorization: Bearer ${SECRET}, x\r\n`],
    ['in Proxy-Authorization', `X-Auth: ${SECRET}\r\nProxy-Authorization: Bearer ${SECRET}\r\n`],
    ['in a cookie behind a tab', `X-Auth: ${SECRET}\r\nCookie: a=1;\tiam_token=${SECRET}\r\n`],
    ['in a cookie with a prefix', `X-Auth: ${SECRET}\r\nCookie: __Host-iam_token=${SECRET}; IAM_TOKEN =${SECRET}\r\n`],
    ['in two cookie headers', `Cookie: a=1\r\nCookie: iam_token=${SECRET}\r\n`],
    ['in a cookie of another name', `X-Auth: ${SECRET}\r\nCookie: other=${SECRET}\r\n`],
    ['in the address that led here', `X-Auth: ${SECRET}\r\nReferer: http://localhost/?token=${SECRET}\r\n`],
    ['in a header that the connection names', `Connection: close, X-Auth, Cookie\r\nX-Auth: ${SECRET}\r\n`],
  ])('the token %s does not reach the sandbox', async (_where, headers) => {
    await using it = await bed({ auth });
    const said = await heard(it, get(headers));
    expect(said).toMatch(/^GET \/ HTTP\/1\.1\r\n/);
    expect(said).not.toContain(SECRET);
    expect(said).not.toContain(OTHER);
  });

  test.each([
    ['token', `&%74ok%65n=${SECRET}`],
    ['of another name', `&next=${SECRET}`],
    ['of another name, encoded', `&next=${SECRET.replaceAll('-', '%2D')}`],
    ['of another name, encoded beside an invalid escape', `&next=%zz${SECRET.replaceAll('-', '%2d')}%`],
    ['behind a second question mark', `&a=1?token=${SECRET}`],
  ])('the token in the parameter %s does not reach the sandbox', async (_name, query) => {
    await using it = await bed({ auth });
    const said = await heard(it, get(`X-Auth: ${SECRET}\r\n`, query));
    expect(said).toMatch(/^GET \/ HTTP\/1\.1\r\n/);
  });

  test.each([
    ['another name', `%74oken=${SECRET}`],
    ['another value', `tok%65n=${SECRET.replaceAll('-', '%2D')}`],
    ['a second parameter', `token=${SECRET}&t%6Fken=${OTHER}`],
    ['a second question mark', `a=1?&token=${SECRET}`],
  ])('the token of an upgrade, written with %s, does not reach the sandbox', async (_how, query) => {
    await using it = await bed({ auth });
    const upgrade = 'Connection: Upgrade\r\nUpgrade: websocket\r\n';
    const said = await heard(
      it,
      port => `GET ${at(port, '/', `&${query}`)} HTTP/1.1\r\nHost: localhost\r\n${upgrade}\r\n`,
    );
    expect(said).toMatch(/^GET \/(\?a=1\?)? HTTP\/1\.1\r\n/);
    expect(JSON.stringify(it.lines)).not.toMatch(/platform|%2D/);
  });

  test('the token in trailers, and headers that frame a body, do not reach the sandbox', async () => {
    await using it = await bed({ auth });
    const seen = deferred<unknown>();
    const port = await inside.http(async (request, response) => {
      await text(request);
      seen.resolve(request.rawTrailers);
      response.end();
    });
    const trailers = `X-Auth: ${SECRET}\r\nCookie: iam_token=${SECRET}\r\nX-Copy: ${SECRET}\r\nX-Sum: 42\r\n`;
    const body = `2\r\nok\r\n0\r\n${trailers}\r\n`;
    const head = `POST ${at(port)} HTTP/1.1\r\nHost: localhost\r\nX-Auth: ${SECRET}\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n`;
    await raw(it, head + body);
    expect(await seen.promise).toEqual(['X-Sum', '42']);
  });

  test('a body keeps its length, whatever the connection names', async () => {
    await using it = await bed();
    const asked: string[] = [];
    const port = await inside.http(async (request, response) => {
      asked.push(`${request.method} ${request.url} ${await text(request)}`);
      response.end();
    });
    const body = `GET /smuggled HTTP/1.1\r\nHost: x\r\n\r\n`;
    const head = `GET ${at(port)} HTTP/1.1\r\nHost: localhost\r\nContent-Length: ${body.length}\r\nConnection: close, Content-Length\r\n\r\n`;
    await raw(it, head + body);
    expect(asked).toEqual([`GET / ${body}`]);
  });

  test.each([
    ['a length and chunks', 'Content-Length: 5\r\nTransfer-Encoding: chunked\r\n', '0\r\n\r\n'],
    ['two lengths', 'Content-Length: 5\r\nContent-Length: 6\r\n', 'aaaaaa'],
    ['an encoding without an end', 'Transfer-Encoding: chunked, gzip\r\n', '0\r\n\r\n'],
    ['a chunk whose size is not a number', 'Transfer-Encoding: chunked\r\n', '0x5\r\naaaaa\r\n0\r\n\r\n'],
  ])('a body with %s is refused before the inside has all of it', async (_what, headers, body) => {
    await using it = await bed();
    const asked: string[] = [];
    const port = await inside.http(async (request, response) => {
      asked.push(await text(request).catch(() => 'cut'));
      response.end();
    });
    const head = `POST ${at(port)} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n${headers}\r\n`;
    const seen = await raw(it, head + body);
    expect(seen).not.toMatch(/^HTTP\/1\.1 200/);
    expect(asked.filter(each => each !== 'cut')).toEqual([]);
  });

  test('a request to a port of a sandbox is refused when its target is an absolute URL', async () => {
    await using it = await bed();
    const port = await answers(ok());
    const head = `GET http://localhost${at(port)} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n`;
    expect(await raw(it, head)).toMatch(/^HTTP\/1\.1 4\d\d /);
  });
});

test('a caller that does not read behind an upgrade stops the reading from the sandbox', async () => {
  await using it = await bed();
  let written = 0;
  const port = await answers(SWITCHING, socket => {
    const more = () => {
      while (socket.writable && written < 200_000_000) {
        written += 65_536;
        if (!socket.write(Buffer.alloc(65_536))) break;
      }
    };
    socket.on('drain', more);
    more();
  });
  const socket = net.connect(Number(new URL(it.url).port), '127.0.0.1');
  socket.write(`GET ${at(port)} HTTP/1.1\r\nHost: localhost\r\n${UPGRADE}\r\n`);
  let before = -1;
  await vi.waitFor(
    () => {
      const isStill = written === before && written > 0;
      before = written;
      expect(isStill).toBe(true);
    },
    { interval: 200, timeout: 30_000 },
  );
  expect(written).toBeLessThan(100_000_000);
  socket.destroy();
});
