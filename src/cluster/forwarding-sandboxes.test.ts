import { once } from 'node:events';
import http, { type IncomingMessage } from 'node:http';
import { text } from 'node:stream/consumers';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { type TestReplica, testReplica } from '../../test/http/cluster-bed.ts';
import { SPEC } from '../../test/http/frontend.ts';
import { HostAccess } from '../../test/http/host-access.ts';
import { newInstance } from '../../test/http/memory-instances.ts';
import { memoryKeys } from '../../test/http/memory-keys.ts';
import { Inside } from '../../test/http/passthrough-bed.ts';
import { E2bSandboxes, sandboxIdOf, signatureOf } from '../api/e2b/sandboxes.ts';
import { unauthenticated } from '../core/error.ts';

const inside = new Inside();
const auth = {
  known: () => undefined,
  verify: () => Promise.reject(unauthenticated('authentication failed: unknown')),
};
const sandbox = newInstance({ ...SPEC, template: 'base' });
const id = sandboxIdOf(sandbox.id);
let key: string;
let token: string;
let port: number;
let first: TestReplica;
let second: TestReplica;

beforeAll(async () => {
  port = await inside.http(async (request, response) => {
    response.end(`${request.method} ${request.url} ${await text(request)}`);
  });
  const keys = memoryKeys();
  key = (await keys.create('default', 'developer')).text;
  const e2b = { keys, domain: 'sandbox.test' };
  first = await testReplica('first', { auth, e2b });
  second = await testReplica('second', { auth, e2b });
  first.locator.target = second.target;
  // Only the second replica can open the sandbox.
  second.instances.inside = new HostAccess('/');
  for (const { instances } of [first, second]) instances.put(sandbox);
  token = new E2bSandboxes(first.instances, Buffer.alloc(32, 7)).tokenOf(sandbox);
});
afterAll(async () => {
  for (const replica of [first, second]) await replica[Symbol.asyncDispose]();
  await inside.close();
});

async function ask(path: string, headers: Record<string, string>, method = 'POST') {
  const request = http.request(`${first.url}${path}`, { method, headers, agent: false });
  request.end(method === 'POST' ? 'body' : undefined);
  const [answer] = (await once(request, 'response')) as [IncomingMessage];
  return { status: answer.statusCode, text: await text(answer) };
}

describe('a sandbox of the E2B protocol on another replica', () => {
  test('is reached by headers and by host name', async () => {
    const named = { 'E2b-Sandbox-Id': id, 'E2b-Sandbox-Port': String(port) };
    expect(await ask('/e2b/sandbox/a%2Fb?x=1', named)).toEqual({ status: 200, text: 'POST /a%2Fb?x=1 body' });
    expect(first.results.at(-1)).toBe('answered');
    const host = { Host: `${port}-${id}.sandbox.test` };
    expect(await ask('/api/agent', host)).toEqual({ status: 200, text: 'POST /api/agent body' });
    expect(first.results.at(-1)).toBe('answered');
  });

  test('is reached by access token and by signed file URL', async () => {
    const before = first.results.length;
    expect((await ask('/e2b/sandbox/health', { 'X-Access-Token': token }, 'GET')).status).toBe(204);
    const url = { path: 'a', operation: 'read', username: '', expiration: '1' } as const;
    const query = new URLSearchParams({ path: 'a', signature: signatureOf(url, token), signature_expiration: '1' });
    expect((await ask(`/files?${query}`, {}, 'GET')).text).toContain('signature is already expired');
    expect(first.results.length).toBe(before + 2);
  });

  test('is changed by the replica that has it, with a key that the first replica checks', async () => {
    expect((await ask(`/e2b/sandboxes/${id}/pause`, { 'X-API-Key': `e2b_${'0'.repeat(40)}` })).status).toBe(401);
    const pause = http.request(`${first.url}/e2b/sandboxes/${id}/pause`, {
      method: 'POST',
      headers: { 'X-API-Key': key },
      agent: false,
    });
    pause.end();
    const [answer] = (await once(pause, 'response')) as [IncomingMessage];
    expect([answer.statusCode, await text(answer)]).toEqual([204, '']);
    expect((await second.instances.find(sandbox.id))?.status).toBe('PAUSED');
    expect((await first.instances.find(sandbox.id))?.status).toBe('RUNNING');
  });
});
