import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it, vi } from 'vitest';
import { STOP_AGENTS } from '../../scripts/served.ts';
import { cli } from '../parts/cli.ts';
import { Bed } from './agents.ts';

const CODE = `
import os, sys, time

def handle(event, context):
    if event.get('die'):
        print('no disk left', file=sys.stderr, flush=True)
        os._exit(7)
    while event.get('gate') and not os.path.exists(os.path.join(os.path.dirname(__file__), event['gate'])):
        time.sleep(0.02)
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
      { args: [STOP_AGENTS], env: { ROOKERY_JOBS_CPU_MILLIS: '1000' } },
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

  it('names reason, last line of the log, events and restart command of a crashed agent', async () => {
    const id = await bed.create('crashed', 'code.handle');
    await bed.invoke(id, { die: true });
    // A machine under load may report the lost connection before the exit code.
    const reason = await vi.waitFor(async () => {
      const { status, status_reason: why } = (await bed.ask('GET', `/api/agent/${id}`)).body.instance as Record<
        string,
        string
      >;
      expect(status).toBe('FAILED');
      expect(why).toMatch(/^instance exited: exit code 7$|^the connection to the instance was lost$/);
      return why;
    }, WAIT);
    const out = await explained(
      ['agent', 'crashed', '-n', 'e2e'],
      ...['agent e2e/crashed is FAILED since ', `Reason: ${reason}.\n`, 'Nothing starts it again'],
      ...['1 call failed in the last hour', 'The end of its log:\n  no disk left\n'],
      'Next: rookery agent restart crashed -n e2e\n',
    );
    expect(out).toMatch(/Before:\n {2}\S+ {2}created\n {2}\S+ {2}ready\n {2}\S+ {2}failed {2}/);
    expect(out).toContain(`  failed  ${reason}\n`);
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
    await explained(['agent', id], 'agent e2e/gone is FAILED');
    expect((await bed.ask('POST', `/api/agent/${id}/restart`)).status).toBe(200);
    await bed.ask('DELETE', `/api/agent/${id}`);
    await explained(['agent', id], 'agent e2e/gone is deleted', 'It was deleted.');
  });

  /** Registers a function for one call at a time, and returns the path of its calls. */
  const register = async (name: string, handler: string) => {
    const spec = { kind: 'faas', runtime: bed.runtime, cpu: 300, memory: 128, timeout: 120, handler };
    const code = { storageType: 'local', codePath: bed.codeDir, maxInstance: 1, concurrentNum: 1 };
    const body = { name: `0@e2e@${name}`, ...spec, ...code };
    const { body: registered } = await bed.ask('POST', '/serverless/v1/functions', body, { meta: true });
    return `/serverless/v1/functions/${encodeURIComponent(String(registered.functionVersionUrn))}/invocations`;
  };

  it('names the failure of a handler of a function, and the call that failed', async () => {
    const path = await register('failing', 'code.handle');
    await explained(
      ['function', 'e2e@failing'],
      ...['function e2e@failing is idle.', 'The next call starts one.', 'Next: rookery function invoke e2e@failing\n'],
    );
    expect((await bed.ask('POST', path, { fail: 'again' })).status).toBe(500);
    const out = await explained(
      ['function', 'e2e@failing'],
      ...['It takes calls: 1 of 1 instances are ready and run 0 calls.', '1 call failed in the last hour'],
      ...['4002: Fail to run user call handler. err: ValueError: broken again.', '1 of 1 instances are ready'],
    );
    expect(out).toMatch(/Next: rookery explain call [0-9a-f-]{36}\n$/);
  });

  it('names the code, the reason and the replay of a failed call, and the command of an agent that ended', async () => {
    const path = await register('calls', 'code.handle');
    expect((await bed.ask('POST', path, { fail: 'once' })).status).toBe(500);
    const idOf = async (query: string) =>
      await vi.waitFor(async () => {
        const { calls } = (await bed.ask('GET', `/api/calls?${query}`)).body;
        expect(calls).toHaveLength(1);
        return (calls as readonly { id: string }[])[0]?.id ?? '';
      }, WAIT);
    const id = await idOf('function=e2e@calls');
    await explained(
      ['call', id],
      ...[`call ${id} of e2e@calls:latest is over (failed).`, 'with 4002: Fail to run user call handler.'],
      ...['ValueError: broken once.', 'The handler raised'],
      `Next: rookery call replay ${id} --code <repaired directory>\n`,
    );
    const agent = await bed.create('ends', 'code.handle');
    await bed.invoke(agent, { die: true });
    await explained(['call', await idOf(`agent=${agent}`)], 'with unavailable: ', 'Next: rookery explain agent ');
    expect(await explain('call', '00000000-0000-4000-8000-000000000000')).toMatchObject({ code: 1, out: '' });
  });

  it('explains an asynchronous call that has not ended', async () => {
    const path = await register('later', 'code.handle');
    const { status, body } = await bed.ask('POST', path, { gate: 'later' }, { headers: { 'x-invoke-type': 'async' } });
    expect({ status, ...body }).toMatchObject({ status: 202, requestId: expect.any(String) });
    try {
      await explained(['call', String(body.requestId)], 'is processing since ', 'An instance runs it');
    } finally {
      writeFileSync(join(bed.codeDir, 'later'), '');
    }
  });

  it('names the limit of a function and the calls that wait', async () => {
    const path = await register('full', 'code.handle');
    const calls = [1, 2, 3].map(async () => (await bed.ask('POST', path, { gate: 'open' })).status);
    try {
      await explained(
        ['function', 'e2e@full'],
        ...['function e2e@full is at its limit.', '1 of 1 instances run, each with 1 of 1 calls. Further calls wait.'],
        ...['2 calls wait for an instance.', 'Next: rookery function update e2e@full --max 2\n'],
      );
    } finally {
      writeFileSync(join(bed.codeDir, 'open'), '');
    }
    await Promise.all(calls);
  });

  it('names the missing module of a function whose code does not load', async () => {
    const path = await register('unloadable', 'missing.handle');
    expect((await bed.ask('POST', path, {})).status).toBe(500);
    await explained(
      ['function', 'e2e@unloadable'],
      ...["No module named 'nothere'", 'Calls fail until the code is repaired.'],
      'Next: rookery function update e2e@unloadable --code <directory>\n',
    );
  });

  it('names what a waiting job waits for, and exit code and log of a failed job', async () => {
    const submit = (id: string, entrypoint: string) =>
      bed.ask('POST', '/api/jobs', { submission_id: id, entrypoint, entrypoint_num_cpus: 1 });
    await submit('holds', 'sleep 600');
    await submit('fails', 'echo one; echo no such table; exit 3');
    await explained(
      ['job', 'fails'],
      ...['job fails is PENDING since ', 'It waits for 1 free CPUs of the 1 for jobs.'],
      'Next: rookery wait job fails --for running\n',
    );
    await explained(['job', 'holds'], 'job holds is RUNNING since ', 'Next: rookery job logs -f holds\n');
    await bed.ask('POST', '/api/jobs/holds/stop');
    const out = await explained(
      ['job', 'fails'],
      ...['job fails is FAILED since ', 'Reason: Job entrypoint command failed with exit code 3.'],
      ...['The end of its log:\n  one\n  no such table\n', 'Next: rookery job logs fails\n'],
    );
    expect(out).toMatch(
      /Before:\n {2}\S+ {2}job {2}PENDING .*\n {2}\S+ {2}job {2}RUNNING .*\n {2}\S+ {2}job {2}FAILED /,
    );
    await explained(['job', 'holds'], 'job holds is STOPPED since ', 'A user stopped it.');
    expect(await explain('job', 'nope')).toMatchObject({ code: 1, out: '', err: expect.stringContaining('nope') });
  });

  it('fails for an agent of which nothing is known', async () => {
    expect(await explain('agent', 'nope')).toMatchObject({
      ...{ code: 1, out: '' },
      err: expect.stringContaining('There is no agent default/nope, and no stored event is about it.'),
    });
  });
});
