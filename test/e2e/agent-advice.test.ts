import { afterAll, beforeAll, describe, expect, it } from 'vitest';
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
  bed = await Bed.start({ 'h.py': CODE });
}, 60_000);
afterAll(() => bed?.[Symbol.asyncDispose]());

it('remaining_ms() counts the time that a call waited for those before it', async () => {
  const id = await bed.create('waits', 'h.handle');
  const call = () =>
    bed.ask('POST', `/api/agent/${id}/invoke`, { seconds: 1 }, { headers: { 'x-invoke-timeout-ms': '60000' } });
  const answers = await Promise.all([call(), call(), call()]);
  // They come over connections of their own: whichever was first, each waited a second more than the one before it.
  const [third, second, first] = answers.map(({ body }) => body.data as number).sort((one, other) => one - other);
  expect(third).toBeGreaterThan(0);
  expect(third).toBeLessThanOrEqual(58_100);
  expect(second).toBeLessThanOrEqual(59_100);
  expect(first).toBeLessThanOrEqual(60_000);
}, 60_000);

it('a call of a FAILED agent is still 404, and says that it is, why, and how to start it again', async () => {
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

describe('a runtime value that nobody knows', () => {
  it.each(['python', 'python3.4', 'nodejs20'])(
    '%s: the error says so, what there is, and what was looked for',
    async runtime => {
      const { status, body } = await bed.ask('POST', '/api/agent', bed.createBody('unknown', 'h.handle', { runtime }));
      expect(status).toBe(500);
      expect(body.message).toMatch(/^failed to create agent: there is no program \/code\/h\.handle; /);
      for (const part of [`"${runtime}" is no known runtime`, 'python3.6 to python3.14', 'java21', '/code/h.handle'])
        expect(body.message).toContain(part);
    },
  );

  it('one that is known is not told so', async () => {
    const { body } = await bed.ask(
      'POST',
      '/api/agent',
      bed.createBody('known', 'h.handle', { runtime: 'posix-custom-runtime' }),
    );
    expect(body.message).not.toContain('known runtime');
  });
});
