import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { SECRET } from '../../test/http/cluster-bed.ts';
import { ClusterWorld, comparable, head, headersOf, say, URN } from '../../test/http/cluster-world.ts';
import { AGENT, at } from '../../test/http/passthrough-bed.ts';
import { unauthenticated } from '../core/error.ts';
import type { Identity, TokenVerifier } from '../http/access/credentials.ts';
import { FORWARD_HEADER, NOT_HERE_HEADER } from './head.ts';
import { Peers } from './peers.ts';
import { clusterTls } from './tls.ts';

const TOKENS: Readonly<Record<string, Identity>> = {
  developer: { tenant: 'default', role: 'developer' },
  viewer: { tenant: 'default', role: 'viewer' },
  other: { tenant: 'other', role: 'developer' },
};
const auth: TokenVerifier = {
  known: token => TOKENS[token],
  verify: async token => {
    const found = TOKENS[token];
    if (found === undefined) throw unauthenticated('authentication failed: nobody');
    return found;
  },
};

let world: ClusterWorld;
const insideSaw: string[] = [];
let insidePort: number;
beforeAll(async () => {
  world = await ClusterWorld.start({ auth });
  insidePort = await world.ports.http((request, response) => {
    insideSaw.push(`${request.method} ${request.url}`, ...headersOf(request));
    response.writeHead(421, { [NOT_HERE_HEADER]: 'guess', 'X-Rookery-Forward': 'x' });
    request.resume().on('end', () => response.end('mine'));
  });
});
afterAll(() => world[Symbol.asyncDispose]());

const invoke = `/api/agent/${AGENT.id}/invoke`;
const bearer = (token: string) => ['Authorization', `Bearer ${token}`] as const;
const mark = (nodeId: string, role = 'developer') =>
  [FORWARD_HEADER, `1 token ${nodeId} default ${role} whole`] as const;
const both = () => [world.urls.direct, world.urls.forwarded];
const statusOf = (answer: Buffer) => Number(answer.toString('latin1').split(' ')[1]);

describe('the forward header from an outside client', () => {
  test.each(['node-a', 'node-b'])('a forward header for %s gives an outside client no identity', async nodeId => {
    for (const url of both()) {
      const request = head('POST', invoke, [mark(nodeId), ['Content-Length', '2']]);
      expect(statusOf(await say(url, `${request}{}`))).toBe(401);
    }
  });

  test('a forward header does not give another role', async () => {
    for (const url of both()) {
      expect(
        statusOf(await say(url, head('DELETE', `/api/agent/${AGENT.id}`, [mark('node-b'), bearer('viewer')]))),
      ).toBe(403);
    }
  });

  test('a forward header does not give access to another tenant', async () => {
    for (const url of both()) {
      const request = head('POST', invoke, [mark('node-b'), bearer('other'), ['Content-Length', '2']]);
      expect(statusOf(await say(url, `${request}{}`))).toBe(404);
    }
  });

  test('a forward header does not pass the checks of Host and Origin', async () => {
    for (const url of both()) {
      const request = head('POST', invoke, [
        mark('node-b'),
        bearer('developer'),
        ['Content-Length', '2'],
        ['Origin', 'http://evil.example'],
      ]);
      expect(statusOf(await say(url, `${request}{}`))).toBe(403);
      expect(statusOf(await say(url, request.replace('Host: localhost', 'Host: evil.example')))).toBe(421);
    }
  });

  test('a forward header reaches no sandbox, direct or forwarded', async () => {
    insideSaw.length = 0;
    for (const url of both()) await say(url, head('GET', at(insidePort, '/'), [mark('node-b'), bearer('developer')]));
    expect(insideSaw.filter(line => line.startsWith('GET'))).toHaveLength(2);
    expect(insideSaw.join('\n')).not.toMatch(/x-rookery-forward/i);
  });
});

test('a forwarded request has the rights of the client that the first replica verified', async () => {
  const ask = async (token: string, method: string, path: string) => {
    const body = method === 'POST' ? '{}' : null;
    const answer = await fetch(world.urls.forwarded + path, {
      method,
      body,
      headers: Object.fromEntries([bearer(token)]),
    });
    await answer.text();
    return answer.status;
  };
  expect(await ask('developer', 'POST', invoke)).toBe(200);
  expect(await ask('other', 'POST', invoke)).toBe(404);
  expect(await ask('viewer', 'POST', invoke)).toBe(403);
  expect(await ask('viewer', 'GET', `/api/agent/${AGENT.id}/logs`)).toBe(200);
  expect(await ask('nobody', 'GET', `/api/agent/${AGENT.id}/logs`)).toBe(401);
});

describe('requests of another replica', () => {
  const asPeer = async (method: string, path: string, headers: readonly string[]) => {
    const peers = new Peers(clusterTls(SECRET, 'node-a').client);
    try {
      return await new Promise<number | undefined>((resolve, reject) => {
        const request = peers.request(world.cluster.owner.target.address, {
          method,
          path,
          headers: ['Host', 'x', ...headers],
        });
        request.on('response', answer => resolve(answer.resume().statusCode)).on('error', reject);
        request.end();
      });
    } finally {
      peers.close();
    }
  };

  test.each([
    ['without a mark', 'GET', `/api/agent/${AGENT.id}/logs`, [], 400],
    ['with half a mark', 'GET', `/api/agent/${AGENT.id}/logs`, [FORWARD_HEADER, '1 token node-b default'], 400],
    ['with an unknown role', 'GET', `/api/agent/${AGENT.id}/logs`, mark('node-b', 'root'), 400],
    ['with two marks', 'GET', `/api/agent/${AGENT.id}/logs`, [...mark('node-b'), ...mark('node-b')], 400],
    ['for another replica', 'GET', `/api/agent/${AGENT.id}/logs`, mark('node-c'), 421],
    ['what its caller may not do', 'DELETE', `/api/agent/${AGENT.id}`, mark('node-b', 'viewer'), 403],
    ['to a route that is not forwarded', 'GET', '/api/agent', mark('node-b'), 403],
    ['for metrics', 'GET', '/metrics', mark('node-b'), 403],
    ['to an unknown route', 'GET', '/nothing', mark('node-b'), 403],
    ['for a log', 'GET', `/api/agent/${AGENT.id}/logs`, mark('node-b', 'viewer'), 200],
  ] as const)('a request of another replica %s gets the expected status', async (_, method, path, headers, status) => {
    expect(await asPeer(method, path, headers)).toBe(status);
  });
});

describe('smuggled requests', () => {
  const inner = `GET /api/agent/${AGENT.id}/logs HTTP/1.1\r\nHost: x\r\n${FORWARD_HEADER}: 1 t node-b default developer whole\r\n\r\n`;
  const requests: readonly (readonly [string, string])[] = [
    ['two lengths', `Content-Length: 2\r\nContent-Length: 200\r\n\r\n{}${inner}`],
    ['a length and chunks', `Content-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n${inner}`],
    ['chunks that are spelled oddly', `Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n${inner}`],
    ['chunks with bytes after the end', `Transfer-Encoding: chunked, identity\r\n\r\n0\r\n\r\n${inner}`],
    ['a bare line feed', `Content-Length: 2\n\n{}${inner}`],
    ['an invalid length', `Content-Length: +2\r\n\r\n{}${inner}`],
    ['a header with a null', `X-Own: a\0b\r\nContent-Length: 2\r\n\r\n{}`],
    ['a folded header', `X-Own: a\r\n b\r\nContent-Length: 2\r\n\r\n{}`],
    [
      'a length that the Connection header names',
      `Connection: close, content-length\r\nContent-Length: 2\r\n\r\n{}${inner}`,
    ],
    [
      'a forward header that the Connection header names',
      `Connection: close, ${FORWARD_HEADER}\r\nContent-Length: 2\r\n\r\n{}`,
    ],
    ['a chunk longer than its size', `Transfer-Encoding: chunked\r\n\r\n1\r\n{}\r\n0\r\n\r\n${inner}`],
    ['a body of an upgrade', `Connection: Upgrade\r\nUpgrade: own\r\nContent-Length: ${inner.length}\r\n\r\n${inner}`],
  ];

  test.each(requests)(
    'smuggling with %s: the answers equal those of a direct request, and no further request is sent',
    async (_, rest) => {
      const request = `POST ${invoke} HTTP/1.1\r\nHost: localhost\r\nX-Trace-Id: t\r\nAuthorization: Bearer developer\r\n${
        rest.includes('Connection:') ? '' : 'Connection: close\r\n'
      }${rest}`;
      const { owner } = world.cluster;
      const direct = await say(world.urls.direct, request);
      const asked = owner.requests.length;
      const forwarded = await say(world.urls.forwarded, request);
      expect(comparable(forwarded)).toEqual(comparable(direct));
      expect(owner.requests.length - asked).toBeLessThanOrEqual(1);
    },
  );

  test('a sandbox’s answer 421 "not here" is forwarded as any other answer', async () => {
    const results = world.cluster.first.results.length;
    const request = head('POST', at(insidePort, '/'), [
      ['X-Trace-Id', 't'],
      bearer('developer'),
      ['Content-Length', '1'],
    ]);
    const direct = comparable(await say(world.urls.direct, `${request}1`));
    expect(comparable(await say(world.urls.forwarded, `${request}1`))).toEqual(direct);
    expect(direct.head[0]).toContain('421');
    expect(world.cluster.first.results.slice(results)).toEqual(['answered']);
  });
});

describe('heads of forwarded requests', () => {
  test.each([100, 12_000, 16_000, 17_000, 40_000])(
    'a head of %d bytes is accepted or refused as without forwarding',
    async bytes => {
      const request = head('POST', invoke, [
        ['X-Trace-Id', 't'],
        bearer('developer'),
        ['X-Large', 'x'.repeat(bytes)],
        ['Content-Length', '2'],
      ]);
      const direct = comparable(await say(world.urls.direct, `${request}{}`));
      expect(comparable(await say(world.urls.forwarded, `${request}{}`))).toEqual(direct);
    },
  );

  test('a forwarded head of 900 headers is complete', async () => {
    const many = Array.from({ length: 900 }, (_, index) => [`A${index}`, ''] as const);
    const request = head('POST', `/serverless/v1/functions/${URN}/invocations`, [
      ['X-Trace-Id', 't'],
      bearer('developer'),
      ['Content-Length', '2'],
      ...many,
    ]);
    world.seen.length = 0;
    await say(world.urls.direct, `${request}{}`);
    await say(world.urls.forwarded, `${request}{}`);
    expect(world.seen).toHaveLength(2);
    expect(world.seen[1]?.call.header.headers).toEqual(world.seen[0]?.call.header.headers);
  });

  test('an unusual trace id is the same forwarded and directly', async () => {
    for (const id of ['', 'x'.repeat(500), 'h\xe4', 'a\tb']) {
      const request = head('POST', invoke, [
        ['X-Trace-Id', id],
        ['X-Request-Id', 'r'],
        bearer('developer'),
        ['Content-Length', '2'],
      ]);
      const direct = comparable(await say(world.urls.direct, `${request}{}`));
      expect(comparable(await say(world.urls.forwarded, `${request}{}`))).toEqual(direct);
    }
  });
});
