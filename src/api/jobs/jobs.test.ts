import { once } from 'node:events';
import { afterEach, beforeEach, expect, test, vi } from 'vitest';
import { WebSocket } from 'ws';
import { type TestFrontend, testFrontend } from '../../../test/http/frontend.ts';
import { MEBIBYTE } from '../../core/units.ts';

const WAIT_MS = 20_000;
const CHUNK = Buffer.alloc(65_536, 0x61);

vi.mock('../../core/limits.ts', async original => {
  const { LIMITS } = await original<typeof import('../../core/limits.ts')>();
  return { LIMITS: { ...LIMITS, tailIdleMs: 300 } };
});

let frontend: TestFrontend;
let written: number;
let hasEnded: boolean;

/** Yields an endless log, or one of about `bytes` bytes. */
async function* log(signal: AbortSignal, bytes = Number.POSITIVE_INFINITY): AsyncIterable<Buffer> {
  try {
    while (!signal.aborted && written < bytes) {
      written += CHUNK.length;
      yield CHUNK;
      // Lets the event loop run, as the log of a real job does.
      await new Promise(resolve => setImmediate(resolve));
    }
  } finally {
    hasEnded = true;
  }
}

beforeEach(() => {
  written = 0;
  hasEnded = false;
});
afterEach(() => frontend[Symbol.asyncDispose]());

async function follow(bytes?: number): Promise<WebSocket> {
  const jobs = {
    get: async () => ({}),
    follow: async (_tenant: string, _id: string, signal: AbortSignal) => log(signal, bytes),
  };
  frontend = testFrontend({ jobs: { jobs } as never });
  const socket = new WebSocket(`${(await frontend.listen()).replace('http', 'ws')}/api/jobs/one/logs/tail`);
  socket.on('error', () => undefined);
  await once(socket, 'open');
  return socket;
}

test('a reader that takes nothing of a log is disconnected', async () => {
  const socket = await follow();
  socket.pause();
  await vi.waitFor(() => expect(hasEnded).toBe(true), WAIT_MS);
  // The kernel buffers some MiB for the reader; the service must not read much more than that.
  expect(written).toBeLessThan(64 * MEBIBYTE);
  socket.resume();
  expect((await once(socket, 'close'))[0]).not.toBe(1000);
});

test('a reader that pauses repeatedly for short times gets the whole log', async () => {
  const socket = await follow(16 * MEBIBYTE);
  let received = 0;
  socket.on('message', (data: Buffer) => {
    received += data.length;
    socket.pause();
    setTimeout(() => socket.resume(), 1);
  });
  expect((await once(socket, 'close'))[0]).toBe(1000);
  expect(received).toBe(16 * MEBIBYTE);
}, 60_000);

test('a reader that leaves ends the reading of the log', async () => {
  const socket = await follow();
  socket.terminate();
  await vi.waitFor(() => expect(hasEnded).toBe(true), WAIT_MS);
});

test('many concurrent readers of a log cause no warning of Node about leaking listeners', async () => {
  const warnings: string[] = [];
  const note = (warning: Error) => void warnings.push(warning.message);
  process.on('warning', note);
  try {
    (await follow()).terminate();
    const url = `${frontend.app.listeningOrigin}/api/jobs/one/logs?follow=true`;
    const readers = await Promise.all(Array.from({ length: 20 }, () => fetch(url)));
    await Promise.all(readers.map(({ body }) => body?.cancel()));
    await vi.waitFor(() => expect(hasEnded).toBe(true), WAIT_MS);
  } finally {
    process.off('warning', note);
  }
  expect(warnings).toEqual([]);
});
