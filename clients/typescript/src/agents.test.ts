import { once } from 'node:events';
import { mkdtempSync, rmSync } from 'node:fs';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import { Rookery } from './rookery.ts';

test('agents.create makes a name that is valid in an address from a directory whose name is too long', async () => {
  const names: string[] = [];
  const server = createServer(async (request, answer) => {
    const text = (await request.toArray()).join('');
    if (request.method === 'POST') names.push((JSON.parse(text) as { name: string }).name);
    answer.end('{"code":200,"instance_id":"x","instance":{"instance_id":"x"}}');
  }).listen(0, '127.0.0.1');
  await once(server, 'listening');
  const rookery = new Rookery({ url: `http://127.0.0.1:${(server.address() as AddressInfo).port}` });
  // Character 30 of the name is a hyphen. The cut at 30 characters has to remove the hyphen, too.
  const code = mkdtempSync(join(tmpdir(), `_${'a'.repeat(29)}-_`));
  try {
    await rookery.agents.create({ code });
    expect(names).toEqual([expect.stringMatching(/^a{29}-[0-9a-f]{8}$/)]);
  } finally {
    rookery.close();
    server.close();
    rmSync(code, { recursive: true });
  }
});

/** Serves the answers in their order. Returns the result of the program and the requests that it sent. */
async function withAnswers<T>(
  answers: readonly (readonly [number, unknown])[],
  program: (rookery: Rookery) => Promise<T>,
): Promise<{ readonly got: T; readonly sent: readonly string[] }> {
  const sent: string[] = [];
  const server = createServer(async (request, answer) => {
    await request.resume().toArray();
    const [status, body] = answers[sent.length] ?? [500, {}];
    sent.push(`${request.method} ${new URL(request.url ?? '', 'http://service').pathname}`);
    answer.writeHead(status).end(JSON.stringify(body));
  }).listen(0, '127.0.0.1');
  await once(server, 'listening');
  const rookery = new Rookery({ url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`, retries: 0 });
  try {
    return { got: await program(rookery), sent };
  } finally {
    rookery.close();
    server.close();
  }
}

const listed = (...statuses: string[]) => {
  const instances = statuses.map(status => ({ instance_id: 'x', name: 'shared', status }));
  return [200, { instances, next_cursor: null }] as const;
};
const LIST = 'GET /api/agent';
const CREATE = 'POST /api/agent';

test('agents.getOrCreate returns an existing agent and creates nothing', async () => {
  const program = async (rookery: Rookery) => (await rookery.agents.getOrCreate({ name: 'shared' })).record.status;
  for (const status of ['RUNNING', 'SLEEPING', 'FAILED']) {
    expect(await withAnswers([listed(status)], program)).toEqual({ got: status, sent: [LIST] });
  }
});

test('agents.getOrCreate waits for the agent of a client that creates it at the same time', async () => {
  const taken = [409, { code: 409, message: 'agent default/shared already exists', instance_id: 'x' }] as const;
  const answers = [listed(), taken, listed('CREATING'), listed('RUNNING')];
  const { got, sent } = await withAnswers(
    answers,
    async rookery => (await rookery.agents.getOrCreate({ name: 'shared' })).id,
  );
  expect({ got, sent }).toEqual({ got: 'x', sent: [LIST, CREATE, LIST, LIST] });
});

test('agents.getOrCreate creates the agent when the holder of the name is deleted at the same time', async () => {
  const record = { instance_id: 'new', name: 'shared', status: 'RUNNING' };
  const answers = [
    listed('STOPPING'),
    listed(),
    [200, { code: 200, instance_id: 'new' }] as const,
    [200, { code: 200, instance: record }] as const,
  ];
  const { got, sent } = await withAnswers(
    answers,
    async rookery => (await rookery.agents.getOrCreate({ name: 'shared' })).id,
  );
  expect({ got, sent }).toEqual({ got: 'new', sent: [LIST, LIST, CREATE, 'GET /api/agent/new'] });
});

test('agents.getOrCreate fails with the refusal of the create when the name is not the reason', async () => {
  const refused = [409, { code: 409, message: 'idempotency key k was used with another request' }] as const;
  const failing = (rookery: Rookery) =>
    rookery.agents.getOrCreate({ name: 'shared' }).catch((error: Error) => error.message);
  const { got, sent } = await withAnswers([listed(), refused], failing);
  expect({ got, sent }).toEqual({ got: refused[1].message, sent: [LIST, CREATE] });
  const replacing = { name: 'shared', replace: true };
  const { got: why } = await withAnswers([], rookery =>
    rookery.agents.getOrCreate(replacing).catch((error: Error) => error.message),
  );
  expect(why).toContain('never replaces');
});
