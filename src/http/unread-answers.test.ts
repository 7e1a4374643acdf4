import { once } from 'node:events';
import net from 'node:net';
import { expect, test, vi } from 'vitest';
import { SPEC, type TestFrontend, testFrontend } from '../../test/http/frontend.ts';
import { newInstance } from '../../test/http/memory-instances.ts';

const MEBIBYTE = 1024 * 1024;
const BOUNDS = {
  maxConnections: 1000,
  maxConnectionsOfAddress: 1000,
  maxBodyBytes: 64 * MEBIBYTE,
  bodyIdleMs: 60_000,
  maxAnswerBytes: 1024 * MEBIBYTE,
  answerIdleMs: 60_000,
};
const AGENT = newInstance(SPEC);
const LARGE = Buffer.from(JSON.stringify('x'.repeat(6 * MEBIBYTE)));

function answering(frontend: TestFrontend, data: Buffer): void {
  frontend.instances.put(AGENT);
  frontend.instances.onInvoke = async () => ({ ok: true, data, runMicros: 1 });
}

/** Asks, and reads nothing of the answer. */
async function askAndRest(url: string, path: string, method = 'POST'): Promise<net.Socket> {
  const socket = net.connect(Number(new URL(url).port), '127.0.0.1').pause();
  socket.on('error', () => undefined);
  await once(socket, 'connect');
  socket.write(
    `${method} ${path} HTTP/1.1\r\nHost: localhost\r\n${method === 'POST' ? 'Content-Length: 2\r\n' : ''}\r\n${method === 'POST' ? '{}' : ''}`,
  );
  return socket;
}

const openConnections = (frontend: TestFrontend) =>
  new Promise<number>(resolve => frontend.app.server.getConnections((_, count) => resolve(count)));

test('an answer of which nothing is taken ends', async () => {
  await using frontend = testFrontend({ bounds: { ...BOUNDS, answerIdleMs: 200 } });
  answering(frontend, LARGE);
  const socket = await askAndRest(await frontend.listen(), `/api/agent/${AGENT.id}/invoke`);
  await vi.waitFor(() => expect(frontend.instances.calls).toHaveLength(1), 20_000);
  await vi.waitFor(async () => expect(await openConnections(frontend)).toBe(0), 20_000);
  socket.destroy();
});

test('a log that goes on ends when its reader takes nothing', async () => {
  await using frontend = testFrontend({ bounds: { ...BOUNDS, answerIdleMs: 200 } });
  answering(frontend, LARGE);
  let written = 0;
  frontend.instances.onLogs = async function* (_request: unknown, signal: AbortSignal) {
    while (!signal.aborted) {
      written += 65_536;
      yield Buffer.alloc(65_536, 0x61);
    }
  } as never;
  const socket = await askAndRest(await frontend.listen(), `/api/agent/${AGENT.id}/logs?follow=true`, 'GET');
  await vi.waitFor(() => expect(written).toBeGreaterThan(0), 20_000);
  await vi.waitFor(async () => expect(await openConnections(frontend)).toBe(0), 20_000);
  expect(written).toBeLessThan(64 * MEBIBYTE);
  socket.destroy();
});

test('a reader that is slow and does read gets all of it', async () => {
  await using frontend = testFrontend({ bounds: { ...BOUNDS, answerIdleMs: 3000 } });
  answering(frontend, LARGE);
  const socket = await askAndRest(await frontend.listen(), `/api/agent/${AGENT.id}/invoke`);
  let received = 0;
  socket.on('data', (chunk: Buffer) => {
    received += chunk.length;
    socket.pause();
    setTimeout(() => socket.resume(), 5);
  });
  socket.resume();
  await vi.waitFor(() => expect(received).toBeGreaterThan(LARGE.length), 60_000);
  socket.destroy();
}, 90_000);

test('the answers that nobody reads are bounded in all, and who reads is not harmed', async () => {
  await using frontend = testFrontend({ bounds: { ...BOUNDS, maxAnswerBytes: 20 * MEBIBYTE } });
  answering(frontend, LARGE);
  const url = await frontend.listen();
  const path = `/api/agent/${AGENT.id}/invoke`;
  const resting = await Promise.all(Array.from({ length: 12 }, () => askAndRest(url, path)));
  await vi.waitFor(() => expect(frontend.instances.calls).toHaveLength(12), 20_000);
  const answer = await fetch(`${url}${path}`, { method: 'POST', body: '{}' });
  expect((await answer.arrayBuffer()).byteLength).toBeGreaterThan(LARGE.length);
  // Three fit, whatever the kernel takes of each; one more connection is the reader's.
  await vi.waitFor(async () => expect(await openConnections(frontend)).toBeLessThanOrEqual(4), 20_000);
  for (const socket of resting) socket.destroy();
});
