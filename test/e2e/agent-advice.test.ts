import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { STOP_AGENTS } from '../../scripts/served.ts';
import { Bed } from './agents.ts';

const CODE = `
import os, time

def handle(event, context):
    left = context.remaining_ms()
    time.sleep(event.get("seconds", 0))
    if event.get("die"):
        os._exit(7)
    return left
`;

let bed: Bed;
beforeAll(async () => {
  bed = await Bed.start({ 'h.py': CODE }, { args: [STOP_AGENTS] });
}, 60_000);
afterAll(() => bed?.[Symbol.asyncDispose]());

it('remaining_ms() subtracts the time that a call waited for earlier calls', async () => {
  const id = await bed.create('waits', 'h.handle');
  const call = () =>
    bed.ask('POST', `/api/agent/${id}/invoke`, { seconds: 1 }, { headers: { 'x-invoke-timeout-ms': '60000' } });
  const answers = await Promise.all([call(), call(), call()]);
  // The calls use separate connections. In any order, each waited a second longer than the one before it.
  const [third, second, first] = answers.map(({ body }) => body.data as number).sort((one, other) => one - other);
  expect(third).toBeGreaterThan(0);
  expect(third).toBeLessThanOrEqual(58_100);
  expect(second).toBeLessThanOrEqual(59_100);
  expect(first).toBeLessThanOrEqual(60_000);
}, 60_000);

it('a call of a FAILED agent answers 404 with the state, the reason and the restart command', async () => {
  const id = await bed.create('dies', 'h.handle');
  await bed.ask('POST', `/api/agent/${id}/invoke`, { die: true });
  await expect
    .poll(async () => ((await bed.ask('GET', `/api/agent/${id}`)).body.instance as { status: string }).status)
    .toBe('FAILED');
  const { status, body } = await bed.ask('POST', `/api/agent/${id}/invoke`, {});
  expect({ status, code: body.code }).toEqual({ status: 404, code: 404 });
  expect(body.message).toMatch(
    new RegExp(`^instance not found: ${id}: it is FAILED \\(.+\\); POST /api/agent/${id}/restart`),
  );
  await bed.ask('POST', `/api/agent/${id}/restart`);
  expect((await bed.ask('POST', `/api/agent/${id}/invoke`, {})).status).toBe(200);
}, 60_000);

describe('a create with a runtime value', () => {
  it.each(['python', 'python3.4', 'ruby'])(
    'a create with the runtime %s fails with a message that names the supported runtimes and the missing program',
    async runtime => {
      const { status, body } = await bed.ask('POST', '/api/agent', bed.createBody('unknown', 'h.handle', { runtime }));
      expect(status).toBe(500);
      expect(body.message).toMatch(
        /^failed to create agent: ".+" is no known runtime .+: there is no program \/code\/h\.handle$/,
      );
      for (const part of [`"${runtime}" is no known runtime`, 'python3.6 to python3.14', 'java21', '/code/h.handle'])
        expect(body.message).toContain(part);
    },
  );

  it('a known runtime value gets no advice about runtimes', async () => {
    const { body } = await bed.ask(
      'POST',
      '/api/agent',
      bed.createBody('known', 'h.handle', { runtime: 'posix-custom-runtime' }),
    );
    expect(body.message).not.toContain('known runtime');
  });
});

/** The bodies of the specification stay unchanged; the header `X-Advice` says what to do next. */
describe('X-Advice', () => {
  const FUNCTION = { name: '0@e2e@advised', kind: 'agent', runtime: 'python3', cpu: 100, memory: 128 };
  const meta = (method: 'GET' | 'POST' | 'DELETE', path: string, body?: unknown) =>
    bed.ask(method, `/serverless/v1/functions${path}`, body, { meta: true });

  it.each(['/etc', '/etc/ssl', '/', '/proc/1', '/srv/../etc', '/var/run/docker.sock'])(
    'the advice for a create with the mount %s names the rule for host paths and an alternative',
    async source => {
      const mounts = [{ source, target: '/m' }];
      const { status, body, advice } = await bed.ask(
        'POST',
        '/api/agent',
        bed.createBody('etc', 'h.handle', {}, { mounts }),
      );
      expect({ status, message: body.message }).toEqual({ status: 400, message: `unsafe mount source: ${source}` });
      for (const part of ['/etc, /proc, /sys, /dev and /boot', '".."', 'Name another directory'])
        expect(advice).toContain(part);
    },
  );

  it('the advice for a create with a forbidden workspace names the rule for host paths', async () => {
    const answer = await bed.ask('POST', '/api/agent', bed.createBody('w', 'h.handle', {}, { workspace: '/boot' }));
    expect(answer.body.message).toBe('unsafe workspace: /boot');
    expect(answer.advice).toContain('/boot');
  });

  it('the advice for a duplicate function or version names the commands that change or remove it', async () => {
    const first = await meta('POST', '', FUNCTION);
    const { revisionId } = first.body.function as { revisionId: string };
    expect(await meta('POST', '', FUNCTION)).toMatchObject({
      body: { code: 4101, message: 'the function name already exists. rename your function' },
      advice: expect.stringMatching(/PUT \/serverless\/v1\/functions\/0@e2e@advised.*DELETE/),
    });
    const publish = (versionNumber: string) => meta('POST', '/0@e2e@advised/versions', { revisionId, versionNumber });
    for (const version of ['v2', 'v1']) expect((await publish(version)).body.code).toBe(0);
    expect(await publish('v1')).toMatchObject({
      body: { code: 4114, message: 'duplicate version number' },
      advice: expect.stringMatching(/never changes.*another versionNumber.*DELETE/),
    });
  });

  it('the advice for a missing version lists the existing versions', async () => {
    const advice = 'The versions of 0@e2e@advised are $latest, v1, v2.';
    const missing = 'function [0@e2e@advised:v9] is not found. check input parameters';
    for (const method of ['GET', 'DELETE'] as const) {
      const answer = await meta(method, '/0@e2e@advised?versionNumber=v9');
      expect(answer).toEqual({ status: 200, body: { code: 4115, message: missing }, advice });
    }
    const urn = 'sn:cn:yrk:default:function:0@e2e@advised:v9';
    const answer = await bed.ask('POST', '/api/agent', { namespace: 'e2e', name: 'v9', urn });
    expect(answer).toEqual({
      status: 500,
      body: { code: 500, message: `failed to create agent: invalid function: ${missing}` },
      advice,
    });
    // The answer has no advice for another tenant, for which the name does not exist.
    const other = await bed.ask('GET', '/serverless/v1/functions/0@e2e@advised?versionNumber=v9', undefined, {
      meta: true,
      headers: { 'x-tenant-id': 'other' },
    });
    expect(other.advice).toBeUndefined();
  });
});
