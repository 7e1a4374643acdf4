import { once } from 'node:events';
import net from 'node:net';
import { expect, test, vi } from 'vitest';
import { deferred } from '../../../test/http/deferred.ts';
import { SPEC, testFrontend } from '../../../test/http/frontend.ts';
import { newInstance } from '../../../test/http/memory-instances.ts';
import { notFound } from '../../core/error.ts';
import { LIMITS } from '../../core/limits.ts';

const AGENT = newInstance(SPEC);

const request = (path: string) => `GET ${path} HTTP/1.1\r\nHost: localhost\r\n\r\n`;

async function ask(url: string, ...paths: readonly string[]): Promise<net.Socket> {
  const socket = net.connect(Number(new URL(url).port), '127.0.0.1');
  socket.on('error', () => undefined);
  await once(socket, 'connect');
  socket.write(paths.map(request).join(''));
  return socket;
}

test.each([
  ['a whole log', '', LIMITS.openScans.perTenant],
  ['a followed log', '?follow=true', LIMITS.openFollowers.perTenant],
])('a costly read above the bound of its tenant is 429 with Retry-After, on %s', async (_, query, bound) => {
  await using frontend = testFrontend();
  frontend.instances.put(AGENT);
  const open = new Set<AbortSignal>();
  frontend.instances.onLogs = async function* (_request: unknown, signal: AbortSignal) {
    open.add(signal);
    signal.addEventListener('abort', () => open.delete(signal));
    yield Buffer.from('a line\n');
    await new Promise(resolve => signal.addEventListener('abort', resolve));
  } as never;
  const url = await frontend.listen();
  const path = `/api/agent/${AGENT.id}/logs`;
  const sockets = await Promise.all(Array.from({ length: bound }, () => ask(url, path + query)));
  try {
    await vi.waitFor(() => expect(open.size).toBe(bound), 20_000);
    const refused = await fetch(url + path + query);
    expect(refused.status).toBe(429);
    expect(refused.headers.get('retry-after')).toBe('1');
    expect(await refused.json()).toMatchObject({ code: 429 });
    // Other tenants and other routes have limits of their own.
    expect((await fetch(url + path + query, { headers: { tenantId: 'other' } })).status).toBe(404);
    expect((await fetch(`${url}/api/agent/${AGENT.id}`)).status).toBe(200);
    sockets[0]?.destroy();
    await vi.waitFor(() => expect(open.size).toBe(bound - 1), 20_000);
    const next = await ask(url, path + query);
    sockets.push(next);
    await vi.waitFor(() => expect(open.size).toBe(bound), 20_000);
  } finally {
    for (const socket of sockets) socket.destroy();
  }
});

test('pipelined reads count towards the limit only from their start, and not after their connection has ended', async () => {
  await using frontend = testFrontend();
  frontend.instances.put(AGENT);
  const open = new Set<AbortSignal>();
  let line = deferred();
  let begun = 0;
  frontend.instances.onLogs = async function* ({ follow }: { readonly follow: boolean }, signal: AbortSignal) {
    open.add(signal);
    begun += 1;
    signal.addEventListener('abort', () => {
      open.delete(signal);
      if (follow) line.resolve();
    });
    yield Buffer.alloc(16_384, 0x61);
    if (follow) await line.promise;
  } as never;
  const url = await frontend.listen();
  const path = `/api/agent/${AGENT.id}/logs`;
  const sent = 2 * LIMITS.openScans.perTenant;
  for (const isLost of [false, true]) {
    begun = 0;
    line = deferred();
    const socket = await ask(url, `${path}?follow=true`, ...Array<string>(sent).fill(path));
    try {
      let received = '';
      socket.setEncoding('latin1').on('data', (chunk: string) => {
        received += chunk;
      });
      await vi.waitFor(() => expect(received).toContain('aaa'), 20_000);
      const other = await fetch(url + path);
      expect({ status: other.status, bytes: (await other.text()).length }).toEqual({ status: 200, bytes: 16_384 });
      expect(begun).toBe(2);
      if (isLost) socket.destroy();
      else line.resolve();
      await vi.waitFor(() => expect(open.size).toBe(0), 20_000);
      await vi.waitFor(() => expect(begun).toBe(isLost ? 2 : sent + 2), 20_000);
      if (!isLost) await vi.waitFor(() => expect(received.match(/HTTP\/1.1 200/g)).toHaveLength(sent + 1), 20_000);
    } finally {
      socket.destroy();
    }
  }
});

test.each([
  ['a tree of files', 'files/list?path=/&follow=true'],
  ['a file', 'files/download?path=/a&follow=true'],
  ['a whole log', 'logs?follow='],
])('a read of %s counts as a scan, whatever its query says about following', async (_, read) => {
  await using frontend = testFrontend();
  frontend.instances.put(AGENT);
  let asked = 0;
  const leave = deferred();
  const wait = async () => {
    asked += 1;
    await leave.promise;
    throw notFound('it was let go');
  };
  frontend.instances.access = wait;
  frontend.instances.onLogs = async function* () {
    yield Buffer.from('a line\n');
    await wait();
  };
  const url = await frontend.listen();
  const path = `/api/agent/${AGENT.id}/${read}`;
  const answers: Promise<number>[] = [];
  try {
    for (let count = 0; count < LIMITS.openScans.perTenant; count++) {
      answers.push(fetch(url + path).then(async answer => answer.status));
    }
    await vi.waitFor(() => expect(asked).toBe(LIMITS.openScans.perTenant), 20_000);
    expect((await fetch(url + path)).status).toBe(429);
  } finally {
    leave.resolve();
    await Promise.allSettled(answers);
  }
});
