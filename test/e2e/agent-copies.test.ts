import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import tar from 'tar-stream';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { cli } from '../parts/cli.ts';
import { Bed } from './agents.ts';

const PYTHON = `
import os
def handle(event, context):
    context.state["n"] = context.state.get("n", 0) + 1
    context.state["text"] = "ä"
    if event.get("remind"):
        context.set_alarm("once", after=3600, payload={"tea": True}, max_late_seconds=60)
        context.set_alarm("nightly", cron="0 3 * * *", tz="Europe/Berlin")
    return [context.state["n"], context.state["text"], os.environ.get("WORD")]

def on_alarm(alarm, context):
    pass
`;

const AGENT = { format: 'rookery-agent', version: 1 };

async function archive(files: Readonly<Record<string, string>>): Promise<Buffer> {
  const pack = tar.pack();
  for (const [name, text] of Object.entries(files)) pack.entry({ name }, text);
  pack.finalize();
  const parts: Buffer[] = [];
  for await (const part of pack) parts.push(part as Buffer);
  return Buffer.concat(parts);
}

describe('an export of a durable agent', { timeout: 120_000 }, () => {
  let bed: Bed;
  let directory: string;
  beforeAll(async () => {
    bed = await Bed.start({ 'app.py': PYTHON });
    directory = mkdtempSync(join(tmpdir(), 'rookery-export-'));
  }, 120_000);
  afterAll(async () => {
    rmSync(directory, { recursive: true });
    await bed?.[Symbol.asyncDispose]();
  }, 120_000);

  const create = (name: string) =>
    bed.create(
      name,
      'app.handle',
      { memory: 256, extendedHandler: { alarm: 'app.on_alarm' } },
      { durable: { sleep_after_seconds: 7 }, env_vars: { WORD: 'w' }, labels: { team: 'a' } },
    );
  const call = async (id: string, event: object = {}) => (await bed.invoke(id, event)).body.data;
  const get = async (path: string) => (await bed.ask('GET', path)).body;
  const rookery = (...args: string[]) => cli(['agent', ...args, '--address', bed.server.frontendUrl]);
  const send = async (body: Buffer | string) => {
    const headers = { 'content-type': 'application/octet-stream' };
    const answer = await fetch(`${bed.server.frontendUrl}/api/agent/import`, { method: 'POST', headers, body });
    return { status: answer.status, message: ((await answer.json()) as { message?: string }).message };
  };

  test('an import has the settings, the state and the alarms, sleeps, and outlives a kill of the service', async () => {
    const id = await create('origin');
    expect(await call(id, { remind: true })).toEqual([1, 'ä', 'w']);
    const file = join(directory, 'origin.tar');
    expect(await rookery('export', 'origin', file, '-n', 'e2e')).toMatchObject({ code: 0 });
    expect(await rookery('import', file)).toMatchObject({ code: 1, err: expect.stringContaining('already exists') });
    const imported = await rookery('import', file, '--name', 'copy');
    expect(imported).toMatchObject({ code: 0 });
    const copy = imported.out.trim();
    const settings = ['extendedHandler', 'env_vars', 'resources', 'labels', 'handler', 'runtime', 'rootfs'] as const;
    const of = (instance: unknown) => settings.map(name => (instance as Record<string, unknown>)[name]);
    const { instance } = await get(`/api/agent/${copy}`);
    expect(of(instance)).toEqual(of((await get(`/api/agent/${id}`)).instance));
    expect(instance).toMatchObject({ status: 'SLEEPING', durable: { sleep_after_seconds: 7, state_version: 1 } });
    const alarms = async (of: string) =>
      ((await get(`/api/agent/${of}/alarms`)) as unknown as { id: string }[]).map(({ id: _id, ...alarm }) => alarm);
    expect(await alarms(copy)).toEqual(await alarms(id));
    await bed.killAndRestart();
    expect(await call(copy)).toEqual([2, 'ä', 'w']);
    expect(await call(id)).toEqual([2, 'ä', 'w']);
    expect(await bed.ask('DELETE', `/api/agent/${copy}`)).toMatchObject({ status: 200 });
  });

  test('an agent that never saved is exported too, and one that is not durable is refused', async () => {
    await create('fresh');
    const file = join(directory, 'fresh.tar');
    expect(await rookery('export', 'fresh', file, '-n', 'e2e')).toMatchObject({ code: 0 });
    const { out } = await rookery('import', file, '--name', 'fresh-copy', '-n', 'other');
    expect(await call(out.trim())).toEqual([1, 'ä', 'w']);
    await bed.create('plain', 'app.handle');
    expect(await rookery('export', 'plain', join(directory, 'plain.tar'), '-n', 'e2e')).toMatchObject({
      code: 1,
      err: expect.stringContaining('is not durable'),
    });
  });

  test('an import names what is wrong with an export, and makes no agent', async () => {
    const body = bed.createBody('bad', 'app.handle', {}, { durable: true });
    const whole = (more: object) => JSON.stringify({ ...AGENT, create: body, ...more });
    const wrong = async (files: Readonly<Record<string, string>>) => await send(await archive(files));
    const refused = (why: string) => ({ status: 400, message: expect.stringContaining(`invalid export: ${why}`) });
    expect(await send('no archive')).toMatchObject(refused(''));
    expect(await wrong({ other: '{}' })).toMatchObject(refused('it has no agent.json'));
    expect(await wrong({ 'agent.json': '{' })).toMatchObject(refused('agent.json must be a JSON object'));
    expect(await wrong({ 'agent.json': '{"format":"x"}' })).toMatchObject(refused('agent.json has the format "x"'));
    expect(await wrong({ 'agent.json': whole({ version: 2 }) })).toMatchObject(refused('it has version 2'));
    const files = { 'agent.json': whole({}) };
    expect(await wrong({ ...files, 'state.json': '[]' })).toMatchObject(refused('state.json must be a JSON object'));
    const large = JSON.stringify({ a: 'x'.repeat(1024 * 1024) });
    expect(await wrong({ ...files, 'state.json': large })).toMatchObject(refused('state.json has 1048584 bytes'));
    const deep = `{"a":${'['.repeat(70)}${']'.repeat(70)}}`;
    expect(await wrong({ ...files, 'state.json': deep })).toMatchObject(refused('state.json has more than 64 levels'));
    expect(await wrong({ ...files, 'alarms.json': '[{"name":"a"}]' })).toMatchObject({ status: 400 });
    expect(await wrong({ ...files, 'alarms.json': '{}' })).toMatchObject(refused('alarms.json must be a list'));
    const undurable = { ...AGENT, create: { ...body, durable: false } };
    expect(await wrong({ 'agent.json': JSON.stringify(undurable) })).toMatchObject(refused('the agent is not durable'));
    const lacking = { ...AGENT, create: { ...body, env_vars: { A: { secret: 'none' } } } };
    expect(await wrong({ 'agent.json': JSON.stringify(lacking) })).toMatchObject({ status: 409 });
    expect(await get('/api/agent?name=bad')).toMatchObject({ instances: [] });
  });
});
