import { once } from 'node:events';
import { createServer, type RequestListener, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import { afterEach, expect, test } from 'vitest';
import { type WebSocket, WebSocketServer } from 'ws';
import { Agent } from './agent.ts';
import { Connection } from './connection.ts';
import { RookeryError } from './error.ts';
import { Events } from './events.ts';
import type { Agent as AgentRecord } from './generated.ts';

let server: Server | undefined;
afterEach(() => {
  server?.close();
  server?.closeAllConnections();
});

async function connectionTo(service: RequestListener, token = 'a.b.c'): Promise<Connection> {
  server = createServer(service).listen(0, '127.0.0.1');
  await once(server, 'listening');
  return new Connection({ url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`, token, retries: 0 }, {});
}

const agentOf = (connection: Connection) => new Agent(connection, { instance_id: 'x' } as AgentRecord);

/** Begins an answer, and breaks it off once the first of it was read. */
function brokenAnswer(first: string) {
  let end: () => void = () => undefined;
  const service: RequestListener = (_, answer) => {
    answer.write(first);
    end = () => answer.destroy();
  };
  return { service, end: () => end() };
}

test('a stream that breaks off fails as everything does: events, lines, files', async () => {
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

test('a stream that its caller aborts fails with the reason of the caller', async () => {
  const { service } = brokenAnswer('a line\n');
  const ends = new AbortController();
  const lines = agentOf(await connectionTo(service)).follow({ signal: ends.signal });
  await lines.next();
  ends.abort(new Error('enough'));
  await expect(lines.next()).rejects.toThrow('enough');
});

test('a file that nobody reads keeps no connection', async () => {
  let told: () => void = () => undefined;
  const closed = new Promise<void>(resolve => {
    told = resolve;
  });
  const connection = await connectionTo((_, answer) => {
    answer.write('half');
    answer.once('close', told);
  });
  (await agentOf(connection).files.readStream('/half')).destroy();
  await closed;
});

test('a token that no header can have is in no error', async () => {
  const failure = await agentOf(await connectionTo(() => undefined, 'secret\nsecret'))
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

test('a reader of a terminal may leave its loop and come back for the rest', async () => {
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

test('a terminal that its owner closes has not broken off; writing to it says that it is closed', async () => {
  const terminal = await terminalWith(() => undefined);
  terminal.close();
  expect(await terminal.wait()).toBeNull();
  await expect(terminal.write('more')).rejects.toThrow(/^the terminal is closed: /);
});

test('a terminal that is aborted fails with the reason of the caller', async () => {
  const ends = new AbortController();
  const terminal = await terminalWith(() => undefined, ends.signal);
  ends.abort(new Error('enough'));
  await expect(terminal.wait()).rejects.toThrow('enough');
});
