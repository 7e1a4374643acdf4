import { execFile } from 'node:child_process';
import { chmodSync } from 'node:fs';
import { resolve } from 'node:path';
import { promisify } from 'node:util';
import { expect, test } from 'vitest';
import { runtimeJar } from '../parts/runtime-jar.ts';
import { describeWith } from '../probe.ts';
import { describeDurableAgents } from '../suites/durable-agent.ts';
import { describeDurableSleep } from '../suites/durable-sleep.ts';
import { Bed } from './agents.ts';

const run = promisify(execFile);
const SOURCE = resolve(import.meta.dirname, '../fixtures/java-durable/app/Agent.java');

async function build(codeDir: string): Promise<void> {
  chmodSync(codeDir, 0o755);
  const jar = await runtimeJar();
  await run('javac', ['--release', '8', '-encoding', 'UTF-8', '-cp', jar, '-d', codeDir, SOURCE]);
}

describeWith(['java'], 'classes in Java', () => {
  const code = { files: {}, handler: 'app.Agent.handle', build };
  const spec = { runtime: 'java17', memory: 512 };
  const extendedHandler = { alarm: 'app.Agent.onAlarm', sleep: 'onSleep' };
  describeDurableAgents('durable agents in Java', { ...code, spec });
  describeDurableSleep('sleep and alarms of a durable agent in Java', { ...code, spec: { ...spec, extendedHandler } });

  test('the state of a Java agent is an object of its class, which the initializer may change', {
    timeout: 300_000,
  }, async () => {
    await using bed = await Bed.start({});
    await build(bed.codeDir);
    const typed = { ...spec, extendedHandler: { initializer: 'begin' } };
    const id = await bed.create('typed', 'app.Agent.typed', typed, { durable: true });
    const call = async (op: string) => (await bed.invoke(id, JSON.stringify(op))).body;
    const versionOf = async () => (await bed.ask('GET', `/api/agent/${id}`)).body.instance;
    expect((await call('add')).data).toEqual({ n: 1, seen: ['begin', 'add'] });
    expect((await call('list')).message).toMatch(/code=4007 .*ArrayList is not a JSON object/);
    expect((await call('other')).message).toMatch(/the state is in use as a app\.Agent\$Memory/);
    expect((await call('alarm')).message).toMatch(/the name of an alarm must be a text of 1 to 128 characters/);
    expect((await call('put')).data).toEqual({ n: 40, seen: [] });
    expect((await call('add')).data).toEqual({ n: 41, seen: ['add'] });
    await bed.ask('POST', `/api/agent/${id}/restart`);
    expect((await call('get')).data).toEqual({ n: 41, seen: ['add', 'begin'] });
    expect((await call('get')).data).toEqual({ n: 41, seen: ['add', 'begin'] });
    // The change of the initializer is saved with the first call.
    expect(await versionOf()).toMatchObject({ durable: { state_version: 4 } });
  });
});
