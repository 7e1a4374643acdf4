import { once } from 'node:events';
import http, { type IncomingMessage, type Server } from 'node:http';
import net, { type Socket } from 'node:net';
import { text } from 'node:stream/consumers';
import { afterEach, describe, expect, test, vi } from 'vitest';
import { type WebSocket, WebSocketServer } from 'ws';
import { deferred } from '../../../test/http/deferred.ts';
import { AGENT, at, bed, Inside, tunnel } from '../../../test/http/passthrough-bed.ts';
import { Caller, refusedHandshake } from '../../../test/http/web-socket.ts';

const inner = new Inside();
const { sockets, http: inside, tcp: insideTcp } = inner;
const listening = (server: Server) => inner.listen(server);

afterEach(() => inner.close());

/** Reads until the other side ends. Unlike iteration, this leaves the socket open. */
async function everything(socket: Socket): Promise<string> {
  let seen = '';
  socket.on('data', chunk => {
    seen += chunk;
  });
  await once(socket, 'end');
  return seen;
}

describe('upgraded connections', () => {
  test('a WebSocket server in the sandbox exchanges messages with a client', async () => {
    await using it = await bed();
    const outer = http.createServer();
    new WebSocketServer({ server: outer }).on('connection', (socket: WebSocket, request: IncomingMessage) => {
      socket.send(request.headers.origin ?? '');
      socket.on('message', (data: Buffer, isBinary) => socket.send(data, { binary: isBinary }));
    });
    const port = await listening(outer);
    const caller = await Caller.open(it.url.replace('http', 'ws') + at(port, '/chat'), { origin: it.url });
    const big = Buffer.alloc(3_000_000, 7);
    caller.socket.send('hello');
    caller.socket.send(big);
    await vi.waitFor(() => expect(caller.messages.map(message => message.equals(big))).toEqual([true]), {
      timeout: 30_000,
    });
    expect(caller.texts).toEqual([it.url, 'hello']);
    caller.socket.close(4321, 'bye');
    expect(await caller.closed).toEqual({ code: 4321, reason: 'bye' });
  });

  test('an upgraded connection carries any protocol, bytes behind both heads, and each side’s end', async () => {
    await using it = await bed();
    const port = await insideTcp(socket => {
      let seen = '';
      socket.on('data', chunk => {
        if (seen === '') socket.write('HTTP/1.1 101 Switching\r\nConnection: Upgrade\r\nUpgrade: own\r\n\r\nwelcome,');
        seen += chunk;
      });
      socket.on('end', () => socket.end(seen.split('\r\n\r\n')[1] ?? ''));
    });
    const head = `GET ${at(port)} HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: own\r\n\r\nearly,`;
    const socket = net.connect(Number(new URL(it.url).port), '127.0.0.1');
    socket.write(head);
    await once(socket, 'readable');
    socket.end('late');
    const answer = await text(socket);
    expect(answer).toMatch(/^HTTP\/1\.1 101 Switching\r\nConnection: Upgrade\r\nUpgrade: own\r\nX-Trace-Id: /);
    expect(answer.split('\r\n\r\n')[1]).toBe('welcome,early,late');
  });

  test('an upgrade that the sandbox refuses gets the sandbox’s answer', async () => {
    await using it = await bed();
    const port = await inside((_request, response) =>
      response.writeHead(403, { 'content-type': 'application/json' }).end('{"no":1}'),
    );
    const url = it.url.replace('http', 'ws') + at(port);
    expect(await refusedHandshake(url)).toEqual({ status: 403, body: { no: 1 } });
  });

  test('a page of another origin cannot open an upgraded connection or a tunnel', async () => {
    await using it = await bed();
    const port = await inside(() => undefined);
    for (const origin of ['null', 'http://evil.example']) {
      expect(await refusedHandshake(it.url.replace('http', 'ws') + at(port), { origin })).toMatchObject({
        status: 403,
      });
      expect(await refusedHandshake(tunnel(it, port), { origin })).toMatchObject({ status: 403 });
    }
  });

  test('closing the service ends upgraded connections', async () => {
    await using it = await bed();
    const outer = http.createServer();
    new WebSocketServer({ server: outer });
    const port = await listening(outer);
    const caller = await Caller.open(it.url.replace('http', 'ws') + at(port));
    await it.app.close();
    expect(await caller.closed).toMatchObject({ code: 1006 });
  });
});

describe('the tunnel', () => {
  const echo = (socket: Socket) => void socket.pipe(socket);

  test('the tunnel carries bytes as binary messages in both directions', async () => {
    await using it = await bed();
    const caller = await Caller.open(tunnel(it, await insideTcp(echo)));
    caller.socket.send(Buffer.from([0, 1]));
    caller.socket.send(Buffer.from([255]));
    await vi.waitFor(() => expect(Buffer.concat(caller.messages)).toEqual(Buffer.from([0, 1, 255])));
    caller.socket.close();
    await caller.closed;
    await vi.waitFor(() => expect(sockets.size).toBe(0));
  });

  test('the tunnel passes the client’s end on; the sandbox’s end closes the tunnel', async () => {
    await using it = await bed();
    const port = await insideTcp(async socket => void socket.end(`got ${await everything(socket)}`));
    const caller = await Caller.open(tunnel(it, port));
    caller.socket.send(Buffer.from('abc'));
    caller.socket.send('{"type":"end"}');
    expect(await caller.closed).toEqual({ code: 1000, reason: '' });
    expect(Buffer.concat(caller.messages).toString()).toBe('got abc');
  });

  test('the tunnel with half_close passes the sandbox’s end on as a message, and the client can continue to send', async () => {
    await using it = await bed();
    const got = deferred<string>();
    const port = await insideTcp(async socket => {
      socket.end('bye');
      got.resolve(await everything(socket));
    });
    const caller = await Caller.open(tunnel(it, port, '&half_close=true'));
    await vi.waitFor(() => expect(caller.texts).toEqual(['{"type":"end"}']));
    caller.socket.send(Buffer.from('last words'));
    caller.socket.send('{"type":"end"}');
    expect(await got.promise).toBe('last words');
    expect(await caller.closed).toMatchObject({ code: 1000 });
  });

  test('the tunnel closes with 1011 when the connection in the sandbox breaks', async () => {
    await using it = await bed();
    const port = await insideTcp(socket => void socket.once('data', () => socket.resetAndDestroy()));
    const caller = await Caller.open(tunnel(it, port));
    caller.socket.send(Buffer.from('x'));
    expect(await caller.closed).toMatchObject({ code: 1011 });
  });

  test('the tunnel closes with 1008 when a text message is not an end', async () => {
    await using it = await bed();
    const caller = await Caller.open(tunnel(it, await insideTcp(echo)));
    caller.socket.send('hello');
    expect(await caller.closed).toEqual({ code: 1008, reason: 'a text message must be {"type":"end"}' });
    await vi.waitFor(() => expect(sockets.size).toBe(0));
  });

  test('the tunnel closes with 1009 when a message is too large', async () => {
    await using it = await bed();
    const caller = await Caller.open(tunnel(it, await insideTcp(echo)));
    caller.socket.send(Buffer.alloc(1024 * 1024 + 1));
    expect(await caller.closed).toMatchObject({ code: 1009 });
  });

  test('the tunnel closes with 1001 when the service stops', async () => {
    await using it = await bed();
    const caller = await Caller.open(tunnel(it, await insideTcp(echo)));
    await it.app.close();
    expect(await caller.closed).toEqual({ code: 1001, reason: 'the service stops' });
  });

  test('the tunnel answers 426 to a request without an upgrade', async () => {
    await using it = await bed();
    const answer = await it.send({ method: 'GET', url: `/serverless/v1/ws?instance=${AGENT.id}&port=80` });
    expect(answer).toMatchObject({ status: 426 });
  });
});
