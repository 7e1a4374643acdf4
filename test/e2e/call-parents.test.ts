import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, test, vi } from 'vitest';
import { ROOT, run } from '../../scripts/command.ts';
import { Bed } from './agents.ts';

const CODE = `
import urllib.request
def relay(event, context):
    request = urllib.request.Request(event['url'], data=b'{}', headers={
        'content-type': 'application/json', 'traceparent': context.traceparent})
    with urllib.request.urlopen(request, timeout=60) as answer:
        return answer.status
def echo(event, context):
    return event
`;
const NODE_CODE = `
exports.relay = async (event, context) => {
  const headers = { 'content-type': 'application/json', traceparent: context.traceparent };
  return (await fetch(event.url, { method: 'POST', body: '{}', headers })).status;
};
`;
const WAIT = { timeout: 60_000, interval: 50 };

interface Call {
  readonly id: string;
  readonly [field: string]: unknown;
}

describe('the call that made a call', { timeout: 180_000 }, () => {
  let bed: Bed;
  let echo: string;

  beforeAll(async () => {
    // The handlers call the service on the loopback of this machine.
    const env = { ROOKERY_PROCESS_NETWORK: 'shared' };
    bed = await Bed.start({ 'code.py': CODE, 'code.js': NODE_CODE }, { env });
    echo = await bed.create('echo', 'code.echo');
  }, 120_000);
  afterAll(async () => await bed?.[Symbol.asyncDispose]());

  const list = async (query: string) => (await bed.ask('GET', `/api/calls?${query}`)).body.calls as Call[];
  const cli = async (...args: readonly string[]) => {
    const addresses = ['--address', bed.server.frontendUrl, '--meta-address', bed.server.metaUrl];
    return await run(process.execPath, [join(ROOT, 'dist/main.js'), ...args, ...addresses], { capture: true });
  };

  test.each([
    ['python', {}],
    ['nodejs', { runtime: 'nodejs' }],
  ])('is recorded when a handler of %s passes its traceparent on', async (language, spec) => {
    const agent = await bed.create(`relay-${language}`, 'code.relay', spec);
    // A trace id that is no part of a traceparent: only the parent links the two calls.
    const headers = { 'x-trace-id': `of-${language}` };
    const url = `${bed.server.frontendUrl}/api/agent/${echo}/invoke`;
    expect(await bed.invoke(agent, { url }, { headers })).toMatchObject({ status: 200, body: { data: 200 } });
    const outer = await vi.waitFor(async () => {
      const calls = await list(`agent=${agent}`);
      expect(calls).toMatchObject([{ outcome: 'ok', parent_id: null, trace_id: `of-${language}` }]);
      return (calls[0] as Call).id;
    }, WAIT);
    const inner = await vi.waitFor(async () => {
      const calls = await list(`parent=${outer}`);
      expect(calls).toMatchObject([{ agent_id: echo, parent_id: outer }]);
      return (calls[0] as Call).id;
    }, WAIT);
    expect((await cli('call', 'show', inner)).output).toMatch(new RegExp(`made by +${outer}\n`));
    expect((await cli('call', 'show', outer)).output).toMatch(new RegExp(`\ncalls that it made:\n.*\n${inner} `));
    expect(JSON.parse((await cli('call', 'show', outer, '--json')).output)).toMatchObject({ made: [{ id: inner }] });
    expect((await cli('calls', '--parent', outer, '--quiet')).output).toBe(`${inner}\n`);
  });
});
