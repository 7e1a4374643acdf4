import { once } from 'node:events';
import net from 'node:net';
import { afterEach, describe, expect, test, vi } from 'vitest';
import { SPEC, type TestFrontend, testFrontend } from '../../../test/http/frontend.ts';
import { newInstance } from '../../../test/http/memory-instances.ts';
import { MEBIBYTE } from '../../core/units.ts';
import { UnreadAnswers } from './unread-answers.ts';

const BOUNDS = {
  maxConnections: 1000,
  maxConnectionsOfAddress: 1000,
  maxBodyBytes: 64 * MEBIBYTE,
  bodyIdleMs: 60_000,
  maxAnswerBytes: 1024 * MEBIBYTE,
  answerIdleMs: 60_000,
  keepAliveMs: 60_000,
};
const AGENT = newInstance(SPEC);
const LARGE = Buffer.from(JSON.stringify('x'.repeat(6 * MEBIBYTE)));

function answering(frontend: TestFrontend, data: Buffer): void {
  frontend.instances.put(AGENT);
  frontend.instances.onInvoke = async () => ({ ok: true, data, runMicros: 1 });
}

/** Sends a request and reads no byte of the answer. */
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

test('an answer of which the client reads nothing ends', async () => {
  await using frontend = testFrontend({ bounds: { ...BOUNDS, answerIdleMs: 200 } });
  answering(frontend, LARGE);
  const socket = await askAndRest(await frontend.listen(), `/api/agent/${AGENT.id}/invoke`);
  await vi.waitFor(() => expect(frontend.instances.calls).toHaveLength(1), 20_000);
  await vi.waitFor(async () => expect(await openConnections(frontend)).toBe(0), 20_000);
  socket.destroy();
});

test('a followed log ends when its reader takes nothing', async () => {
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

test('a slow reader that continues to read gets the whole answer', async () => {
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

test('unread answers share one bound, and clients that read are unaffected', async () => {
  await using frontend = testFrontend({ bounds: { ...BOUNDS, maxAnswerBytes: 20 * MEBIBYTE } });
  answering(frontend, LARGE);
  const url = await frontend.listen();
  const path = `/api/agent/${AGENT.id}/invoke`;
  const resting = await Promise.all(Array.from({ length: 12 }, () => askAndRest(url, path)));
  await vi.waitFor(() => expect(frontend.instances.calls).toHaveLength(12), 20_000);
  const answer = await fetch(`${url}${path}`, { method: 'POST', body: '{}' });
  expect((await answer.arrayBuffer()).byteLength).toBeGreaterThan(LARGE.length);
  // Three unread answers fit into the budget. The fourth connection belongs to `fetch`.
  await vi.waitFor(async () => expect(await openConnections(frontend)).toBeLessThanOrEqual(4), 20_000);
  for (const socket of resting) socket.destroy();
});

describe('unread answers', () => {
  afterEach(() => {
    vi.useRealTimers();
  });

  const STALE_MS = 1000;

  /** Creates a connection with `held` bytes in memory, whose kernel buffer accepts none of them. */
  function connectionWith(held: number) {
    vi.useFakeTimers({ toFake: ['performance'] });
    const state = { writableLength: held, _handle: { writeQueueSize: 50 }, destroyed: false, destroy: vi.fn() };
    const unread = new UnreadAnswers({ idleMs: 10_000, maxBytes: 100, connections: () => [state as never] });
    unread.check();
    const lookIn = (ms: number) => {
      vi.advanceTimersByTime(ms);
      unread.check();
    };
    return { state, lookIn };
  }

  test('UnreadAnswers closes a connection above the bound although its answer grows', () => {
    const { state, lookIn } = connectionWith(90);
    lookIn(STALE_MS / 2);
    state.writableLength = 110;
    lookIn(STALE_MS / 2 - 1);
    expect(state.destroy).not.toHaveBeenCalled();
    state.writableLength = 120;
    lookIn(1);
    expect(state.destroy).toHaveBeenCalledOnce();
  });

  test('UnreadAnswers keeps a connection above the bound while its client reads', () => {
    const { state, lookIn } = connectionWith(300);
    while (state.writableLength > 150) {
      state.writableLength -= 50;
      lookIn(STALE_MS);
    }
    expect(state.destroy).not.toHaveBeenCalled();
    lookIn(STALE_MS);
    expect(state.destroy).toHaveBeenCalledOnce();
  });
});
