import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, test, vi } from 'vitest';
import { Bed } from './agents.ts';

const CODE = `
import os, sys, threading, time
def until(name):
    while not os.path.exists("/code/" + name):
        time.sleep(0.05)
def end(name):
    until(name)
    os._exit(3)
def handle(event, context):
    print("call in run", context.env("ROOKERY_INSTANCE_ID") and event.get("run", ""), flush=True)
    if "exit" in event:
        os._exit(event["exit"])
    if "end" in event:
        threading.Thread(target=end, args=(event["end"],)).start()
    if "until" in event:
        until(event["until"])
    return event
`;
const WAIT = { timeout: 60_000, interval: 100 };

let bed: Bed;
beforeAll(async () => {
  bed = await Bed.start({ 'app.py': CODE });
}, 60_000);
afterAll(async () => {
  await bed?.[Symbol.asyncDispose]();
}, 60_000);

const create = (name: string, more: object = {}) => bed.create(name, 'app.handle', {}, more);
const recordOf = async (id: string) =>
  (await bed.ask('GET', `/api/agent/${id}`)).body.instance as Record<string, unknown>;
const until = (id: string, wanted: object) =>
  vi.waitFor(async () => expect(await recordOf(id)).toMatchObject(wanted), WAIT);
async function logOf(id: string, query: string) {
  const answer = await fetch(`${bed.server.frontendUrl}/api/agent/${id}/logs?${query}`);
  return { status: answer.status, text: await answer.text() };
}

test('an agent with a policy restarts after its exit, also when the service is killed during the backoff', async () => {
  const restart_policy = { policy: 'on-failure', max_restarts: 2, backoff_seconds: 3 };
  const id = await create('again', { restart_policy });
  expect(await recordOf(id)).toMatchObject({ restart_policy, restarts: 0 });
  await bed.invoke(id, { exit: 3 });
  await until(id, { status: 'FAILED', restart_at: expect.any(String) });
  expect((await bed.invoke(id)).body.message).toMatch(
    /it is FAILED \(instance exited: exit code 3; its restart policy starts it again at .*\)/,
  );
  await bed.killAndRestart();
  await until(id, { status: 'RUNNING', restarts: 1 });
  expect((await bed.invoke(id, { run: 'two' })).body.data).toEqual({ run: 'two' });
  expect(await recordOf(id)).not.toHaveProperty('restart_at');
}, 120_000);

test('an agent that exits while the service drains its calls restarts with the next service', async () => {
  const id = await create('stopping', { restart_policy: { policy: 'always', backoff_seconds: 0.1 } });
  await bed.invoke(id, { end: 'end' });
  const busy = await create('busy');
  const call = bed.invoke(busy, { until: 'go', run: 'to its end' });
  await vi.waitFor(async () => expect((await logOf(busy, 'tail=9')).text).toContain('to its end'), WAIT);
  const { server } = bed;
  const over = server.end('SIGTERM');
  await vi.waitFor(() => expect(fetch(server.metaUrl)).rejects.toThrow(), WAIT);
  writeFileSync(join(bed.codeDir, 'end'), '');
  await vi.waitFor(() => expect(server.output).toMatch(new RegExp(`${id}.*instance ended by itself`)), WAIT);
  writeFileSync(join(bed.codeDir, 'go'), '');
  expect((await call).status).toBe(200);
  expect(await over).toBe(0);
  bed.server = await server.next();
  await until(id, { status: 'RUNNING', restarts: 1 });
}, 120_000);

test('the record of an agent without a policy has no fields of restarts except their number', async () => {
  const record = await recordOf(await create('plain'));
  expect(Object.keys(record).filter(name => name.startsWith('restart'))).toEqual(['restarts']);
});

test('the logs of the last three runs are kept until the agent is deleted', async () => {
  const id = await create('logged');
  for (const run of ['one', 'two', 'three', 'four', 'five']) {
    expect((await bed.invoke(id, { run })).status).toBe(200);
    expect((await bed.ask('POST', `/api/agent/${id}/restart`)).status).toBe(200);
  }
  expect(await logOf(id, 'previous=1')).toEqual({ status: 200, text: expect.stringContaining('call in run five') });
  expect(await logOf(id, 'previous=3')).toEqual({ status: 200, text: expect.stringContaining('call in run three') });
  expect((await logOf(id, 'previous=3')).text).not.toContain('four');
  expect((await logOf(id, 'previous=1&tail=0')).text).toBe('');
  for (const query of ['previous=4', 'previous=0', 'previous=1&follow=true', 'previous=1&since=1m']) {
    expect({ query, status: (await logOf(id, query)).status }).toEqual({ query, status: 400 });
  }
  expect((await bed.ask('DELETE', `/api/agent/${id}`)).status).toBe(200);
  expect((await logOf(id, 'previous=1')).status).toBe(404);
});

test('the log of a failed run can be read after the restart', async () => {
  const id = await create('died', { restart_policy: { policy: 'always', backoff_seconds: 0.1 } });
  expect(await logOf(id, 'previous=1')).toMatchObject({ status: 404 });
  await bed.invoke(id, { exit: 1, run: 'last words' });
  await until(id, { status: 'RUNNING', restarts: 1 });
  expect((await logOf(id, 'previous=1')).text).toContain('last words');
});
