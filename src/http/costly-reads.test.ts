import { once } from 'node:events';
import net from 'node:net';
import { expect, test, vi } from 'vitest';
import { SPEC, testFrontend } from '../../test/http/frontend.ts';
import { newInstance } from '../../test/http/memory-instances.ts';
import { LIMITS } from '../core/limits.ts';

const AGENT = newInstance(SPEC);

async function ask(url: string, path: string): Promise<net.Socket> {
  const socket = net.connect(Number(new URL(url).port), '127.0.0.1');
  socket.on('error', () => undefined);
  await once(socket, 'connect');
  socket.write(`GET ${path} HTTP/1.1\r\nHost: localhost\r\n\r\n`);
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
