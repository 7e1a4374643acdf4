import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { removalsIn } from '../../test/parts/removals.ts';
import { jsonTextOf } from '../http/access/masking.ts';
import type { StoredJob } from '../storage/queries/jobs.ts';
import { JobChanges } from './job-changes.ts';
import { type JobLogSource, JobLogs } from './job-logs.ts';

let directory: string;
let logs: JobLogs;
beforeEach(async () => {
  directory = await mkdtemp(join(tmpdir(), 'rookery-job-logs-'));
  logs = new JobLogs({
    directory,
    changes: new JobChanges(),
    removals: removalsIn(directory),
    nodeId: 'n',
    stored: null,
  });
});
afterEach(async () => {
  await rm(directory, { recursive: true });
});

async function* of(...parts: (string | Buffer)[]): AsyncGenerator<Buffer> {
  for (const part of parts) yield Buffer.from(part);
}
const job = (status: 'RUNNING' | 'SUCCEEDED', attempt: number) =>
  ({ job: { sequence: 1, attempt, status } }) as unknown as StoredJob;
const source = (live: () => AsyncIterable<Buffer>): JobLogSource => ({ state: async () => null, live });
const NOTHING = source(() => of());
const signal = new AbortController().signal;

async function piecesOf(maxBytes: number, stored: StoredJob, from = NOTHING): Promise<Buffer[]> {
  const pieces: Buffer[] = [];
  for await (const piece of await logs.read(from, stored, maxBytes, signal)) pieces.push(piece);
  return pieces;
}
const textOf = async (...args: Parameters<typeof piecesOf>) => Buffer.concat(await piecesOf(...args)).toString();

test('read yields a long log in pieces of at most 64 KiB', async () => {
  const line = `${'x'.repeat(99)}\n`;
  await logs.archive(1, 1, of(line.repeat(40_000)));
  const pieces = await piecesOf(32 * 1024 * 1024, job('SUCCEEDED', 1));
  expect(Math.max(...pieces.map(({ length }) => length))).toBeLessThanOrEqual(64 * 1024);
  expect(Buffer.concat(pieces).toString() === line.repeat(40_000)).toBe(true);
});

test('read yields all attempts in order, each with its setup, and the live log of the running one', async () => {
  await logs.addSetup(1, 1, 'setup 1\n');
  await logs.archive(1, 1, of('out 1\n'));
  await logs.addSetup(1, 2, 'setup 2\n');
  const running = source(() => of('live', ' 2\n'));
  expect(await textOf(1000, job('RUNNING', 2), running)).toBe('setup 1\nout 1\nsetup 2\nlive 2\n');
});

test('read yields only the last whole lines, across attempts, when the log exceeds maxBytes', async () => {
  await logs.archive(1, 1, of('first\nsecond\n'));
  const running = source(() => of('third\n', 'fourth\n'));
  expect(await textOf(20, job('RUNNING', 2), running)).toBe('third\nfourth\n');
  expect(await textOf(15, job('RUNNING', 2), running)).toBe('third\nfourth\n');
  expect(await textOf(10, job('RUNNING', 2), running)).toBe('fourth\n');
  expect(await textOf(26, job('RUNNING', 2), running)).toBe('first\nsecond\nthird\nfourth\n');
});

test('read leaves out lines added during the read, and keeps an attempt that ends during the read', async () => {
  let reads = 0;
  const growing = source(() => (reads++ === 0 ? of('one\n') : of('one\ntwo\n')));
  expect(await textOf(1000, job('RUNNING', 1), growing)).toBe('one\n');
  reads = 0;
  const ending = source(async function* () {
    if (reads++ === 0) yield Buffer.from('one\n');
    else await logs.archive(1, 1, of('one\ntwo\n'));
  });
  expect(await textOf(1000, job('RUNNING', 1), ending)).toBe('one\n');
});

test('jsonTextOf yields the same text as JSON.stringify of the whole, wherever its pieces end', async () => {
  const texts = ['', 'plain', '"quoted" \\ \u0000\u001f\u2028', '\ufeffmark', '😀 é 漢', '\ud800'].map(text =>
    Buffer.from(text),
  );
  for (let round = 0; round < 200; round++) {
    const noise = Buffer.from(Array.from({ length: round % 40 }, (_, at) => (at * 97 + round * 193) % 256));
    const all = Buffer.concat([
      texts[round % texts.length] as Buffer,
      noise,
      texts[(round + 3) % texts.length] as Buffer,
    ]);
    const size = 1 + (round % 7);
    const pieces = Array.from({ length: Math.ceil(all.length / size) }, (_, at) =>
      all.subarray(at * size, at * size + size),
    );
    let sent = '';
    for await (const part of jsonTextOf('logs', of(...pieces))) sent += part;
    expect(sent).toBe(JSON.stringify({ logs: all.toString('utf8') }));
  }
});
