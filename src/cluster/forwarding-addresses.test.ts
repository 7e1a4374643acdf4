import { once } from 'node:events';
import http, { type IncomingMessage } from 'node:http';
import { text } from 'node:stream/consumers';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { WebSocket, WebSocketServer } from 'ws';
import { type TestReplica, testReplica } from '../../test/http/cluster-bed.ts';
import { SPEC } from '../../test/http/frontend.ts';
import { HostAccess } from '../../test/http/host-access.ts';
import { newInstance } from '../../test/http/memory-instances.ts';
import { Inside } from '../../test/http/passthrough-bed.ts';
import { unauthenticated } from '../core/error.ts';

const inside = new Inside();
const seen: IncomingMessage['headers'][] = [];
const auth = {
  known: (token: string) => (token === 'right' ? ({ tenant: 'default', role: 'user' } as const) : undefined),
  verify: () => Promise.reject(unauthenticated('authentication failed: unknown')),
};
let first: TestReplica;
let second: TestReplica;

beforeAll(async () => {
  const server = http.createServer(async (request, response) => {
    seen.push(request.headers);
    response.end(`${request.method} ${request.url} ${await text(request)}`);
  });
  new WebSocketServer({ server }).on('connection', socket => socket.on('message', data => socket.send(`said ${data}`)));
  const port = await inside.listen(server);
  first = await testReplica('first', { auth });
  second = await testReplica('second', { auth });
  first.locator.target = second.target;
  // Only the second replica can open the sandbox.
  second.instances.inside = new HostAccess('/');
  const agents = [
    newInstance({ ...SPEC, expose: { port, access: 'token' } }),
    newInstance({ ...SPEC, name: 'open', expose: { port, access: 'public' } }),
  ];
  for (const agent of agents) for (const { instances } of [first, second]) instances.put(agent);
});
afterAll(async () => {
  for (const replica of [first, second]) await replica[Symbol.asyncDispose]();
  await inside.close();
});

async function ask(host: string, path: string, headers: Record<string, string> = {}, method = 'POST') {
  const { port } = new URL(first.url);
  const request = http.request({
    host: '127.0.0.1',
    port,
    path,
    method,
    headers: { Host: host, ...headers },
    agent: false,
  });
  request.end(method === 'POST' ? 'body' : undefined);
  const [answer] = (await once(request, 'response')) as [IncomingMessage];
  return { status: answer.statusCode, text: await text(answer) };
}

describe('an address of an agent on another replica', () => {
  test.each([
    ['by host', 'open--default.localhost', '/a%2Fb?x=1', '/a%2Fb?x=1'],
    ['by path', 'localhost', '/default/open/a%2Fb?x=1', '/a%2Fb?x=1'],
  ])('a request %s is answered by the replica that owns the agent', async (_how, host, path, inner) => {
    expect(await ask(host, path)).toEqual({ status: 200, text: `POST ${inner} body` });
    expect(first.results.at(-1)).toBe('answered');
  });

  test('the replica that received the request authenticates the caller', async () => {
    const host = 'hello--default.localhost';
    expect((await ask(host, '/')).status).toBe(401);
    expect((await ask(host, '/', { 'X-Auth': 'wrong' })).status).toBe(401);
    expect((await ask(host, '/', { 'X-Auth': 'right', Cookie: 'a=1' })).status).toBe(200);
    expect((await ask('localhost', '/default/hello/', { 'X-Auth': 'right' })).status).toBe(200);
  });

  test('a forwarded request has one set of X-Forwarded headers and no internal headers', async () => {
    seen.length = 0;
    await ask('open--default.localhost', '/', { 'X-Forwarded-For': '10.0.0.1' });
    expect(seen[0]).toMatchObject({
      host: 'open--default.localhost',
      'x-forwarded-for': '10.0.0.1, 127.0.0.1',
      'x-forwarded-host': 'open--default.localhost',
    });
    expect(Object.keys(seen[0] ?? {}).filter(name => name.startsWith('x-rookery'))).toEqual([]);
  });

  test('a WebSocket is forwarded to the replica that owns the agent', async () => {
    const url = `${first.url.replace('http', 'ws')}/chat`;
    const socket = new WebSocket(url, { headers: { Host: 'open--default.localhost' } });
    await once(socket, 'open');
    socket.send('hello');
    expect(String((await once(socket, 'message'))[0])).toBe('said hello');
    socket.close();
    await once(socket, 'close');
  });
});
