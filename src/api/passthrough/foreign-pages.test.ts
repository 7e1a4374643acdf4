import http from 'node:http';
import net from 'node:net';
import { text } from 'node:stream/consumers';
import { afterEach, describe, expect, test } from 'vitest';
import { type AddressBed, addressBed } from '../../../test/http/addresses-bed.ts';
import { Inside } from '../../../test/http/passthrough-bed.ts';
import { unauthenticated } from '../../core/error.ts';

const inside = new Inside();
afterEach(() => inside.close());

const auth = {
  known: (token: string) => (token === 'of-a-user' ? ({ tenant: 'default', role: 'user' } as const) : undefined),
  verify: () => Promise.reject(unauthenticated('authentication failed: unknown')),
};

/** The host and path of one request. Three of them lead to the same server: by host, path and port. */
interface Way {
  readonly host: string;
  readonly path: string;
}
type Ways = Readonly<Record<'host' | 'path' | 'port', Way>>;

const waysOf = (it: AddressBed, id: string, port: number): Ways => ({
  host: { host: it.host('hello--default'), path: '/x' },
  path: { host: `localhost:${it.port}`, path: '/default/hello/x' },
  port: { host: `localhost:${it.port}`, path: `/serverless/v1/http/x?instance=${id}&port=${port}` },
});

type Headers = Readonly<Record<string, string>>;
const page = (site: string, mode: string, dest: string): Headers => ({
  'Sec-Fetch-Site': site,
  'Sec-Fetch-Mode': mode,
  'Sec-Fetch-Dest': dest,
});

/** Requests of browsers and programs. `SELF` stands for the origin of the address under test. */
const REQUESTS: readonly (readonly [what: string, method: string, headers: Headers, status: number])[] = [
  ['a program that sends GET', 'GET', {}, 200],
  ['a program that sends POST', 'POST', {}, 200],
  ['a page of the same origin that sends GET', 'GET', page('same-origin', 'cors', 'empty'), 200],
  ['a page of the same origin that sends POST', 'POST', { Origin: 'SELF', 'Sec-Fetch-Site': 'same-origin' }, 200],
  ['a person who types the address', 'GET', page('none', 'navigate', 'document'), 200],
  ['a person who follows a link of another site', 'GET', page('cross-site', 'navigate', 'document'), 200],
  ['a person who follows a link of another port', 'HEAD', page('same-site', 'navigate', 'document'), 200],
  ['an image of another site', 'GET', page('cross-site', 'no-cors', 'image'), 403],
  ['a script of another port', 'GET', page('same-site', 'no-cors', 'script'), 403],
  ['a frame of another site', 'GET', page('cross-site', 'navigate', 'iframe'), 403],
  ['a fetch of another site', 'GET', { Origin: 'http://evil.example', ...page('cross-site', 'cors', 'empty') }, 403],
  ['an old browser that names another origin', 'GET', { Origin: 'http://evil.example' }, 403],
  ['a page without an origin', 'GET', { Origin: 'null' }, 403],
  ['a HEAD of another site', 'HEAD', page('cross-site', 'no-cors', 'empty'), 403],
  ['a preflight of another site', 'OPTIONS', { Origin: 'http://evil.example' }, 403],
  [
    'a form of another site',
    'POST',
    { Origin: 'http://evil.example', ...page('cross-site', 'navigate', 'document') },
    403,
  ],
  [
    'an upgrade of another site',
    'GET',
    { Connection: 'Upgrade', Upgrade: 'h2c', ...page('cross-site', 'navigate', 'document') },
    403,
  ],
];

async function statusOf(it: AddressBed, way: Way, method: string, headers: Headers): Promise<number> {
  const sent = Object.entries(headers).map(([name, value]) => [name, value === 'SELF' ? `http://${way.host}` : value]);
  return (await it.ask(way.host, way.path, { method, headers: Object.fromEntries(sent) as Headers })).status;
}

async function ofAll(ways: Ways, ask: (way: Way) => Promise<unknown>) {
  const found = await Promise.all(Object.values(ways).map(ask));
  return Object.fromEntries(Object.keys(ways).map((name, at) => [name, found[at]]));
}

const same = <T>(value: T) => ({ host: value, path: value, port: value });
const served = () => inside.http((request, response) => void request.resume().on('end', () => response.end()));

describe('the three ways to a program answer alike', () => {
  test.each(REQUESTS)(
    'all three ways to a program answer alike with authentication off when the sender is %s',
    async (_, method, headers, status) => {
      await using it = await addressBed();
      const port = await served();
      const ways = waysOf(it, it.expose({ port, access: 'token' }), port);
      expect(await ofAll(ways, way => statusOf(it, way, method, headers))).toEqual(same(status));
    },
  );

  test('all three ways answer 200 when a page of another site sends GET with a token in a header', async () => {
    await using it = await addressBed({ auth });
    const port = await served();
    const ways = waysOf(it, it.expose({ port, access: 'token' }), port);
    const headers = { 'X-Auth': 'of-a-user', ...page('cross-site', 'cors', 'empty') };
    expect(await ofAll(ways, way => statusOf(it, way, 'GET', headers))).toEqual(same(200));
  });

  test('path and port answer 403 when a page of another port sends GET with a cookie that the browser adds', async () => {
    await using it = await addressBed({ auth });
    const port = await served();
    const ways = waysOf(it, it.expose({ port, access: 'token' }), port);
    const headers = { Cookie: 'iam_token=of-a-user', ...page('same-site', 'no-cors', 'image') };
    const { path, port: byPort } = ways;
    for (const way of [path, byPort]) expect(await statusOf(it, way, 'GET', headers)).toBe(403);
    for (const way of [path, byPort]) {
      expect(await statusOf(it, way, 'GET', { Cookie: 'iam_token=of-a-user' })).toBe(200);
    }
  });

  test.each(['token', 'public'] as const)(
    'only the host serves a script for a page of the same origin when access is %s',
    async access => {
      await using it = await addressBed();
      const port = await served();
      const { host, path, port: byPort } = waysOf(it, it.expose({ port, access }), port);
      const script = page('same-origin', 'no-cors', 'script');
      expect(await statusOf(it, host, 'GET', script)).toBe(200);
      expect(await statusOf(it, path, 'GET', script)).toBe(403);
      expect(await statusOf(it, byPort, 'GET', script)).toBe(403);
    },
  );

  test('all three ways name X-Forwarded-Proto when a browser sends a change through a proxy without this header', async () => {
    await using it = await addressBed();
    const port = await served();
    const ways = waysOf(it, it.expose({ port, access: 'token' }), port);
    const message = /^cross-site requests are not allowed: .* must send X-Forwarded-Proto: https$/;
    const ask = async (way: Way) => {
      const headers = { Origin: `https://${way.host}`, 'Sec-Fetch-Site': 'same-origin' };
      return (await it.ask(way.host, way.path, { method: 'POST', headers })).message;
    };
    expect(await ofAll(ways, ask)).toEqual(same(expect.stringMatching(message)));
  });
});

describe('the bytes of an answer pass by all three ways', () => {
  const HEAD = Buffer.from('HTTP/1.1 200 日本\r\nX-L: 日\r\nContent-Disposition: filename="caf\xc3\xa9"\r\n', 'utf8');
  const LATIN1 = Buffer.from('X-Latin: caf\xe9\r\n', 'latin1');

  test.each([
    ['GET', 'Content-Length: 2\r\n\r\nok'],
    ['GET', 'Transfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n'],
    ['GET', '\r\nok'],
    ['HEAD', 'Content-Length: 2\r\n\r\n'],
  ])('all three ways pass the bytes of a head unchanged when %s is answered with %j', async (method, rest) => {
    await using it = await addressBed();
    const port = await inside.tcp(socket => {
      socket.once('data', () => socket.end(Buffer.concat([HEAD, LATIN1, Buffer.from(rest)])));
    });
    const ways = waysOf(it, it.expose({ port, access: 'public' }), port);
    const ask = async ({ host, path }: Way) => {
      const socket = net.connect(Number(it.port), '127.0.0.1');
      socket.write(`${method} ${path} HTTP/1.1\r\nHost: ${host}\r\nConnection: close\r\n\r\n`);
      const chunks: Buffer[] = [];
      for await (const chunk of socket) chunks.push(chunk as Buffer);
      const answer = Buffer.concat(chunks);
      return [HEAD, LATIN1].every(bytes => answer.includes(bytes)) && answer.includes('ok') === (method === 'GET');
    };
    expect(await ofAll(ways, ask)).toEqual(same(true));
  });

  test('the bytes of a head pass unchanged when the body begins long after the head', async () => {
    await using it = await addressBed();
    let end = () => undefined as unknown;
    const port = await inside.http((_request, response) => {
      response.writeHead(200, ['X-L', Buffer.from('日').toString('latin1')]);
      response.write('');
      response.flushHeaders();
      end = () => response.end('late');
    });
    const { path } = waysOf(it, it.expose({ port, access: 'public' }), port);
    const answer = await new Promise<http.IncomingMessage>((resolve, reject) => {
      const { host } = path;
      http
        .get({ host: '127.0.0.1', port: it.port, path: path.path, headers: { Host: host }, agent: false }, resolve)
        .on('error', reject);
    });
    end();
    expect(await text(answer)).toBe('late');
  });
});
