import { mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, test, vi } from 'vitest';
import { ROOT, run } from '../../scripts/command.ts';
import { STOP_AGENTS } from '../../scripts/served.ts';
import { Bed } from './agents.ts';

const CODE = `
seen = 0
def handle(event, context):
    global seen
    seen += 1
    if event.get('fail'):
        raise ValueError('no ' + event['fail'])
    return {'n': event['n'], 'seen': seen}
`;
/** Answers otherwise for the number 3, and never for 5. */
const CHANGED = CODE.replace(
  '    return {',
  "    if event['n'] == 3:\n        return 'three'\n    if event['n'] == 5:\n        import time\n        time.sleep(600)\n    return {",
);
const WAIT = { timeout: 60_000, interval: 50 };

describe('rookery call replay --all', { timeout: 240_000 }, () => {
  let bed: Bed;

  beforeAll(async () => {
    const env = { ROOKERY_HISTORY_PER_SECOND: '1000' };
    bed = await Bed.start({ 'code.py': CODE }, { args: [STOP_AGENTS], env });
    mkdirSync(join(bed.codeDir, 'changed'));
    writeFileSync(join(bed.codeDir, 'changed/code.py'), CHANGED);
  }, 120_000);
  afterAll(async () => await bed?.[Symbol.asyncDispose]());

  const replay = (...args: readonly string[]) => {
    const { frontendUrl, metaUrl } = bed.server;
    const main = join(ROOT, 'dist/main.js');
    const all = [main, 'call', 'replay', '--all', ...args, '--address', frontendUrl, '--meta-address', metaUrl];
    return run(process.execPath, all, { capture: true });
  };
  const changed = () => ['--code', join(bed.codeDir, 'changed')];
  /** Makes calls, and returns their ids, oldest first. */
  const called = async (agent: string, events: readonly object[]): Promise<readonly string[]> => {
    for (const event of events) await bed.invoke(agent, event);
    return await vi.waitFor(async () => {
      const { calls } = (await bed.ask('GET', `/api/calls?agent=${agent}`)).body;
      expect(calls).toHaveLength(events.length);
      return (calls as readonly { id: string }[]).map(({ id }) => id).reverse();
    }, WAIT);
  };

  test('the calls of an agent run in order on one copy, and only those that differ are printed', async () => {
    const agent = await bed.create('counted', 'code.handle');
    const ids = await called(agent, [{ n: 1 }, { fail: 'luck' }, { n: 3 }, { n: 4 }]);
    expect(await replay('--agent', 'counted', '-n', 'e2e')).toEqual({ code: 0, output: '4 calls: 4 same, 0 differ\n' });
    const { code, output } = await replay('--agent', agent, ...changed());
    const line = `${ids[2]}  output  {"n":3,"seen":3} → "three"\n`;
    expect({ code, output }).toEqual({ code: 1, output: `${line}4 calls: 3 same, 1 differ\n` });
    const { instances } = (await bed.ask('GET', '/api/agent')).body;
    expect((instances as readonly { name: string }[]).map(({ name }) => name)).not.toContainEqual(
      expect.stringMatching(/^replay-/),
    );
  });

  test('a limit selects the newest calls, and calls that cannot be replayed are skipped', async () => {
    const agent = await bed.create('limited', 'code.handle');
    const ids = await called(agent, [{ n: 1 }, { n: 2, password: 'x' }, { fail: 'twice' }]);
    const { code, output } = await replay('--agent', agent, '--limit', '2');
    expect({ code, output }).toEqual({
      code: 0,
      output: expect.stringContaining('only the newest 2 calls are replayed'),
    });
    expect(output).toContain(`${ids[1]}  skipped: The call ${ids[1]} cannot be replayed: its input has hidden values`);
    expect(output).toMatch(/^2 calls: 1 same, 0 differ, 1 skipped$/m);
    const { calls, ...counts } = JSON.parse((await replay('--agent', agent, '--json')).output) as { calls: object[] };
    expect(counts).toEqual({ same: 2, differ: 0, skipped: 1 });
    expect(calls).toMatchObject([{ different: [] }, { new: null }, { recorded: { id: ids[2] } }]);
  });

  test('a call that takes longer than --timeout differs, and the calls of the agent behind it are skipped', async () => {
    const agent = await bed.create('late', 'code.handle');
    const ids = await called(agent, [{ n: 1 }, { n: 5 }, { n: 6 }]);
    const { code, output } = await replay('--agent', agent, '--timeout', '3s', ...changed());
    expect({ code, output }).toEqual({ code: 1, output: expect.stringContaining(`${ids[1]}  time  {"n":5`) });
    expect(output).toContain(`${ids[2]}  skipped: the call ${ids[1]} took longer than --timeout and may still run\n`);
    expect(output).toMatch(/^3 calls: 1 same, 1 differ, 1 skipped$/m);
  });

  test('the calls of a function run on a given version', async () => {
    const body = {
      ...{ name: '0@replayed@all', kind: 'faas', runtime: bed.runtime, cpu: 300, memory: 128 },
      ...{ handler: 'code.handle', storageType: 'local', codePath: bed.codeDir },
    };
    const meta = async (method: 'POST' | 'PUT', path: string, body: object) =>
      (await bed.ask(method, `/serverless/v1/functions${path}`, body, { meta: true })).body as never as {
        readonly code: number;
        readonly function: { readonly revisionId: string };
      };
    const { revisionId } = (await meta('POST', '', body)).function;
    expect((await meta('POST', '/0@replayed@all/versions', { revisionId, versionNumber: 'v1' })).code).toBe(0);
    const urn = encodeURIComponent('sn:cn:yrk:default:function:0@replayed@all:v1');
    for (const fail of ['first', 'second']) {
      await bed.ask('POST', `/serverless/v1/functions/${urn}/invocations`, { fail });
    }
    await vi.waitFor(async () => {
      expect((await bed.ask('GET', '/api/calls?function=replayed@all')).body.calls).toHaveLength(2);
    }, WAIT);
    const other = { ...body, codePath: join(bed.codeDir, 'other'), revisionId };
    mkdirSync(other.codePath);
    writeFileSync(join(other.codePath, 'code.py'), 'def handle(event, context):\n    return 1\n');
    expect((await meta('PUT', '/0@replayed@all', other)).code).toBe(0);
    const latest = await replay('--function', 'replayed@all', '--since', '1h', '--limit', '2');
    expect(latest).toEqual({ code: 1, output: expect.stringMatching(/^2 calls: 0 same, 2 differ$/m) });
    // The newest calls are now those of the latest version, which v1 answers otherwise.
    await vi.waitFor(async () => {
      expect((await bed.ask('GET', '/api/calls?function=replayed@all')).body.calls).toHaveLength(4);
    }, WAIT);
    const published = await replay('--function', 'replayed@all', '--version', 'v1');
    expect(published).toEqual({ code: 1, output: expect.stringMatching(/^4 calls: 2 same, 2 differ$/m) });
  });

  test.each([
    [['--agent', 'a', '--function', 'b@c'], '--all needs either --agent or --function.'],
    [['--agent', 'a', '--version', 'v1'], '--version is for functions: use --code.'],
    [['--function', 'b@c', '--code', '.'], '--code and --allow-writes are for agents: publish the code and use'],
    [['--agent', 'a', '--limit', '1001'], '--limit must be a whole number from 1 to 1000, not "1001".'],
    [['an-id', '--agent', 'a'], 'Give the id of a call, or --all.'],
  ])('%j is refused', async (args, message) => {
    expect(await replay(...args)).toEqual({ code: 2, output: expect.stringContaining(message) });
  });
});
