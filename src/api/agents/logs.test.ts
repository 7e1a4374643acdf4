import { once } from 'node:events';
import { ServerResponse } from 'node:http';
import { describe, expect, test, vi } from 'vitest';
import { deferred } from '../../../test/http/deferred.ts';
import { SPEC, type TestFrontend, testFrontend } from '../../../test/http/frontend.ts';
import { newInstance } from '../../../test/http/memory-instances.ts';
import { failedPrecondition } from '../../core/error.ts';
import { OPENED, OpenedLog } from '../../lib/opened-log.ts';

const AGENT = newInstance(SPEC);
const URL_OF_IT = `/api/agent/${AGENT.id}/logs`;

function frontendWithLogs(chunks: readonly string[] = []): TestFrontend {
  const frontend = testFrontend();
  frontend.instances.put(AGENT);
  frontend.instances.onLogs = async function* () {
    for (const chunk of chunks) yield Buffer.from(chunk);
  };
  return frontend;
}

/** Yields one line, unless empty, and stays open until the signal aborts. */
async function* following(line: string, signal: AbortSignal): AsyncIterable<Buffer> {
  if (line !== '') yield Buffer.from(line);
  if (!signal.aborted) await once(signal, 'abort');
}

test('a log is answered as text with the trace id', async () => {
  await using frontend = frontendWithLogs(['one\n', 'zwei ü\n']);
  const answer = await frontend.send({ url: URL_OF_IT, headers: { 'x-trace-id': 't1' } });
  expect(answer).toMatchObject({ status: 200, text: 'one\nzwei ü\n' });
  expect(answer.headers).toMatchObject({ 'content-type': 'text/plain; charset=utf-8', 'x-trace-id': 't1' });
  expect(frontend.requests).toEqual([{ method: 'GET', route: '/api/agent/:instanceId/logs', status: 200 }]);
});

test('a followed log disables nginx buffering; as events it has base64 data and an end event', async () => {
  await using frontend = frontendWithLogs(['one\n']);
  const text = await frontend.send({ url: `${URL_OF_IT}?follow=true` });
  expect(text.headers).toMatchObject({ 'x-accel-buffering': 'no', 'content-type': 'text/plain; charset=utf-8' });
  const events = await frontend.send({ url: `${URL_OF_IT}?follow=true`, headers: { accept: 'text/event-stream' } });
  expect(events.headers).toMatchObject({
    'x-accel-buffering': 'no',
    'content-type': 'text/event-stream; charset=utf-8',
  });
  expect(events.text).toBe('data: b25lCg==\n\nevent: end\ndata:\n\n');
  const plain = await frontend.send({ url: URL_OF_IT, headers: { accept: 'text/event-stream' } });
  expect(plain.headers['content-type']).toBe('text/plain; charset=utf-8');
});

test('an empty log is answered as empty text', async () => {
  await using frontend = frontendWithLogs();
  expect(await frontend.send({ url: URL_OF_IT })).toMatchObject({ status: 200, text: '' });
});

describe('the query of a log request', () => {
  test.each([
    ['', { tail: null, sinceMs: null, follow: false }],
    ['?tail=&since=&follow=', { tail: null, sinceMs: null, follow: false }],
    ['?tail=0', { tail: 0 }],
    ['?tail=100&follow=false', { tail: 100, follow: false }],
    ['?since=2026-01-02T03:04:05Z', { sinceMs: Date.UTC(2026, 0, 2, 3, 4, 5) }],
    ['?since=2026-01-02T03:04:05.250%2B02:00', { sinceMs: Date.UTC(2026, 0, 2, 1, 4, 5, 250) }],
    ['?until=2026-01-02T03:04:05Z', { sinceMs: null, untilMs: Date.UTC(2026, 0, 2, 3, 4, 5), follow: false }],
    ['?since=2026-01-02T03:04:05+02:00', { sinceMs: Date.UTC(2026, 0, 2, 1, 4, 5) }],
  ])('a log request reads the query "%s"', async (query, expected) => {
    await using frontend = frontendWithLogs();
    expect((await frontend.send({ url: URL_OF_IT + query })).status).toBe(200);
    expect(frontend.instances.logRequests).toMatchObject([expected]);
  });

  test.each([
    ['10m', 600_000],
    ['90s', 90_000],
    ['1h30m', 5_400_000],
    ['1.5h', 5_400_000],
    ['2d', 172_800_000],
    ['500ms', 500],
  ])('the query since=%s counts back from now', async (since, agoMs) => {
    await using frontend = frontendWithLogs();
    const beforeMs = Date.now();
    await frontend.send({ url: `${URL_OF_IT}?since=${since}` });
    const { sinceMs } = frontend.instances.logRequests[0] as { sinceMs: number };
    expect(sinceMs + agoMs).toBeGreaterThanOrEqual(beforeMs);
    expect(sinceMs + agoMs).toBeLessThanOrEqual(Date.now());
  });

  test.each([
    ['tail=-1', 'tail must be an integer'],
    ['tail=all', 'tail must be an integer'],
    ['since=yesterday', 'since must be a moment (RFC 3339) or a duration like 10m, got "yesterday"'],
    ['since=2026-13-45T00:00:00Z', 'since must be a moment'],
    ['since=2026-01-02', 'since must be a moment'],
    ['since=10', 'since must be a moment'],
    ['until=later', 'until must be a moment (RFC 3339) or a duration like 10m, got "later"'],
    ['until=10m&follow=true', 'until must be absent beside follow, got "10m"'],
    ['follow=yes', 'follow must be true or false, got "yes"'],
  ])('a log request with ?%s is answered 400', async (query, message) => {
    await using frontend = frontendWithLogs();
    expect(await frontend.send({ url: `${URL_OF_IT}?${query}` })).toMatchObject({
      status: 400,
      body: { code: 400, message: expect.stringContaining(`invalid query: ${message}`) },
    });
  });

  test('a HEAD request reads no log', async () => {
    await using frontend = frontendWithLogs(['x\n']);
    const head = { method: 'HEAD', url: `${URL_OF_IT}?follow=true` } as const;
    expect(await frontend.send(head)).toMatchObject({ status: 200, text: '' });
    expect(frontend.instances.logRequests).toEqual([]);
    expect((await frontend.send({ ...head, headers: { tenantId: 'another' } })).status).toBe(404);
  });
});

describe('a log over a real connection', () => {
  test('a followed log sends each line when written and stops when the client disconnects', async () => {
    await using frontend = frontendWithLogs();
    const ended = deferred();
    frontend.instances.onLogs = (_, signal) => {
      signal.addEventListener('abort', () => ended.resolve());
      return following('first\n', signal);
    };
    const url = await frontend.listen();
    const leave = new AbortController();
    const answer = await fetch(`${url}${URL_OF_IT}?follow=true`, { signal: leave.signal });
    const reader = (answer.body as ReadableStream<Uint8Array>).getReader();
    expect(Buffer.from((await reader.read()).value ?? []).toString()).toBe('first\n');
    leave.abort();
    await ended.promise;
  });

  test('a followed log sends its status before the first line', async () => {
    await using frontend = frontendWithLogs();
    frontend.instances.onLogs = (_, signal) => following('', signal);
    const url = await frontend.listen();
    const leave = new AbortController();
    const answer = await fetch(`${url}${URL_OF_IT}?follow=true`, { signal: leave.signal });
    expect(answer.status).toBe(200);
    leave.abort();
  });

  test('a followed log is opened before its head is sent', async () => {
    await using frontend = frontendWithLogs();
    using sent = vi.spyOn(ServerResponse.prototype, 'flushHeaders');
    let headsAtOpen = Number.NaN;
    frontend.instances.onLogs = () =>
      new OpenedLog(async function* () {
        headsAtOpen = sent.mock.calls.length;
        yield OPENED;
        yield Buffer.from('first\n');
      });
    const url = await frontend.listen();
    expect(await (await fetch(`${url}${URL_OF_IT}?follow=true&tail=0`)).text()).toBe('first\n');
    expect(headsAtOpen).toBe(0);
    expect(sent).toHaveBeenCalledOnce();
  });

  test('a followed log that cannot be opened is answered with its error', async () => {
    await using frontend = frontendWithLogs();
    frontend.instances.onLogs = () =>
      new OpenedLog(async function* () {
        yield await Promise.reject(failedPrecondition('the disk is gone'));
      });
    const answer = await frontend.send({ url: `${URL_OF_IT}?follow=true` });
    expect(answer).toMatchObject({ status: 409, body: { message: 'the disk is gone' } });
  });

  test('a followed log ends cleanly when the server closes', async () => {
    const frontend = frontendWithLogs();
    frontend.instances.onLogs = (_, signal) => following('first\n', signal);
    const url = await frontend.listen();
    const answer = await fetch(`${url}${URL_OF_IT}?follow=true`);
    const closed = frontend.app.close();
    expect(await answer.text()).toBe('first\n');
    await closed;
  });

  test('a log that fails midway breaks the connection', async () => {
    await using frontend = frontendWithLogs();
    frontend.instances.onLogs = async function* () {
      yield Buffer.from('first\n');
      throw new Error('disk gone');
    };
    const url = await frontend.listen();
    await expect(fetch(`${url}${URL_OF_IT}`).then(answer => answer.text())).rejects.toThrow();
  });

  test('a client that does not read stops the log source', async () => {
    await using frontend = frontendWithLogs();
    const chunk = Buffer.alloc(256 * 1024, 'x');
    const chunkCount = 400;
    let written = 0;
    frontend.instances.onLogs = async function* () {
      for (; written < chunkCount; written++) yield chunk;
    };
    const url = await frontend.listen();
    const answer = await fetch(`${url}${URL_OF_IT}`);
    expect(written).toBeLessThan(chunkCount);
    expect((await answer.arrayBuffer()).byteLength).toBe(chunk.length * chunkCount);
  });
});
