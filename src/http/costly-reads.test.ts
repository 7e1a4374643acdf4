import { once } from 'node:events';
import net from 'node:net';
import { expect, test, vi } from 'vitest';
import { SPEC, testFrontend } from '../../test/http/frontend.ts';
import { newInstance } from '../../test/http/memory-instances.ts';
import { LIMITS } from '../core/limits.ts';

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
  ['a log that is followed', '?follow=true', LIMITS.openFollowers.perTenant],
])('above the bound of a tenant a read that costs much is 429 with Retry-After, on %s', async (_, query, bound) => {
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
    // Other tenants and other routes have their own.
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

test('reads that waited behind another one give their room back when their connection is gone', async () => {
  await using frontend = testFrontend();
  frontend.instances.put(AGENT);
  const open = new Set<AbortSignal>();
  frontend.instances.onLogs = async function* ({ follow }: { readonly follow: boolean }, signal: AbortSignal) {
    open.add(signal);
    signal.addEventListener('abort', () => open.delete(signal));
    yield Buffer.from('a line\n');
    if (follow) await new Promise(resolve => signal.addEventListener('abort', resolve));
  } as never;
  const url = await frontend.listen();
  const path = `/api/agent/${AGENT.id}/logs`;
  const bound = LIMITS.openScans.perTenant;
  const socket = await ask(url, `${path}?follow=true`, ...Array<string>(bound).fill(path));
  try {
    await vi.waitFor(() => expect(open.size).toBe(bound + 1), 20_000);
    expect((await fetch(url + path)).status).toBe(429);
  } finally {
    socket.destroy();
  }
  await vi.waitFor(() => expect(open.size).toBe(0), 20_000);
  const next = await fetch(url + path);
  expect({ status: next.status, text: await next.text() }).toEqual({ status: 200, text: 'a line\n' });
});
