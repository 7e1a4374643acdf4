import { once } from 'node:events';
import http from 'node:http';
import net, { type AddressInfo } from 'node:net';
import tls, { type ConnectionOptions } from 'node:tls';
import { describe, expect, test, vi } from 'vitest';
import { SECRET, TestCluster, testReplica } from '../../test/http/cluster-bed.ts';
import { deferred } from '../../test/http/deferred.ts';
import { AGENT } from '../../test/http/passthrough-bed.ts';
import { authority } from '../../test/parts/certificates.ts';
import type { CallOutcome } from '../runtime/call.ts';
import { splitAddress } from './peers.ts';
import { type ClusterIdentity, clusterTls } from './tls.ts';

const WAIT_MS = 20_000;
const { MAX_CONNECTIONS } = vi.hoisted(() => ({ MAX_CONNECTIONS: 20 }));

vi.mock('../core/limits.ts', async original => {
  const { LIMITS } = await original<typeof import('../core/limits.ts')>();
  return { LIMITS: { ...LIMITS, peerConnections: MAX_CONNECTIONS } };
});

const one = authority('one');
const two = authority('two');
const ofTls = (by: typeof one, ca = by.cert): ClusterIdentity => ({ kind: 'tls', ...by.issue('replica'), ca });
const other: ClusterIdentity = { kind: 'secret', secret: Buffer.alloc(32, 'another secret') };

/** Returns the first answer on a connection, or a text that begins with "refused". */
async function connect(address: string, options: ConnectionOptions): Promise<string> {
  const socket = tls.connect({ ...splitAddress(address), ...options });
  socket.on('secureConnect', () => socket.write('GET /cluster/health HTTP/1.1\r\n\r\n'));
  return await new Promise(resolve => {
    socket.once('data', data => {
      resolve(String(data));
      socket.destroy();
    });
    socket.once('error', (error: NodeJS.ErrnoException) => resolve(`refused: ${error.code}`));
    socket.once('close', () => resolve('refused: it hung up'));
  });
}

describe.each([
  ['a secret', SECRET],
  ['mutual TLS', ofTls(one)],
])('replicas with %s', (_, identity) => {
  test('replicas with %s forward to each other over TLS 1.3', async () => {
    await using cluster = await TestCluster.start({ identity });
    cluster.owner.instances.put(AGENT);
    const answer = await fetch(`${cluster.first.url}/api/agent/${AGENT.id}/invoke`, {
      method: 'POST',
      body: '{"a":1}',
    });
    expect(await answer.json()).toEqual({ code: 200, data: { a: 1 }, message: '' });
    const socket = tls.connect({ ...splitAddress(cluster.owner.target.address), ...clusterTls(identity, 'n').client });
    await once(socket, 'secureConnect');
    expect(socket.getProtocol()).toBe('TLSv1.3');
    // With ephemeral keys a secret that leaks later does not decrypt recorded traffic.
    expect(socket.getEphemeralKeyInfo()).toMatchObject({ type: 'ECDH' });
    socket.destroy();
  });

  test('replicas exchange their identities and versions', async () => {
    await using cluster = await TestCluster.start({ identity });
    expect(await cluster.first.peers.read(cluster.owner.target.address, '/cluster/health', 10_000)).toEqual({
      status: 'ok',
      nodeId: 'node-b',
      version: '0.0.0',
    });
  });
});

describe('a peer without valid credentials', () => {
  const strangers: readonly (readonly [string, ClusterIdentity, () => ConnectionOptions])[] = [
    ['with another secret', SECRET, () => clusterTls(other, 'node-a').client],
    ['with a certificate in place of the secret', SECRET, () => clusterTls(ofTls(one), 'node-a').client],
    ['without a secret or a certificate', SECRET, () => ({ rejectUnauthorized: false })],
    ['of another authority', ofTls(one), () => clusterTls(ofTls(two, one.cert), 'node-a').client],
    ['without a certificate', ofTls(one), () => ({ rejectUnauthorized: false })],
    ['with a self-signed certificate', ofTls(one), () => ({ ...two.issue('x'), rejectUnauthorized: false })],
    ['with a secret in place of a certificate', ofTls(one), () => clusterTls(SECRET, 'node-a').client],
    [
      'of TLS 1.2',
      SECRET,
      () => ({ ...clusterTls(SECRET, 'a').client, minVersion: 'TLSv1.2', maxVersion: 'TLSv1.2', ciphers: 'PSK' }),
    ],
    ['with an invalid node name', SECRET, () => ({ ...clusterTls(SECRET, 'a b\r\n').client })],
  ];

  test.each(strangers)('a peer is refused: %s', async (_, identity, options) => {
    await using replica = await testReplica('node-b', { identity });
    expect(await connect(replica.target.address, options())).toMatch(/^refused/);
    // The listener continues to serve other replicas.
    expect(await replica.peers.read(replica.target.address, '/cluster/health', 10_000)).toMatchObject({
      nodeId: 'node-b',
    });
  });

  test('a peer without TLS is refused, with one log message for many connections', async () => {
    await using replica = await testReplica('node-b');
    const { host, port } = splitAddress(replica.target.address);
    for (let at = 0; at < 5; at += 1) {
      const socket = net.connect(port, host);
      socket.on('error', () => undefined);
      socket.write('GET /cluster/health HTTP/1.1\r\nHost: x\r\n\r\n');
      socket.resume();
      await once(socket, 'close');
    }
    await connect(replica.target.address, clusterTls(other, 'node-a').client);
    const refused = replica.lines.filter(({ text }) => text.includes('cluster listener refused'));
    expect(refused).toHaveLength(1);
    expect(refused[0]?.fields).toMatchObject({ from: '127.0.0.1', reason: expect.any(String) });
  });

  test('an impostor at the address of a replica receives nothing', async () => {
    const impostor = tls.createServer(clusterTls(other, 'node-b').server);
    const received: Buffer[] = [];
    impostor.on('secureConnection', socket => socket.on('data', chunk => received.push(chunk)));
    impostor.on('tlsClientError', () => undefined);
    await new Promise<void>(resolve => impostor.listen(0, '127.0.0.1', resolve));
    await using replica = await testReplica('node-a');
    const { port } = impostor.address() as AddressInfo;
    replica.locator.target = { nodeId: 'node-b', address: `127.0.0.1:${port}` };
    const answer = await fetch(`${replica.url}/api/agent/x/invoke`, { method: 'POST', body: '{"secret":1}' });
    expect(answer.status).toBe(503);
    expect(received).toEqual([]);
    await new Promise(resolve => impostor.close(resolve));
  });
});

describe('a replica that cannot be reached', () => {
  test.each([
    ['refuses the connection', async () => 1],
    ['does not finish its handshake', async (held: net.Server) => (held.address() as AddressInfo).port],
  ])('a call is answered 503 with Retry-After when the other replica %s', async (_, portOf) => {
    const held = net.createServer(socket => socket.on('error', () => undefined).resume());
    await new Promise<void>(resolve => held.listen(0, '127.0.0.1', resolve));
    await using replica = await testReplica('node-a');
    replica.locator.target = { nodeId: 'node-b', address: `127.0.0.1:${await portOf(held)}` };
    const answer = await fetch(`${replica.url}/api/agent/x/invoke`, { method: 'POST', body: '{}' });
    expect(answer.status).toBe(503);
    expect(answer.headers.get('retry-after')).toBe('1');
    expect(await answer.json()).toEqual({
      code: 503,
      message: expect.stringContaining('replica node-b cannot be reached'),
    });
    // The replica looked up the target again and retried until its time limit.
    expect(replica.locator.asked.slice(1).every(({ isAnew }) => isAnew)).toBe(true);
    expect(replica.results).toEqual(Array(replica.locator.asked.length).fill('unreachable'));
    held.close();
  });

  test('requests above the limit of connections to one replica are refused at once', async () => {
    await using cluster = await TestCluster.start();
    const { owner, first } = cluster;
    owner.instances.put(AGENT);
    const open = deferred<CallOutcome>();
    owner.instances.onInvoke = () => open.promise;
    const call = async () => {
      const request = http.request(`${first.url}/api/agent/${AGENT.id}/invoke`, { method: 'POST', agent: false });
      request.end('1');
      const [answer] = (await once(request, 'response')) as [http.IncomingMessage];
      answer.resume();
      return answer.statusCode;
    };
    const running = Array.from({ length: MAX_CONNECTIONS }, call);
    await vi.waitFor(() => expect(owner.instances.calls).toHaveLength(MAX_CONNECTIONS), WAIT_MS);
    expect(await call()).toBe(503);
    open.resolve({ ok: true, data: Buffer.from('1'), runMicros: 1 });
    expect(await Promise.all(running)).toEqual(Array.from({ length: MAX_CONNECTIONS }, () => 200));
    // An idle connection is reused.
    expect(await call()).toBe(200);
    expect(first.peers.openConnections).toBe(MAX_CONNECTIONS);
  });
});

/** Starts a replica that has the secret and reacts to any request with `answer`. */
async function saying(answer: (socket: tls.TLSSocket) => void) {
  const listener = tls.createServer(clusterTls(SECRET, 'node-b').server);
  listener.on('secureConnection', socket => {
    socket.on('error', () => undefined);
    socket.once('data', () => answer(socket));
  });
  await new Promise<void>(resolve => listener.listen(0, '127.0.0.1', resolve));
  const { port } = listener.address() as AddressInfo;
  return { nodeId: 'node-b', address: `127.0.0.1:${port}`, [Symbol.asyncDispose]: async () => void listener.close() };
}

describe('an invalid answer of a replica', () => {
  test.each([
    ['other bytes', (socket: tls.TLSSocket) => void socket.write('nothing that is HTTP\r\n\r\n')],
    ['half a head', (socket: tls.TLSSocket) => void socket.end('HTTP/1.1 200 O')],
    ['half a body', (socket: tls.TLSSocket) => void socket.end('HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhalf')],
    ['an upgrade', (socket: tls.TLSSocket) => void socket.write('HTTP/1.1 101 Yes\r\nUpgrade: x\r\n\r\n')],
  ])(
    'a call is answered 503 and not sent again, and its connection is not reused, when a replica answers with %s',
    async (_, answer) => {
      let asked = 0;
      await using peer = await saying(socket => {
        asked += 1;
        answer(socket);
      });
      await using replica = await testReplica('node-a');
      replica.locator.target = peer;
      for (let count = 1; count <= 2; count += 1) {
        const got = await fetch(`${replica.url}/api/agent/x/invoke`, { method: 'POST', body: '{}' });
        expect(got.status).toBe(503);
        expect(await got.json()).toMatchObject({ message: expect.stringContaining('is not known') });
        expect(asked).toBe(count);
      }
      expect(replica.results).toEqual(['broken', 'broken']);
      await vi.waitFor(() => expect(replica.peers.openConnections).toBe(0), WAIT_MS);
    },
  );

  test('an answer that breaks off behind its head breaks off for the caller', async () => {
    await using peer = await saying(socket => {
      socket.write('HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n');
      socket.write('no size\r\n');
    });
    await using replica = await testReplica('node-a');
    replica.locator.target = peer;
    const got = await fetch(`${replica.url}/api/agent/x/logs`);
    expect(got.status).toBe(200);
    await expect(got.text()).rejects.toThrow();
    expect(replica.results).toEqual(['broken']);
  });
});
