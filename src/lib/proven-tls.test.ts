import { createHash, createHmac, randomBytes, X509Certificate } from 'node:crypto';
import { once } from 'node:events';
import net, { type AddressInfo } from 'node:net';
import { createServer, type Server, type TLSSocket, connect as tlsConnect } from 'node:tls';
import { afterEach, expect, test } from 'vitest';
import { authority } from '../../test/parts/certificates.ts';
import { connectProven, forgetProven, prepareProven } from './proven-tls.ts';

const WAIT_MS = 20_000;
const KEY = randomBytes(32).toString('hex');
const closing: (() => void)[] = [];

afterEach(() => {
  for (const close of closing.splice(0)) close();
});

interface Peer {
  readonly port: number;
  /** Bytes that followed a valid proof; null when the proof was wrong or the connection closed. */
  readonly heard: Promise<Buffer | null>;
  readonly count: { readonly seen: number; readonly open: number };
}

/** Counts the connections that `server` has accepted, and how many of them are open. */
function countOf(server: net.Server | Server): { seen: number; open: number } {
  const count = { seen: 0, open: 0 };
  server.on('connection', (socket: net.Socket) => {
    count.seen += 1;
    count.open += 1;
    socket.once('close', () => {
      count.open -= 1;
    });
  });
  return count;
}

/** Starts a peer that proves itself as `rookery_pod/proof.py` does, and records the bytes after the proof. */
async function peer(
  key: string,
  options: { readonly rest?: Buffer; readonly protocols?: string[] } = {},
): Promise<Peer> {
  const { cert, key: certKey } = authority('pods').issue('pod');
  const hash = createHash('sha256').update(new X509Certificate(cert).raw).digest();
  let hear: (heard: Buffer | null) => void = () => undefined;
  const heard = new Promise<Buffer | null>(resolve => {
    hear = resolve;
  });
  const { protocols } = options;
  const alpn = protocols && { ALPNProtocols: protocols };
  const server = createServer({ cert, key: certKey, minVersion: 'TLSv1.3', ...alpn }, socket => {
    let received = Buffer.alloc(0);
    const nonce = randomBytes(32);
    let hasAnswered = false;
    socket.on('error', () => undefined);
    socket.once('close', () => hear(null));
    socket.on('data', (chunk: Buffer) => {
      received = Buffer.concat([received, chunk]);
      if (received.length < 32) return;
      const prove = (role: string) =>
        createHmac('sha256', Buffer.from(key, 'hex'))
          .update(role)
          .update(Buffer.concat([received.subarray(0, 32), nonce, hash]))
          .digest();
      if (!hasAnswered) {
        hasAnswered = true;
        socket.write(Buffer.concat([nonce, prove('rookery pod server\0'), options.rest ?? Buffer.alloc(0)]));
      }
      if (received.length <= 64) return;
      hear(received.subarray(32, 64).equals(prove('rookery pod client\0')) ? received.subarray(64) : null);
    });
  });
  return { port: await listen(server), heard, count: countOf(server) };
}

async function listen(server: net.Server | Server): Promise<number> {
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  closing.push(() => server.close());
  return (server.address() as AddressInfo).port;
}

async function open(
  port: number,
  first?: Parameters<typeof connectProven>[2],
  signal = AbortSignal.timeout(WAIT_MS),
): Promise<TLSSocket> {
  const socket = await connectProven({ host: '127.0.0.1', port, key: KEY }, signal, first);
  closing.push(() => socket.destroy());
  return socket;
}

test('two sides with the same key connect, and the first bytes arrive with the proof', async () => {
  const { port, heard } = await peer(KEY);
  await open(port, Buffer.from('first'));
  expect((await heard)?.toString()).toBe('first');
});

test.each([
  ['the newest protocol', ['rookery-pod/3', 'rookery-pod/2'], 'rookery-pod/2'],
  ['no protocol, as the first version', undefined, ''],
])('the first bytes depend on the protocol that the peer offers: %s', async (_name, protocols, known) => {
  const { port, heard } = await peer(KEY, protocols && { protocols });
  await open(port, protocol => Buffer.from(`to ${protocol}`));
  expect((await heard)?.toString()).toBe(`to ${known}`);
});

test('a caller that rejects the peer’s protocol ends the connection without sending bytes', async () => {
  const { port, heard } = await peer(KEY);
  const refused = open(port, () => {
    throw new Error('too old');
  });
  await expect(refused).rejects.toThrow('too old');
  expect(await heard).toBe(null);
});

test('bytes that arrive directly after the peer’s proof are kept', async () => {
  const { port } = await peer(KEY, { rest: Buffer.from('early') });
  const socket = await open(port);
  const [chunk] = await once(socket.resume(), 'data');
  expect(String(chunk)).toBe('early');
});

test('a peer that does not know the key gets no proof and no byte of the caller', async () => {
  const { port, heard } = await peer(randomBytes(32).toString('hex'));
  await expect(open(port, Buffer.from('secret'))).rejects.toMatchObject({
    code: 'unavailable',
    message: `the manager at 127.0.0.1:${port} does not know the key of the pod: something else listens there`,
  });
  expect(await heard).toBe(null);
});

test('a relay between the caller and the peer is refused', async () => {
  const { port, heard } = await peer(KEY);
  const { cert, key } = authority('others').issue('pod');
  const between = createServer({ cert, key }, socket => {
    const onward = tlsConnect({ host: '127.0.0.1', port, rejectUnauthorized: false });
    for (const side of [socket, onward]) side.on('error', () => undefined);
    socket.pipe(onward).pipe(socket);
    closing.push(() => onward.destroy());
  });
  await expect(open(await listen(between), Buffer.from('secret'))).rejects.toMatchObject({
    message: expect.stringContaining('does not know the key of the pod'),
  });
  expect(await heard).toBe(null);
});

test.each([
  ['ends at once', (socket: net.Socket) => socket.destroy(), 'before it proved'],
  ['speaks another protocol', (socket: net.Socket) => socket.end('SSH-2.0-x\r\n'), 'cannot be reached'],
])('a peer that %s fails the connection at once', async (_what, answer, message) => {
  const port = await listen(net.createServer(socket => answer(socket.on('error', () => undefined))));
  await expect(open(port)).rejects.toMatchObject({ code: 'unavailable', message: expect.stringContaining(message) });
});

test('a connection to a silent peer is closed when the caller aborts', async () => {
  const sockets: net.Socket[] = [];
  const port = await listen(net.createServer(socket => sockets.push(socket.on('error', () => undefined).resume())));
  const caller = new AbortController();
  const opening = open(port, undefined, caller.signal);
  await expect.poll(() => sockets.length, { timeout: WAIT_MS }).toBe(1);
  caller.abort();
  await expect(opening).rejects.toMatchObject({ code: 'deadline_exceeded' });
  await expect.poll(() => sockets[0]?.destroyed, { timeout: WAIT_MS }).toBe(true);
});

test('a connection fails at once with ECONNREFUSED when no program listens', async () => {
  const server = net.createServer();
  const port = await listen(server);
  server.close();
  await expect(open(port)).rejects.toMatchObject({
    code: 'unavailable',
    message: expect.stringContaining('ECONNREFUSED'),
  });
});

test('a prepared connection sends nothing before its use, and a new one is opened when none is left', async () => {
  const { port, heard, count } = await peer(KEY);
  prepareProven({ host: '127.0.0.1', port, key: KEY }, 2);
  await expect.poll(() => count.seen).toBe(2);
  await open(port);
  await open(port, Buffer.from('first'));
  expect((await heard)?.toString()).toBe('first');
  expect(count.seen).toBe(2);
  await open(port);
  expect(count.seen).toBe(3);
});

test('forgetProven closes the prepared connections', async () => {
  const { port, count } = await peer(KEY);
  const other = { host: '127.0.0.1', port, key: KEY };
  prepareProven(other, 3);
  await expect.poll(() => count.seen).toBe(3);
  forgetProven(other);
  await expect.poll(() => count.open).toBe(0);
});

test('a prepared connection that failed is replaced, and the new one reports its error', async () => {
  const server = net.createServer(socket => socket.on('error', () => undefined).destroy());
  const port = await listen(server);
  const count = countOf(server);
  prepareProven({ host: '127.0.0.1', port, key: KEY }, 1);
  await expect.poll(() => count.open === 0 && count.seen === 1).toBe(true);
  await expect(open(port)).rejects.toMatchObject({ code: 'unavailable' });
});

test('a caller that aborts before the peer answers gets deadline_exceeded, prepared or not', async () => {
  const port = await listen(net.createServer(socket => void socket.on('error', () => undefined)));
  prepareProven({ host: '127.0.0.1', port, key: KEY }, 1);
  await expect(open(port, undefined, AbortSignal.timeout(50))).rejects.toMatchObject({ code: 'deadline_exceeded' });
});
