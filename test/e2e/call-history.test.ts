import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, test, vi } from 'vitest';
import { ROOT, run } from '../../scripts/command.ts';
import { Bed } from './agents.ts';

const CODE = `
def echo(event, context):
    return event
def seen(event, context):
    return context.traceparent
def talk(event, context):
    print(event['say'], flush=True)
    context.getLogger().warning('logged')
def fail(event, context):
    raise ValueError('no')
def spans(event, context):
    with context.span('fetch', {'url': 'https://example/?token=abc', 'password': 'hunter2', 'rows': 3}):
        with context.span('parse'):
            pass
    if isinstance(event, dict) and event.get('fail'):
        with context.span('save'):
            raise ValueError('no table')
    yield 1
def end(event, context):
    import os
    os._exit(7)
`;
const NODE_CODE = `
exports.fail = async () => { throw new Error('not today'); };
`;
const WAIT = { timeout: 60_000, interval: 50 };
const URN = (name: string) => `sn:cn:yrk:default:function:0@calls@${name}:$latest`;

interface Call {
  readonly id: string;
  readonly [field: string]: unknown;
}

describe('the history of calls', { timeout: 180_000 }, () => {
  let bed: Bed;
  let agent: string;

  beforeAll(async () => {
    bed = await Bed.start({ 'code.py': CODE, 'code.js': NODE_CODE });
    agent = await bed.create('echo', 'code.echo');
    for (const [name, runtime] of [
      ['echo', bed.runtime],
      ['seen', bed.runtime],
      ['talk', bed.runtime],
      ['fail', bed.runtime],
      ['spans', bed.runtime],
      ['node-fail', 'nodejs'],
    ] as const) {
      const body = {
        ...{ name: `0@calls@${name}`, kind: 'faas', runtime, cpu: 300, memory: 128 },
        ...{ handler: `code.${name.replace('node-', '')}`, storageType: 'local', codePath: bed.codeDir },
      };
      expect((await bed.ask('POST', '/serverless/v1/functions', body, { meta: true })).status).toBe(200);
    }
  }, 120_000);
  afterAll(async () => await bed?.[Symbol.asyncDispose]());

  const invoke = (name: string, event: unknown, headers: Record<string, string> = {}) =>
    bed.ask('POST', `/serverless/v1/functions/${URN(name)}/invocations`, event, { headers });
  const fetchStream = (name: string, trace: string) =>
    fetch(`${bed.server.frontendUrl}/serverless/v1/functions/${URN(name)}/invocations`, {
      ...{ method: 'POST', body: '1' },
      headers: { accept: 'text/event-stream', 'x-trace-id': trace },
    });
  const list = async (query: string) => (await bed.ask('GET', `/api/calls?${query}`)).body.calls as Call[];
  const get = async (id: string) => (await bed.ask('GET', `/api/calls/${id}`)).body.call as Call;
  /** Waits for the single call of a trace. */
  const callOf = (trace: string) =>
    vi.waitFor(async () => {
      const [call, ...others] = await list(`trace_id=${trace}`);
      expect([call === undefined, others]).toEqual([false, []]);
      return await get((call as Call).id);
    }, WAIT);

  test('an agent leaves a record of its call, without the values of hidden fields', async () => {
    const headers = { 'x-trace-id': 'agent-ok' };
    const event = { n: 1, password: 'hunter2' };
    await bed.ask('POST', `/api/agent/${agent}/invoke`, event, { headers });
    const shown = '{"n":1,"password":"[redacted]"}';
    expect(await callOf('agent-ok')).toMatchObject({
      ...{ kind: 'agent', agent_id: agent, name: 'e2e/echo', mode: 'sync', outcome: 'ok', error_code: null },
      ...{ input: shown, is_output_cut: false },
    });
    expect(JSON.stringify(await callOf('agent-ok'))).not.toContain('hunter2');
  });

  test.each(['fail', 'node-fail'])('the function %s leaves a record of its failed call', async name => {
    await invoke(name, { a: 1 }, { 'x-trace-id': name });
    expect(await callOf(name)).toMatchObject({
      ...{ kind: 'function', function: `0@calls@${name}`, version: 'latest', outcome: 'error', error_code: '4002' },
      ...{ input: '{"a":1}', output: null, error: expect.stringMatching(/no/) },
    });
  });

  test('the record of the call that ended an agent has its name', async () => {
    const id = await bed.create('ends', 'code.end');
    await bed.invoke(id);
    await vi.waitFor(async () => {
      expect(await list(`agent=${id}`)).toMatchObject([{ name: 'e2e/ends', outcome: 'error' }]);
    }, WAIT);
  });

  test('streamed, asynchronous and Lambda calls leave records of their kind', async () => {
    const streamed = await fetchStream('echo', 'streamed');
    expect(await streamed.text()).toContain('[DONE]');
    expect(await callOf('streamed')).toMatchObject({ mode: 'stream', output: '1' });
    const submitted = await invoke('echo', 2, { 'x-invoke-type': 'async', 'x-trace-id': 'async' });
    expect(await callOf('async')).toMatchObject({ id: submitted.body.requestId, mode: 'async', output: '2' });
    // A handler passes its traceparent on to the calls that it makes.
    const trace = 'b'.repeat(32);
    const parent = await invoke('seen', {}, { traceparent: `00-${trace}-${'1'.repeat(16)}-01` });
    const headers = { traceparent: String(parent.body) };
    await bed.ask('POST', '/lambda/2015-03-31/functions/calls@echo/invocations', 3, { headers });
    await vi.waitFor(async () => {
      const modes = (await list(`trace_id=${trace}`)).map(({ mode }) => mode);
      expect(modes).toEqual(['lambda', 'sync']);
    }, WAIT);
  });

  test('spans of a handler are in the record of a plain, streamed, asynchronous and failed call, with hidden values', async () => {
    const spans = [
      {
        ...{
          name: 'fetch',
          parent: null,
          outcome: 'ok',
          start_ms: expect.any(Number),
          duration_ms: expect.any(Number),
        },
        attributes: { url: 'https://example/?token=[redacted]', password: '[redacted]', rows: 3 },
      },
      { name: 'parse', parent: 0, outcome: 'ok', start_ms: expect.any(Number), duration_ms: expect.any(Number) },
    ];
    await invoke('spans', {}, { 'x-trace-id': 'spans-plain' });
    await (await fetchStream('spans', 'spans-streamed')).text();
    await invoke('spans', {}, { 'x-invoke-type': 'async', 'x-trace-id': 'spans-async' });
    for (const trace of ['spans-plain', 'spans-streamed', 'spans-async']) {
      expect(await callOf(trace)).toMatchObject({ outcome: 'ok', spans, dropped_spans: 0 });
    }
    await invoke('spans', { fail: true }, { 'x-trace-id': 'spans-failed' });
    expect((await callOf('spans-failed')).spans).toMatchObject([
      ...spans,
      { name: 'save', parent: null, outcome: 'error', error: 'ValueError: no table' },
    ]);
    expect(JSON.stringify(await callOf('spans-failed'))).not.toContain('hunter2');
    const agentWithSpans = await bed.create('spans', 'code.spans');
    await bed.invoke(agentWithSpans, {}, { headers: { 'x-trace-id': 'spans-agent' } });
    expect(await callOf('spans-agent')).toMatchObject({ kind: 'agent', spans });
    await bed.invoke(agent, 1, { headers: { 'x-trace-id': 'spans-none' } });
    expect(await callOf('spans-none')).toMatchObject({ spans: [], dropped_spans: 0 });
  });

  test('call show opens a call by the trace id of its error message, and prints its waterfall', async () => {
    await invoke('spans', { fail: true }, { 'x-trace-id': 'spans-shown' });
    await callOf('spans-shown');
    const args = ['call', 'show', 'spans-shown', '--address', bed.server.frontendUrl];
    const { code, output } = await run(process.execPath, [join(ROOT, 'dist/main.js'), ...args], { capture: true });
    expect(code).toBe(0);
    const time = '[\\d.]+m?s';
    expect(output).toMatch(new RegExp(`\\n {2}run +${time} +${time} +[.#]{32}`));
    expect(output).toMatch(new RegExp(`\\n {4}fetch +${time} +${time} +[.#]{32} +url=`));
    expect(output).toMatch(new RegExp(`\\n {6}parse +${time} +${time} +[.#]{32}`));
    expect(output).toMatch(new RegExp(`\\n {4}save +${time} +${time} +[.#]{32} +error: ValueError: no table`));
    const unknown = await run(
      process.execPath,
      [join(ROOT, 'dist/main.js'), 'call', 'show', 'no-such', ...args.slice(3)],
      {
        capture: true,
      },
    );
    expect([unknown.code, unknown.output]).toEqual([1, expect.stringContaining('call not found: no-such')]);
  });

  test('call show prints the lines of a call, and marks those that another call may have printed', async () => {
    const talker = await bed.create('talker', 'code.talk');
    const shown = async (trace: string) => {
      const { id } = await callOf(trace);
      const { frontendUrl, metaUrl } = bed.server;
      const args = ['call', 'show', id, '--json', '--address', frontendUrl, '--meta-address', metaUrl];
      const { code, output } = await run(process.execPath, [join(ROOT, 'dist/main.js'), ...args], { capture: true });
      expect(code).toBe(0);
      return (JSON.parse(output) as { log: { lines: readonly { text: string; is_certain: boolean }[] } | null }).log;
    };
    let round = 0;
    // A busy machine may bring a line to the log too late for its call.
    await vi.waitFor(async () => {
      const trace = `talk-${++round}`;
      await bed.invoke(talker, { say: 'before' });
      await bed.invoke(talker, { say: `word ${trace}` }, { headers: { 'x-trace-id': trace } });
      expect((await shown(trace))?.lines).toContainEqual({ text: `word ${trace}`, is_certain: true, offset_ms: null });
    }, WAIT);
    await vi.waitFor(async () => {
      const trace = `several-${++round}`;
      await invoke('talk', { say: 'any' }, { 'x-trace-id': trace });
      const lines = (await shown(trace))?.lines;
      expect(lines).toContainEqual({ text: 'any', is_certain: false, offset_ms: null });
      const logged = { text: expect.stringContaining(trace), is_certain: true, offset_ms: expect.any(Number) };
      expect(lines).toContainEqual(logged);
    }, WAIT);
    const text = await vi.waitFor(async () => {
      await bed.invoke(talker, { say: 'printed' }, { headers: { 'x-trace-id': `text-${++round}` } });
      const { id } = await callOf(`text-${round}`);
      const args = ['call', 'show', id, '--address', bed.server.frontendUrl];
      const { output } = await run(process.execPath, [join(ROOT, 'dist/main.js'), ...args], { capture: true });
      expect(output).toContain('printed\n');
      return output;
    }, WAIT);
    expect(text).toMatch(/\nlog:\n(.*\n)* *printed\n\+\d+\.\dms run {2}\d{4}-.* logged\n/);
    expect((await bed.ask('DELETE', `/api/agent/${talker}`)).status).toBe(200);
    expect(await shown(`text-${round}`)).toBeNull();
  });

  test('a call to an unknown agent leaves no record', async () => {
    const unknown = '00000000-0000-4000-8000-000000000000';
    const headers = { 'x-trace-id': 'unknown' };
    expect((await bed.ask('POST', `/api/agent/${unknown}/invoke`, {}, { headers })).status).toBe(404);
    await bed.ask('POST', `/api/agent/${agent}/invoke`, {}, { headers: { 'x-trace-id': 'after-unknown' } });
    await callOf('after-unknown');
    expect(await list('trace_id=unknown')).toEqual([]);
  });

  test('records survive a kill of the service', async () => {
    await bed.ask('POST', `/api/agent/${agent}/invoke`, {}, { headers: { 'x-trace-id': 'before-kill' } });
    const before = await callOf('before-kill');
    await bed.killAndRestart();
    expect(await callOf('before-kill')).toEqual(before);
  });
});
