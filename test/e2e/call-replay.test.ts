import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, test, vi } from 'vitest';
import { ROOT, run } from '../../scripts/command.ts';
import { STOP_AGENTS } from '../../scripts/served.ts';
import { Bed } from './agents.ts';

const CODE = `
import os
base = 0
def initialize(context):
    global base
    base = 40
def handle(event, context):
    if 'fail' in event:
        raise ValueError('broken ' + event['fail'])
    return {'sum': base + event['n'], 'word': os.environ.get('WORD')}
def wait(event, context):
    return event['seconds']
def write(event, context):
    return 1
def remember(event, context):
    context.state['n'] = context.state.get('n', 0) + event['n']
    return context.state['n']
`;
const REPAIRED = CODE.replace("raise ValueError('broken ' + event['fail'])", "return 'repaired'");
const WAIT = { timeout: 60_000, interval: 50 };

interface Comparison {
  readonly recorded: object;
  readonly new: object;
  readonly different: readonly string[];
}

describe('rookery call replay', { timeout: 240_000 }, () => {
  let bed: Bed;

  beforeAll(async () => {
    bed = await Bed.start({ 'code.py': CODE }, { args: [STOP_AGENTS], env: { ROOKERY_HISTORY_BODY_BYTES: '200' } });
    mkdirSync(join(bed.codeDir, 'repaired'));
    writeFileSync(join(bed.codeDir, 'repaired/code.py'), REPAIRED);
  }, 120_000);
  afterAll(async () => await bed?.[Symbol.asyncDispose]());

  const cli = (...args: readonly string[]) => {
    const { frontendUrl, metaUrl } = bed.server;
    const addresses = ['--address', frontendUrl, '--meta-address', metaUrl];
    return run(process.execPath, [join(ROOT, 'dist/main.js'), ...args, ...addresses], { capture: true });
  };
  const replay = async (id: string, ...args: readonly string[]) => {
    const { code, output } = await cli('call', 'replay', id, '--json', ...args);
    const text = output.slice(output.indexOf('{"recorded"'));
    return { code, output, ...(JSON.parse(text) as Comparison) };
  };
  /** Waits for the id of the single call of a trace. */
  const callOf = (trace: string) =>
    vi.waitFor(async () => {
      const { calls } = (await bed.ask('GET', `/api/calls?trace_id=${trace}`)).body;
      expect(calls).toHaveLength(1);
      return (calls as readonly { id: string }[])[0]?.id ?? '';
    }, WAIT);
  const invoke = async (agent: string, event: unknown, trace: string) => {
    await bed.ask('POST', `/api/agent/${agent}/invoke`, event, { headers: { 'x-trace-id': trace } });
    return await callOf(trace);
  };
  const names = async () =>
    ((await bed.ask('GET', '/api/agent')).body.instances as readonly { name: string }[]).map(({ name }) => name);

  test('a call of an agent runs on a copy with its settings, which is deleted', async () => {
    const spec = { extendedHandler: { initializer: 'code.initialize' } };
    const agent = await bed.create('sums', 'code.handle', spec, {
      env_vars: { WORD: 'hidden' },
      labels: { of: 'sums' },
    });
    const id = await invoke(agent, { n: 2 }, 'sum');
    const { code, different, new: answer } = await replay(id);
    expect({ code, different, answer }).toMatchObject({
      ...{ code: 0, different: [] },
      answer: { outcome: 'ok', output: '{"sum":42,"word":"hidden"}' },
    });
    expect(await names()).not.toContainEqual(expect.stringMatching(/^replay-/));
  });

  test('a failed call runs on repaired code, and the answers are shown side by side', async () => {
    const agent = await bed.create('broken', 'code.handle');
    const id = await invoke(agent, { fail: 'again' }, 'broken');
    expect(await replay(id)).toMatchObject({ code: 0, different: [] });
    const repaired = await replay(id, '--code', join(bed.codeDir, 'repaired'));
    expect(repaired).toMatchObject({
      ...{ code: 1, different: ['outcome', 'error_code', 'error', 'output'] },
      recorded: { outcome: 'error', error_code: '4002', output: null },
      new: { outcome: 'ok', error_code: null, output: '"repaired"' },
    });
    const { code, output } = await cli('call', 'replay', id, '--code', join(bed.codeDir, 'repaired'));
    expect({ code, output }).toEqual({ code: 1, output: expect.stringMatching(/outcome +error +ok\n/) });
    expect(output).toMatch(/Different: outcome, error_code, error, output\n$/);
    expect(await names()).not.toContainEqual(expect.stringMatching(/^replay-/));
  });

  test('a call of a function runs on its latest version, or on a given one', async () => {
    const body = {
      ...{ name: '0@replays@sums', kind: 'faas', runtime: bed.runtime, cpu: 300, memory: 128 },
      ...{ handler: 'code.handle', storageType: 'local', codePath: bed.codeDir },
    };
    const meta = async (method: 'POST' | 'PUT', path: string, body: object) =>
      (await bed.ask(method, `/serverless/v1/functions${path}`, body, { meta: true })).body as never as {
        readonly code: number;
        readonly function: { readonly revisionId: string };
      };
    const made = await meta('POST', '', body);
    const { revisionId } = made.function;
    const published = await meta('POST', '/0@replays@sums/versions', { revisionId, versionNumber: 'v1' });
    expect(published.code).toBe(0);
    const urn = encodeURIComponent('sn:cn:yrk:default:function:0@replays@sums:v1');
    const headers = { 'x-trace-id': 'of-function' };
    await bed.ask('POST', `/serverless/v1/functions/${urn}/invocations`, { fail: 'v1' }, { headers });
    const id = await callOf('of-function');
    const change = { ...body, codePath: join(bed.codeDir, 'repaired'), revisionId };
    expect((await meta('PUT', '/0@replays@sums', change)).code).toBe(0);
    expect(await replay(id)).toMatchObject({
      ...{ code: 1, recorded: { target: 'replays@sums:v1', outcome: 'error' } },
      new: { target: 'replays@sums:latest', outcome: 'ok', output: '"repaired"' },
    });
    expect(await replay(id, '--version', 'v1')).toMatchObject({ code: 0, new: { target: 'replays@sums:v1' } });
    expect((await cli('call', 'replay', id, '--version', 'v9')).output).toMatch(/v9|version/);
    expect(await cli('call', 'replay', id, '--code', '.')).toMatchObject({ code: 2 });
  });

  test('an input with hidden values or a cut one is refused', async () => {
    const agent = await bed.create('refusals', 'code.handle');
    const refused = async (event: unknown, trace: string) =>
      await cli('call', 'replay', await invoke(agent, event, trace));
    expect(await refused({ n: 1, password: 'x' }, 'hidden')).toEqual({
      ...{ code: 1, output: expect.stringContaining('cannot be replayed: its input has hidden values') },
    });
    expect(await refused({ n: 1, text: 'x'.repeat(500) }, 'cut')).toEqual({
      ...{ code: 1, output: expect.stringMatching(/its input was cut: the history has about \d+ of 517 bytes/) },
    });
    expect(await cli('call', 'replay', 'unknown')).toMatchObject({ code: 1 });
  });

  test('a copy of a durable agent begins without its state, and one that shares files needs --allow-writes', async () => {
    const durable = await bed.create('durable', 'code.remember', {}, { durable: true });
    await invoke(durable, { n: 1 }, 'first');
    const second = await invoke(durable, { n: 5 }, 'second');
    const { code, output, recorded, new: answer } = await replay(second);
    expect({ code, recorded, answer }).toMatchObject({ code: 1, recorded: { output: '6' }, answer: { output: '5' } });
    expect(output).toContain('begins without its saved state');

    const workspace = join(bed.codeDir, 'workspace');
    mkdirSync(workspace);
    const writer = await invoke(await bed.create('writer', 'code.write', {}, { workspace }), {}, 'writes');
    expect(await cli('call', 'replay', writer)).toEqual({
      ...{ code: 1, output: expect.stringContaining(`may write: ${workspace}. If that does no harm`) },
    });
    expect(await replay(writer, '--allow-writes')).toMatchObject({ code: 0, different: [] });
  });

  test('a copy of an agent of a registered function is made from the function', async () => {
    const body = {
      ...{ name: '0@replays@agent', kind: 'agent', runtime: bed.runtime, cpu: 300, memory: 128 },
      ...{ handler: 'code.handle', storageType: 'local', codePath: '/code', rootfs: { imageurl: 'host' } },
      ...{ extendedHandler: { initializer: 'code.initialize' }, environment: { WORD: 'registered' } },
    };
    const made = (await bed.ask('POST', '/serverless/v1/functions', body, { meta: true })).body;
    const { functionVersionUrn: urn } = made.function as { readonly functionVersionUrn: string };
    const mounts = [{ source: bed.codeDir, target: '/code', readonly: true }];
    const created = await bed.ask('POST', '/api/agent', { namespace: 'e2e', name: 'registered', urn, mounts });
    expect(created.status).toBe(200);
    const id = await invoke(String(created.body.instance_id), { n: 1 }, 'registered');
    const output = '{"sum":41,"word":"registered"}';
    expect(await replay(id)).toMatchObject({ code: 0, different: [], new: { output } });
    const repaired = ['--code', join(bed.codeDir, 'repaired')];
    expect(await replay(id, ...repaired)).toMatchObject({ code: 0, different: [], new: { output } });
  });

  test('Ctrl-C deletes the copy', async () => {
    const id = await invoke(await bed.create('slow', 'code.wait'), { seconds: 0 }, 'fast');
    const code = join(bed.codeDir, 'slow');
    mkdirSync(code);
    writeFileSync(join(code, 'code.py'), 'import time\ndef wait(event, context):\n    time.sleep(600)\n');
    const args = ['call', 'replay', id, '--code', code, '--address', bed.server.frontendUrl];
    const child = spawn(process.execPath, [join(ROOT, 'dist/main.js'), ...args], { stdio: 'ignore' });
    const ended = once(child, 'exit');
    try {
      await vi.waitFor(async () => expect(await names()).toContainEqual(expect.stringMatching(/^replay-/)), WAIT);
      child.kill('SIGINT');
      expect(await ended).toEqual([1, null]);
      expect(await names()).not.toContainEqual(expect.stringMatching(/^replay-/));
    } finally {
      child.kill('SIGKILL');
    }
  });

  test('a copy is made of the agent that has the name of a deleted one', async () => {
    const agent = await bed.create('renewed', 'code.handle');
    const id = await invoke(agent, { fail: 'before' }, 'renewed');
    expect((await bed.ask('DELETE', `/api/agent/${agent}`)).status).toBe(200);
    expect((await cli('call', 'replay', id)).output).toContain('The agent e2e/renewed of this call no longer exists');
    await bed.create('renewed', 'code.handle');
    const { code, output } = await replay(id);
    expect({ code, output }).toEqual({ code: 0, output: expect.stringContaining('the agent that has its name now') });
  });
});
