import { once } from 'node:events';
import net from 'node:net';
import { expect, test } from 'vitest';
import { deferred } from '../../test/http/deferred.ts';
import { SPEC, testFrontend } from '../../test/http/frontend.ts';
import { newInstance } from '../../test/http/memory-instances.ts';

async function connect(url: string): Promise<net.Socket> {
  const socket = net.connect(Number(new URL(url).port), '127.0.0.1');
  await once(socket, 'connect');
  return socket;
}

test('a connection that never sent a request does not hold a close back', async () => {
  const frontend = testFrontend();
  const url = await frontend.listen();
  const accepted = once(frontend.app.server, 'connection');
  const socket = await connect(url);
  await accepted;
  const ended = once(socket.resume(), 'close');
  await frontend.app.close();
  await ended;
});

test('a kept connection does not hold a close back', async () => {
  const frontend = testFrontend();
  const socket = await connect(await frontend.listen());
  socket.write('GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n');
  await once(socket, 'data');
  const ended = once(socket, 'close');
  await frontend.app.close();
  await ended;
});

test('a running request is answered, then its connection ends', async () => {
  const frontend = testFrontend();
  const { id } = frontend.instances.put(newInstance(SPEC));
  const started = deferred();
  const finish = deferred();
  frontend.instances.onInvoke = async call => {
    started.resolve();
    await finish.promise;
    return { ok: true, data: call.body, runMicros: 1 };
  };
  const socket = await connect(await frontend.listen());
  let received = '';
  socket.on('data', chunk => {
    received += chunk;
  });
  const ended = once(socket, 'close');
  socket.write(`POST /api/agent/${id}/invoke HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1\r\n\r\n7`);
  await started.promise;
  const closed = frontend.app.close();
  finish.resolve();
  await Promise.all([closed, ended]);
  expect(received).toContain('{"code":200,"data":7,"message":""}');
});
