import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { existsSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, test, vi } from 'vitest';
import { ROOT } from '../../scripts/command.ts';
import { Bed } from './agents.ts';

const MAIN = join(ROOT, 'dist/main.js');
const WAIT = { timeout: 60_000, interval: 50 };

/** Code whose initializer creates the file `begun` and then waits for the file `go`. */
const CODE = `
import os, time
def slow(context):
    open("/shared/begun", "w").close()
    while not os.path.exists("/shared/go"):
        time.sleep(0.02)
def handle(event, context):
    return os.environ["VERSION"]
`;

describe('the replacement of an agent', () => {
  let bed: Bed;
  let shared: string;
  let names = 0;
  beforeAll(async () => {
    bed = await Bed.start({ 'main.py': CODE });
    shared = mkdtempSync(join(tmpdir(), 'rookery-replaced-'));
  }, 60_000);
  afterAll(async () => {
    await bed?.[Symbol.asyncDispose]();
    rmSync(shared, { recursive: true, force: true });
  }, 60_000);

  const bodyOf = (name: string, version: string, initializer = '') => ({
    ...(bed.createBody(name, 'main.handle', { extendedHandler: { initializer } }) as Record<string, unknown>),
    mounts: [
      { source: bed.codeDir, target: '/code', readonly: true },
      { source: shared, target: '/shared', readonly: false },
    ],
    env_vars: { VERSION: version },
    replace: true,
  });
  const replace = (name: string, version: string, initializer?: string) =>
    bed.ask('POST', '/api/agent', bodyOf(name, version, initializer));
  const all = async () =>
    (await bed.ask('GET', '/api/agent?namespace=e2e')).body.instances as { instance_id: string }[];

  /** Returns the version that answers under the name. */
  async function versionOf(name: string): Promise<unknown> {
    const { body } = await bed.ask('GET', `/api/agent?namespace=e2e&name=${name}`);
    const [agent] = body.instances as { instance_id: string }[];
    return agent && (await bed.invoke(agent.instance_id)).body.data;
  }

  async function prepare(): Promise<string> {
    for (const file of ['begun', 'go']) rmSync(join(shared, file), { force: true });
    const name = `r${names++}`;
    expect((await replace(name, '1')).status).toBe(200);
    return name;
  }

  const untilBegun = () => vi.waitFor(() => expect(existsSync(join(shared, 'begun'))).toBe(true), WAIT);
  const letGo = () => writeFileSync(join(shared, 'go'), '');

  test('the old agent continues when the service is killed before the new agent is ready, and the new one is removed', async () => {
    const name = await prepare();
    const replaced = replace(name, '2', 'main.slow').catch(() => undefined);
    await untilBegun();
    expect(await versionOf(name)).toBe('1');
    await bed.killAndRestart();
    await replaced;
    expect(await versionOf(name)).toBe('1');
    await vi.waitFor(async () => expect(await all()).toHaveLength(names), WAIT);
    letGo();
    expect((await replace(name, '3', 'main.slow')).status).toBe(200);
    expect(await versionOf(name)).toBe('3');
  }, 120_000);

  test('the old agent is removed, and the new one serves, when the service is killed right after the answer', async () => {
    const name = await prepare();
    expect((await replace(name, '2')).status).toBe(200);
    await bed.killAndRestart();
    expect(await versionOf(name)).toBe('2');
    expect(await all()).toHaveLength(names);
  }, 120_000);

  test.each(['SIGINT', 'SIGKILL'] as const)(
    'an agent is replaced completely when the command ends by %s',
    async signal => {
      const name = await prepare();
      const file = join(shared, 'request.json');
      writeFileSync(file, JSON.stringify(bodyOf(name, '2', 'main.slow')));
      const address = ['--address', bed.server.frontendUrl];
      const child = spawn(process.execPath, [MAIN, 'agent', 'create', '-f', file, '--replace', ...address]);
      await untilBegun();
      child.kill(signal);
      await once(child, 'exit');
      expect(await versionOf(name)).toBe('1');
      letGo();
      await vi.waitFor(async () => expect(await versionOf(name)).toBe('2'), WAIT);
      await vi.waitFor(async () => expect(await all()).toHaveLength(names), WAIT);
    },
    120_000,
  );
});

test('sandboxes exit when their data directory is removed', async () => {
  await using bed = await Bed.start({ 'main.py': CODE });
  const id = await bed.create('lost', 'main.handle');
  const { instance } = (await bed.ask('GET', `/api/agent/${id}`)).body as { instance: { sandbox_id: string } };
  const pid = Number(instance.sandbox_id);
  expect(existsSync(`/proc/${pid}`)).toBe(true);
  await bed.server.end('SIGKILL');
  rmSync(bed.server.dataDir, { recursive: true, force: true });
  await vi.waitFor(() => expect(existsSync(`/proc/${pid}`)).toBe(false), WAIT);
}, 120_000);
