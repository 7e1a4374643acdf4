import { createHash, randomBytes } from 'node:crypto';
import { once } from 'node:events';
import { statSync } from 'node:fs';
import http from 'node:http';
import net from 'node:net';
import { join } from 'node:path';
import { Readable } from 'node:stream';
import { afterEach, beforeEach, describe, expect, test, vi } from 'vitest';
import { type WebSocket, WebSocketServer } from 'ws';
import { ClusterWorld, head, URN } from '../../test/http/cluster-world.ts';
import { deferred } from '../../test/http/deferred.ts';
import { AGENT, at } from '../../test/http/passthrough-bed.ts';
import { Caller, refusedHandshake } from '../../test/http/web-socket.ts';
import { MEBIBYTE } from '../core/units.ts';
import type { Call, CallOutcome } from '../runtime/call.ts';

const LARGE = 64 * MEBIBYTE;
/** More than all buffers of the way hold. */
const ECHOED = 24 * MEBIBYTE;
const WAIT_MS = 20_000;
const agent = (path: string) => `/api/agent/${AGENT.id}${path}`;
const ok: CallOutcome = { ok: true, data: Buffer.from('1'), runMicros: 1 };

let world: ClusterWorld;
beforeEach(async () => {
  world = await ClusterWorld.start();
});
afterEach(() => world[Symbol.asyncDispose]());

const ws = () => world.urls.forwarded.replace('http', 'ws');
const portOf = (url: string) => Number(new URL(url).port);

/** Makes a stream that produces its bytes on demand, and their hash. */
function made(bytes: number): { readonly stream: Readable; readonly hash: () => string } {
  const hash = createHash('sha256');
  const block = randomBytes(MEBIBYTE);
  let left = bytes;
  const stream = new Readable({
    read() {
      if (left <= 0) {
        this.push(null);
        return;
      }
      const chunk = block.subarray(0, Math.min(left, block.length));
      left -= chunk.length;
      hash.update(chunk);
      this.push(chunk);
    },
  });
  return { stream, hash: () => hash.digest('hex') };
}

async function hashOf(stream: AsyncIterable<Buffer>): Promise<string> {
  const hash = createHash('sha256');
  for await (const chunk of stream) hash.update(chunk);
  return hash.digest('hex');
}

describe('forwarding of large bodies', () => {
  test.each([
    ['of a known length', { 'Content-Length': ECHOED }],
    ['in chunks', { 'Transfer-Encoding': 'chunked' }],
  ])('a body of 24 MiB is forwarded and returned unchanged, %s', async (_, headers) => {
    const port = await world.ports.http((request, response) => void request.pipe(response));
    const path = world.urls.forwarded + at(port, '/echo');
    const request = http.request(path, { method: 'POST', headers, agent: false });
    const { stream, hash } = made(ECHOED);
    stream.pipe(request);
    const [answer] = (await once(request, 'response')) as [http.IncomingMessage];
    expect(await hashOf(answer)).toBe(hash());
  });

  test('a large request body is sent no faster than the receiver reads', async () => {
    const held: http.IncomingMessage[] = [];
    const port = await world.ports.http(request => void held.push(request));
    const { stream } = made(4 * LARGE);
    let sent = 0;
    stream.on('data', (chunk: Buffer) => {
      sent += chunk.length;
    });
    const request = http.request(world.urls.forwarded + at(port, '/'), { method: 'PUT', agent: false });
    request.on('error', () => undefined);
    stream.pipe(request);
    await vi.waitFor(() => expect(held).toHaveLength(1), WAIT_MS);
    await settled(() => sent);
    // Only the buffers of the kernel and of both replicas have filled.
    expect(sent).toBeLessThan(LARGE);
    // The end of the connection arrives immediately, however many bytes are in flight.
    const answered = once(request, 'response');
    held[0]?.destroy();
    const [answer] = (await answered) as [http.IncomingMessage];
    expect(answer.statusCode).toBe(502);
    request.destroy();
  });

  test('a large answer is sent no faster than the caller reads', async () => {
    let sent = 0;
    const port = await world.ports.http((_request, response) => {
      const { stream } = made(4 * LARGE);
      stream.on('data', (chunk: Buffer) => {
        sent += chunk.length;
      });
      stream.pipe(response);
    });
    const request = http.get(world.urls.forwarded + at(port, '/'), { agent: false });
    const [answer] = (await once(request, 'response')) as [http.IncomingMessage];
    answer.pause();
    await settled(() => sent);
    expect(sent).toBeLessThan(LARGE);
    answer.destroy();
  });

  test('a file is uploaded and downloaded through another replica', async () => {
    const content = randomBytes(5 * MEBIBYTE);
    const form = new FormData();
    form.append('path', '/up.bin');
    form.append('file', new Blob([content]), 'up.bin');
    const sent = await fetch(world.urls.forwarded + agent('/files/upload'), { method: 'POST', body: form });
    expect(await sent.json()).toMatchObject({ code: 200, size: content.length });
    expect(statSync(join(world.root, 'up.bin')).size).toBe(content.length);
    const answer = await fetch(`${world.urls.forwarded}${agent('/files/download')}?path=/up.bin`);
    expect(Buffer.from(await answer.arrayBuffer()).equals(content)).toBe(true);
  });
});

/** Resolves when the number from `read` has not changed for a while. */
async function settled(read: () => number): Promise<void> {
  let before = -1;
  await vi.waitFor(
    () => {
      const now = read();
      const isStill = now === before && now > 0;
      before = now;
      expect(isStill).toBe(true);
    },
    { timeout: WAIT_MS, interval: 500 },
  );
}

describe('forwarding of WebSockets', () => {
  test('a forwarded terminal passes input, output and the return code', async () => {
    const command = encodeURIComponent(JSON.stringify(['sh', '-c', 'cat; exit 3']));
    const caller = await Caller.open(`${ws()}${agent('/exec')}?command=${command}`);
    caller.socket.send(Buffer.from('hällo'));
    caller.socket.send('{"type":"stdin-end"}');
    expect(await caller.closed).toEqual({ code: 1000, reason: '' });
    expect(caller.output(1)).toBe('hällo');
    expect(caller.texts).toEqual(['{"type":"exit","returncode":3}']);
    expect(world.cluster.first.results).toEqual(['answered']);
  });

  test('leaving a terminal ends its command on the other replica', async () => {
    const caller = await Caller.open(`${ws()}${agent('/exec')}?command=${encodeURIComponent('["sleep","600"]')}`);
    await vi.waitFor(() => expect(world.inside.running).toBe(1), WAIT_MS);
    caller.socket.terminate();
    await vi.waitFor(() => expect(world.inside.running).toBe(0), WAIT_MS);
  });

  test('a refusal of a handshake by the other replica reaches the client unchanged', async () => {
    const refused = await refusedHandshake(`${ws()}/api/agent/nobody/exec?command=true`);
    expect(refused).toMatchObject({ status: 404, body: { message: 'instance not found: nobody' } });
  });

  test('the forwarded tail of a job is complete and closes with 1000', async () => {
    const caller = await Caller.open(`${ws()}/api/jobs/long/logs/tail`);
    expect(await caller.closed).toMatchObject({ code: 1000 });
    expect(caller.texts.join('').split('\n')).toHaveLength(5_001);
  });

  test('a WebSocket with compression is forwarded to a server in the sandbox', async () => {
    const server = http.createServer();
    const sockets = new WebSocketServer({ server, perMessageDeflate: true });
    sockets.on('connection', (socket: WebSocket) =>
      socket.on('message', (data, isBinary) => socket.send(data, { binary: isBinary })),
    );
    const port = await world.ports.listen(server);
    const caller = await Caller.open(`${ws()}${at(port, '/chat')}`, { perMessageDeflate: true });
    const large = randomBytes(900_000);
    for (let count = 0; count < 3; count += 1) caller.socket.send(large);
    caller.socket.send('end');
    await vi.waitFor(() => expect(caller.texts).toEqual(['end']), WAIT_MS);
    expect(caller.messages.map(message => message.equals(large))).toEqual([true, true, true]);
    expect(caller.socket.extensions).toContain('permessage-deflate');
    caller.socket.close(4321, 'enough');
    expect(await caller.closed).toEqual({ code: 4321, reason: 'enough' });
    sockets.close();
  });

  test('a forwarded tunnel carries bytes in both directions after one side has ended', async () => {
    const port = await world.ports.tcp(socket => void socket.pipe(socket));
    const caller = await Caller.open(`${ws()}/serverless/v1/ws?instance=${AGENT.id}&port=${port}&half_close=true`);
    caller.socket.send(Buffer.from('all that is said'));
    caller.socket.send('{"type":"end"}');
    expect(await caller.closed).toMatchObject({ code: 1000 });
    expect(Buffer.concat(caller.messages).toString()).toBe('all that is said');
    expect(caller.texts).toEqual(['{"type":"end"}']);
  });

  test('a forwarded upgrade keeps bytes after the head, and carries bytes after one side has ended', async () => {
    const port = await world.ports.tcp(socket => {
      let seen = '';
      socket.on('data', chunk => {
        if (seen === '') socket.write('HTTP/1.1 101 Switching\r\nConnection: Upgrade\r\nUpgrade: own\r\n\r\nfirst ');
        seen += chunk;
      });
      socket.on('end', () => socket.end(`seen ${seen.split('\r\n\r\n')[1]}`));
    });
    const socket = net.connect({ port: portOf(world.urls.forwarded), host: '127.0.0.1', allowHalfOpen: true });
    socket.write(
      `GET ${at(port, '/')} HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: own\r\n\r\nbehind`,
    );
    let heard = '';
    socket.on('data', chunk => {
      heard += chunk;
    });
    await vi.waitFor(() => expect(heard).toContain('first '), WAIT_MS);
    socket.end(' and last');
    await once(socket, 'end');
    expect(heard).toMatch(/^HTTP\/1.1 101 Switching\r\n[\s\S]*\r\n\r\nfirst seen behind and last$/);
  });

  test('a connection of an upgrade that was refused carries no further request', async () => {
    for (let count = 0; count < 5; count += 1) {
      await refusedHandshake(`${ws()}/api/agent/nobody/exec?command=true`);
      const answer = await fetch(world.urls.forwarded + agent('/invoke'), { method: 'POST', body: '1' });
      expect(answer.status).toBe(200);
    }
  });
});

describe('a client that disconnects', () => {
  test.each([
    ['a small body', '{"a":1}'],
    ['a large one', JSON.stringify('x'.repeat(200_000))],
  ])('a caller that leaves aborts its call with %s on the other replica', async (_, body) => {
    const started = deferred<Call>();
    world.cluster.owner.instances.onInvoke = call => {
      started.resolve(call);
      return new Promise(() => undefined);
    };
    const request = http.request(world.urls.forwarded + agent('/invoke'), { method: 'POST', agent: false });
    request.on('error', () => undefined);
    request.end(body);
    const call = await started.promise;
    expect(call.signal?.aborted).toBe(false);
    request.destroy();
    await vi.waitFor(() => expect(call.signal?.aborted).toBe(true), WAIT_MS);
    await vi.waitFor(() => expect(world.cluster.first.results).toEqual(['caller_left']), WAIT_MS);
  });

  test('a caller that leaves in the middle of its body never reaches the handler', async () => {
    const socket = net.connect(portOf(world.urls.forwarded), '127.0.0.1');
    socket.write(`${head('POST', agent('/invoke'), [['Content-Length', '100000']])}"half`);
    await vi.waitFor(() => expect(world.cluster.owner.locator.asked).toHaveLength(1), WAIT_MS);
    socket.destroy();
    await vi.waitFor(() => expect(world.cluster.first.results).toEqual(['caller_left']), WAIT_MS);
    expect(world.cluster.owner.instances.calls).toEqual([]);
  });

  test('a caller that leaves ends its followed log on the other replica', async () => {
    const ended = deferred();
    world.cluster.owner.instances.onLogs = async function* (_wanted, signal) {
      yield Buffer.from('first\n');
      await once(signal, 'abort');
      ended.resolve();
    };
    const request = http.get(`${world.urls.forwarded}${agent('/logs')}?follow=true`, { agent: false });
    const [answer] = (await once(request, 'response')) as [http.IncomingMessage];
    expect(String((await once(answer, 'data'))[0])).toBe('first\n');
    answer.destroy();
    await ended.promise;
  });
});

describe('the end of the other replica', () => {
  test('a caller gets 503 at once when its replica disappears, and the call is not sent again', async () => {
    const { owner, first } = world.cluster;
    const started = deferred();
    owner.instances.onInvoke = () => {
      started.resolve();
      return new Promise(() => undefined);
    };
    const answer = fetch(first.url + agent('/invoke'), { method: 'POST', body: '{}' });
    await started.promise;
    owner.listener.destroy();
    const { status, headers } = await answer;
    expect(status).toBe(503);
    expect(headers.get('retry-after')).toBe('1');
    expect(await (await answer).json()).toMatchObject({ message: expect.stringContaining('is not known') });
    expect(owner.instances.calls).toHaveLength(1);
    expect(first.results).toEqual(['broken']);
  });

  test('a caller gets 503 when the address of its replica is dropped while the connections are silent', async () => {
    const { owner, first } = world.cluster;
    const started = deferred();
    owner.instances.onInvoke = () => {
      started.resolve();
      return new Promise(() => undefined);
    };
    const url = `/serverless/v1/functions/${URN}/invocations`;
    const answer = fetch(first.url + agent('/invoke'), { method: 'POST', body: '{}' });
    await started.promise;
    first.peers.drop(owner.target.address);
    expect((await answer).status).toBe(503);
    // The next call opens a new connection.
    expect((await fetch(first.url + url, { method: 'POST', body: '{}' })).status).toBe(200);
  });

  test('the caller’s connection breaks when the other replica ends in the middle of an answer', async () => {
    const { owner, first } = world.cluster;
    owner.instances.onLogs = async function* (_wanted, signal) {
      yield Buffer.from('first\n');
      await once(signal, 'abort');
    };
    const request = http.get(`${first.url}${agent('/logs')}?follow=true`, { agent: false });
    const [answer] = (await once(request, 'response')) as [http.IncomingMessage];
    const failed = once(answer, 'error');
    answer.resume();
    await once(answer, 'data');
    owner.listener.destroy();
    await failed;
    expect(answer.complete).toBe(false);
    expect(first.results).toEqual(['broken']);
  });

  test('a replica that closes answers its running calls, and then its connections end', async () => {
    const { owner, first } = world.cluster;
    const open = deferred<CallOutcome>();
    const started = deferred();
    owner.instances.onInvoke = () => {
      started.resolve();
      return open.promise;
    };
    const answer = fetch(first.url + agent('/invoke'), { method: 'POST', body: '{}' });
    await started.promise;
    const closed = Promise.all([owner.listener.close(), owner.app.close()]);
    open.resolve(ok);
    expect((await answer).status).toBe(200);
    await closed;
    await vi.waitFor(() => expect(first.peers.openConnections).toBe(0), WAIT_MS);
  });
});

describe('a target that has moved', () => {
  const calls: readonly (readonly [string, () => Promise<number>])[] = [
    ['a small call', () => statusOf('POST', agent('/invoke'), '{}')],
    ['a call by the router', () => statusOf('POST', agent('/invoke?x'), '{}')],
    [
      'a long body, of which nothing was read',
      () => statusOf('POST', agent('/invoke'), JSON.stringify('x'.repeat(300_000))),
    ],
    ['a read', () => statusOf('GET', agent('/logs'))],
  ];
  const statusOf = async (method: string, path: string, body?: string) => {
    const answer = await fetch(world.urls.forwarded + path, { method, ...(body === undefined ? {} : { body }) });
    await answer.text();
    return answer.status;
  };

  test.each(calls)('a replica looks up the target again when the target has moved, for %s', async (_, ask) => {
    const { owner, first } = world.cluster;
    // The first address is right, but a replica with another id answers there now.
    first.locator.target = { ...owner.target, nodeId: 'node-before' };
    first.locator.refreshed = owner.target;
    expect(await ask()).toBe(200);
    expect(first.results).toEqual(['not_here', 'answered']);
  });

  test.each(calls)(
    'a replica that does not own the target refuses %s before anything runs, and forwards nothing',
    async (_, ask) => {
      const { owner, first } = world.cluster;
      owner.locator.target = { nodeId: 'node-c', address: '127.0.0.1:1' };
      expect(await ask()).toBe(503);
      expect(owner.instances.calls).toEqual([]);
      expect(owner.results).toEqual([]);
      // The replica looked up the target again and retried until its time limit.
      expect(new Set(first.locator.asked.slice(1).map(({ isAnew }) => isAnew))).toEqual(new Set([true]));
      expect(first.results).toEqual(Array(first.locator.asked.length).fill('not_here'));
    },
  );

  test('a WebSocket finds a target that has moved, and is answered 503 when no replica has the target', async () => {
    const { owner, first } = world.cluster;
    first.locator.target = { ...owner.target, nodeId: 'node-before' };
    first.locator.refreshed = owner.target;
    const caller = await Caller.open(`${ws()}${agent('/exec')}?command=true`);
    expect(await caller.closed).toMatchObject({ code: 1000 });
    owner.locator.target = { nodeId: 'node-c', address: '127.0.0.1:1' };
    expect(await refusedHandshake(`${ws()}${agent('/exec')}?command=true`)).toMatchObject({ status: 503 });
  });

  test('a request for a resource without an owner is answered 503', async () => {
    const { owner, first } = world.cluster;
    first.locator.target = { ...owner.target, nodeId: 'node-before' };
    first.locator.refreshed = null;
    expect(await calls[0]?.[1]()).toBe(503);
  });
});
