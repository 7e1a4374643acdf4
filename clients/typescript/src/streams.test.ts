import { once } from 'node:events';
import { createServer, type RequestListener, type Server } from 'node:http';
import type { AddressInfo, Socket } from 'node:net';
import { afterEach, expect, test } from 'vitest';
import { type WebSocket, WebSocketServer } from 'ws';
import { Agent } from './agent.ts';
import { Connection } from './connection.ts';
import { RookeryError } from './error.ts';
import { Events } from './events.ts';
import { NotFound, Timeout } from './failures.ts';
import type { Agent as AgentRecord } from './generated.ts';

let server: Server | undefined;
afterEach(() => {
  server?.close();
  server?.closeAllConnections();
});

async function connectionTo(service: RequestListener, retries = 0, token = 'a.b.c'): Promise<Connection> {
  server = createServer(service).listen(0, '127.0.0.1');
  await once(server, 'listening');
  return new Connection({ url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`, token, retries }, {});
}

const agentOf = (connection: Connection) => new Agent(connection, { instance_id: 'x' } as AgentRecord);

/** Makes a service that writes the start of an answer and closes the connection when `end` is called. */
function brokenAnswer(first: string) {
  let end: () => void = () => undefined;
  const service: RequestListener = (_, answer) => {
    answer.write(first);
    end = () => answer.destroy();
  };
  return { service, end: () => end() };
}

test('a stream of events, log lines or a file fails with RookeryError when its connection breaks', async () => {
  const events = brokenAnswer('event: ready\ndata: {}\n\n');
  const followed = new Events(await connectionTo(events.service)).follow();
  expect((await followed.next()).value).toMatchObject({ type: 'ready' });
  events.end();
  await expect(followed.next()).rejects.toThrow(RookeryError);
  server?.close();

  const log = brokenAnswer('a line\n');
  const lines = agentOf(await connectionTo(log.service)).follow();
  expect((await lines.next()).value).toBe('a line');
  log.end();
  await expect(lines.next()).rejects.toThrow(/^the connection broke: /);
  server?.close();

  const file = brokenAnswer('half');
  const content = (await agentOf(await connectionTo(file.service)).files.readStream('/half'))[Symbol.asyncIterator]();
  expect(String((await content.next()).value)).toBe('half');
  file.end();
  await expect(content.next()).rejects.toThrow(RookeryError);
});

test('a stream fails with the reason of the caller when the caller aborts', async () => {
  const { service } = brokenAnswer('a line\n');
  const ends = new AbortController();
  const lines = agentOf(await connectionTo(service)).follow({ signal: ends.signal });
  await lines.next();
  ends.abort(new Error('enough'));
  await expect(lines.next()).rejects.toThrow('enough');
});

test.each(['before the first read', 'while it waits for a chunk'])(
  'a file stream closes its connection when it is destroyed %s',
  async when => {
    let told: () => void = () => undefined;
    const closed = new Promise<void>(resolve => {
      told = resolve;
    });
    const connection = await connectionTo((_, answer) => {
      answer.write('half');
      answer.once('close', told);
    });
    const stream = await agentOf(connection).files.readStream('/half');
    const ended = new Promise(resolve => {
      stream.once('close', resolve);
    });
    if (when !== 'before the first read') await new Promise(resolve => stream.once('data', resolve));
    stream.destroy();
    await Promise.all([closed, ended]);
  },
);

test('an error leaves out the token when the token is not valid in a header', async () => {
  const failure = await agentOf(await connectionTo(() => undefined, 0, 'secret\nsecret'))
    .refresh()
    .catch(error => error);
  expect(failure).toBeInstanceOf(RookeryError);
  expect(failure.message).toBe('what is to be sent as authorization has characters that no header has');
});

async function terminalWith(onSocket: (socket: WebSocket) => void, signal?: AbortSignal) {
  const connection = await connectionTo(() => undefined);
  const sockets = new WebSocketServer({ server: server as Server });
  sockets.on('connection', onSocket);
  return await agentOf(connection).terminal({ tty: false, ...(signal === undefined ? {} : { signal }) });
}

test('a terminal yields the rest of its output when a reader leaves its loop and reads again', async () => {
  const terminal = await terminalWith(socket => {
    socket.send(Buffer.from('\x01ready'));
    socket.once('message', typed => {
      socket.send(Buffer.concat([Buffer.from([1]), typed as Buffer]));
      socket.send(JSON.stringify({ type: 'exit', returncode: 3 }));
      socket.close(1000);
    });
  });
  const read: string[] = [];
  for await (const { data } of terminal) {
    read.push(data.toString());
    break;
  }
  await terminal.write('typed');
  for await (const { data } of terminal) read.push(data.toString());
  expect({ read, returncode: terminal.returncode }).toEqual({ read: ['ready', 'typed'], returncode: 3 });
});

test('a terminal ends without an error, and refuses writes, when its owner closes it', async () => {
  const terminal = await terminalWith(() => undefined);
  terminal.close();
  expect(await terminal.wait()).toBeNull();
  await expect(terminal.write('more')).rejects.toThrow('the terminal is closed');
});

test('a terminal fails with the reason of the caller when the caller aborts', async () => {
  const ends = new AbortController();
  const terminal = await terminalWith(() => undefined, ends.signal);
  ends.abort(new Error('enough'));
  await expect(terminal.wait()).rejects.toThrow('enough');
});

test('a terminal fails with Timeout when the service does not answer its handshake', async () => {
  const connection = await connectionTo(() => undefined);
  const accepted: Socket[] = [];
  server?.on('upgrade', (_, socket) => void accepted.push(socket as Socket));
  await expect(agentOf(connection).terminal({ timeoutMs: 50 })).rejects.toBeInstanceOf(Timeout);
  const ends = new AbortController();
  const opening = agentOf(connection).terminal({ signal: ends.signal });
  server?.once('upgrade', () => ends.abort(new Error('enough')));
  await expect(opening).rejects.toThrow('enough');
  for (const socket of accepted) socket.destroy();
});

test('a terminal fails with the class of the answer when the service refuses it', async () => {
  const refusal = JSON.stringify({ code: 404, message: 'no such agent' });
  const connection = await connectionTo(() => undefined);
  server?.on('upgrade', (_, socket) => {
    socket.end(`HTTP/1.1 404 Not Found\r\nConnection: close\r\nContent-Length: ${refusal.length}\r\n\r\n${refusal}`);
  });
  const refused = await agentOf(connection)
    .terminal()
    .catch(error => error);
  expect(refused).toBeInstanceOf(NotFound);
  expect(refused).toMatchObject({ status: 404, message: 'no such agent' });
});

const event = (text: string) => `data: ${Buffer.from(text).toString('base64')}\n\n`;

test('a followed log resumes behind its last byte when the connection breaks', async () => {
  const streams = [event('one\ntw'), `:\n\n${event('one\n')}${event('two\nthree\n')}event: end\ndata:\n\n`];
  const accepted: (string | undefined)[] = [];
  const connection = await connectionTo(({ url = '', headers }, answer) => {
    if (!url.includes('follow=true')) {
      answer.end('one\ntwo\n');
      return;
    }
    accepted.push(headers.accept);
    const stream = streams.shift() ?? '';
    answer.writeHead(200, { 'content-type': 'text/event-stream' });
    answer.write(stream, () => (streams.length > 0 ? answer.destroy() : answer.end()));
  }, 2);
  const lines: string[] = [];
  for await (const line of agentOf(connection).follow()) lines.push(line);
  expect(lines).toEqual(['one', 'two', 'three']);
  expect(accepted).toEqual(['text/event-stream, text/plain', 'text/event-stream, text/plain']);
});

test('a signal that 30 concurrent calls share causes no warning of a leak', async () => {
  const warned: string[] = [];
  const onWarning = ({ name }: Error) => void warned.push(name);
  process.on('warning', onWarning);
  try {
    const { signal } = new AbortController();
    const agent = agentOf(await connectionTo((_, answer) => void answer.end('text')));
    await Promise.all(Array.from({ length: 30 }, () => agent.logs({ signal })));
    await new Promise(resolve => setImmediate(resolve));
  } finally {
    process.off('warning', onWarning);
  }
  expect(warned).toEqual([]);
});
