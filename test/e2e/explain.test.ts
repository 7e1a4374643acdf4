import { afterAll, beforeAll, describe, expect, it, vi } from 'vitest';
import { STOP_AGENTS } from '../../scripts/served.ts';
import { cli } from '../parts/cli.ts';
import { Bed } from './agents.ts';

const CODE = `
import os, sys

def handle(event, context):
    if event.get('die'):
        print('no disk left', file=sys.stderr, flush=True)
        os._exit(7)
    if event.get('fail'):
        raise ValueError('broken ' + event['fail'])
    return 1
`;
const WAIT = { timeout: 60_000, interval: 50 };

describe('rookery explain', { timeout: 240_000 }, () => {
  let bed: Bed;

  beforeAll(async () => {
    bed = await Bed.start(
      { 'code.py': CODE, 'missing.py': 'import nothere\ndef handle(event, context):\n    return 1\n' },
      { args: [STOP_AGENTS] },
    );
  }, 120_000);
  afterAll(async () => await bed?.[Symbol.asyncDispose]());

  const explain = async (...args: readonly string[]) => {
    const { frontendUrl, metaUrl } = bed.server;
    const addresses = ['--address', frontendUrl, '--meta-address', metaUrl];
    const { code, out, err } = await cli(['explain', ...args, ...addresses]);
    return { code, out, err };
  };
  /** Waits until an explanation has all parts, because calls reach the history after their answer. */
  const explained = (args: readonly string[], ...parts: readonly string[]) =>
    vi.waitFor(async () => {
      const { out, err } = await explain(...args);
      for (const part of parts) expect(out + err).toContain(part);
      return out;
    }, WAIT);

  it('names exit code, last line of the log, events and restart command of a crashed agent', async () => {
    const id = await bed.create('crashed', 'code.handle');
    await bed.invoke(id, { die: true });
    const out = await explained(
      ['agent', 'crashed', '-n', 'e2e'],
      ...['agent e2e/crashed is FAILED since ', 'Reason: instance exited: exit code 7.'],
      ...['Nothing starts it again', '1 call failed in the last hour', 'The end of its log:\n  no disk left\n'],
      'Next: rookery agent restart crashed -n e2e\n',
    );
    expect(out).toMatch(
      /Before:\n {2}\S+ {2}created\n {2}\S+ {2}ready\n {2}\S+ {2}failed {2}instance exited: exit code 7/,
    );
    const { out: facts } = await explain('agent', id, '--json');
    expect(JSON.parse(facts)).toMatchObject({
      ...{ kind: 'agent', name: 'e2e/crashed', state: 'FAILED', log: ['no disk left'] },
      ...{ events: [{ type: 'created' }, { type: 'ready' }, { type: 'failed' }], record: { instance_id: id } },
    });
  });

  it('shows the log before the restart of an agent that runs again', async () => {
    const id = await bed.create('again', 'code.handle', {}, { restart_policy: { policy: 'on-failure' } });
    await bed.invoke(id, { die: true });
    await explained(
      ['agent', 'again', '-n', 'e2e'],
      ...['agent e2e/again is RUNNING since ', 'It was restarted once.', 'restarting'],
      'The end of its log before the last restart:\n  no disk left\n',
    );
  });

  it('names the missing module of an agent whose code does not load', async () => {
    await bed.create('missing', 'missing.handle');
    await explained(
      ['agent', 'missing', '-n', 'e2e'],
      ...['agent e2e/missing is RUNNING (code not loaded)', "No module named 'nothere'", 'Every call fails with this'],
      'Next: rookery agent restart missing -n e2e\n',
    );
  });

  it('explains a create that failed from its events', async () => {
    const spec = { rootfs: { imageurl: 'host', user: 'no-such-user' } };
    expect((await bed.ask('POST', '/api/agent', bed.createBody('failed', 'code.handle', spec))).status).toBe(500);
    await explained(
      ['agent', 'failed', '-n', 'e2e'],
      'agent e2e/failed is deleted',
      'Its start failed: ',
      'no-such-user',
    );
  });

  it('explains an agent that was deleted after a restart without the reason of the earlier failure', async () => {
    const id = await bed.create('gone', 'code.handle');
    await bed.invoke(id, { die: true });
    await bed.ask('POST', `/api/agent/${id}/restart`);
    await bed.ask('DELETE', `/api/agent/${id}`);
    await explained(['agent', id], 'agent e2e/gone is deleted', 'It was deleted.');
  });

  it('fails for an agent of which nothing is known', async () => {
    expect(await explain('agent', 'nope')).toMatchObject({
      ...{ code: 1, out: '' },
      err: expect.stringContaining('There is no agent default/nope, and no stored event is about it.'),
    });
  });
});
