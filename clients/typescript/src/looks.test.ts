import { once } from 'node:events';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { Rookery } from './rookery.ts';

/** Number of status requests after which the work is reported as ended; `null`: never. */
let overAfter: number | null = null;
let looked = 0;
const server = createServer((request, answer) => {
  looked += 1;
  const isOver = overAfter !== null && looked > overAfter;
  const status = request.url?.startsWith('/api/jobs/') ? ['RUNNING', 'SUCCEEDED'] : ['running', 'completed'];
  answer.end(JSON.stringify({ status: status[isOver ? 1 : 0], result: 7 }));
});
let rookery: Rookery;

beforeAll(async () => {
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  rookery = new Rookery({ url: `http://127.0.0.1:${(server.address() as AddressInfo).port}` });
});
afterAll(() => {
  rookery.close();
  server.close();
});

const waits = [
  [
    'the result of a call',
    (timeoutMs?: number, signal?: AbortSignal) => rookery.functions.asyncCall('x').result({ timeoutMs, signal }),
    7,
  ],
  [
    'the end of a job',
    (timeoutMs?: number, signal?: AbortSignal) => rookery.jobs.wait('x', { timeoutMs, signal }),
    { status: 'SUCCEEDED' },
  ],
] as const;

test.each(waits)(
  'a wait for %s fails after its timeout, which covers all status requests together',
  async (_, wait) => {
    overAfter = null;
    looked = 0;
    await expect(wait(700)).rejects.toMatchObject({
      name: 'RookeryError',
      message: expect.stringContaining('timeout'),
    });
  },
);

test.each(waits)('a wait for %s continues without a limit when no timeout is given', async (_, wait, answer) => {
  overAfter = 2;
  looked = 0;
  expect(await wait()).toEqual(typeof answer === 'number' ? answer : expect.objectContaining(answer));
  expect(looked).toBe(3);
});

test.each(waits)('a wait for %s fails when the caller aborts', async (_, wait) => {
  overAfter = null;
  const aborts = new AbortController();
  const waited = wait(undefined, aborts.signal);
  aborts.abort(new Error('enough'));
  await expect(waited).rejects.toMatchObject({ message: expect.stringMatching(/enough|aborted/) });
});
