import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, test, vi } from 'vitest';
import { Rookery } from '../../clients/typescript/src/index.ts';
import { ROOT, run } from '../../scripts/command.ts';
import { STOP_AGENTS } from '../../scripts/served.ts';
import { Bed } from './agents.ts';

const CODE = `
def echo(event, context):
    return event
`;
const WAIT = { timeout: 60_000, interval: 50 };
const TEXT = 'a'.repeat(20_000);
const NAME = '0@recorded@echo';
const URN = `sn:cn:yrk:default:function:${NAME}:$latest`;

interface Call {
  readonly id: string;
  readonly input_bytes: number;
}

describe('recordings of all calls', { timeout: 180_000 }, () => {
  let bed: Bed;

  beforeAll(async () => {
    bed = await Bed.start({ 'code.py': CODE }, { args: [STOP_AGENTS], env: { ROOKERY_HISTORY_PER_SECOND: '0' } });
  }, 120_000);
  afterAll(async () => await bed?.[Symbol.asyncDispose]());

  const cli = (...args: readonly string[]) => {
    const { frontendUrl, metaUrl } = bed.server;
    const addresses = ['--address', frontendUrl, '--meta-address', metaUrl];
    return run(process.execPath, [join(ROOT, 'dist/main.js'), ...args, ...addresses], { capture: true });
  };
  const list = async (query: string) =>
    (await bed.ask('GET', `/api/calls?${query}&limit=1000`)).body.calls as readonly Call[];

  test('an agent keeps every call with its whole input over a crash, until the recording is stopped', async () => {
    const agent = await bed.create('kept', 'code.echo');
    const invoke = async (count: number) => {
      for (let n = 0; n < count; n++) expect((await bed.invoke(agent, { n, TEXT })).status).toBe(200);
    };
    await invoke(1);
    const started = await cli('agent', 'record', 'kept', '-n', 'e2e', '--for', '10m');
    expect(started).toMatchObject({
      code: 0,
      output: expect.stringMatching(/^All calls of kept are recorded until 2/),
    });
    await invoke(30);
    await vi.waitFor(async () => expect(await list(`agent=${agent}`)).toHaveLength(30), WAIT);
    await bed.disconnect();
    await bed.killAndRestart();
    expect((await cli('agent', 'get', agent)).output).toMatch(/^records all calls until {2}2/m);
    await invoke(30);
    const calls = await vi.waitFor(async () => {
      const found = await list(`agent=${agent}`);
      expect(found).toHaveLength(60);
      return found;
    }, WAIT);
    const { call } = (await bed.ask('GET', `/api/calls/${calls[0]?.id}`)).body;
    const whole = JSON.stringify({ n: 29, TEXT });
    expect(call).toMatchObject({ input: whole, output: whole, is_input_cut: false, is_output_cut: false });
    expect((await cli('agent', 'record', agent, '--stop')).output).toBe(`The recording of ${agent} has ended.\n`);
    await invoke(1);
    expect((await cli('agent', 'get', agent)).output).not.toContain('records all calls');
    await bed.invoke(agent, '"bad', { headers: { 'x-trace-id': 'later' } });
    expect(await list(`agent=${agent}`)).toHaveLength(60);
    expect(await cli('agent', 'record', agent, '--stop')).toMatchObject({
      ...{ code: 1, output: expect.stringContaining(`no recording of the calls of agent ${agent}`) },
    });
  });

  test('a function is recorded in all versions, and only for its own tenant', async () => {
    const body = {
      ...{ name: NAME, kind: 'faas', runtime: bed.runtime, cpu: 300, memory: 128 },
      ...{ handler: 'code.echo', storageType: 'local', codePath: bed.codeDir },
    };
    expect((await bed.ask('POST', '/serverless/v1/functions', body, { meta: true })).status).toBe(200);
    const client = new Rookery({ url: bed.server.frontendUrl });
    try {
      const other = { headers: { 'x-tenant-id': 'other' } };
      const refused = await bed.ask('PUT', '/api/recordings', { function: 'recorded@echo' }, other);
      expect(refused).toMatchObject({ status: 404, body: { message: `function not found: ${NAME}` } });
      const recording = await client.calls.record({ function: 'recorded@echo', seconds: 600 });
      expect(recording).toMatchObject({ kind: 'function', function: NAME });
      expect(await client.calls.recordings()).toEqual([recording]);
      expect((await bed.ask('GET', '/api/recordings', undefined, other)).body).toMatchObject({ recordings: [] });
      for (let n = 0; n < 5; n++) {
        expect((await bed.ask('POST', `/serverless/v1/functions/${URN}/invocations`, { n })).status).toBe(200);
      }
      await vi.waitFor(async () => expect(await list('function=recorded@echo')).toHaveLength(5), WAIT);
      await client.calls.stopRecording({ function: NAME });
      expect(await client.calls.recordings()).toEqual([]);
      await expect(client.calls.stopRecording({ function: NAME })).rejects.toMatchObject({ status: 404 });
      expect((await cli('function', 'record', 'recorded@echo', '--for', '8d')).output).toContain('seconds must be');
    } finally {
      client.close();
    }
  });
});
