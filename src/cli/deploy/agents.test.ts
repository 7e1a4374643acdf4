import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, expect, test } from 'vitest';
import { cli, json, StubService } from '../../../test/parts/cli.ts';

const directory = mkdtempSync(join(tmpdir(), 'rookery-deploy-agents-'));
const file = join(directory, 'rookery.yaml');
writeFileSync(file, 'agents: { a: { code: ., handler: app.handle, runtime: python3.11 } }');
writeFileSync(join(directory, 'app.py'), 'def handle(event, context):\n    return event\n');
afterAll(() => rmSync(directory, { recursive: true }));

type Record = { readonly [field: string]: unknown };

const RECORD = {
  ...{ instance_id: 'i-1', namespace: 'default', name: 'a', runtime: 'python3.11', handler: 'app.handle' },
  ...{ ports: [], resources: { cpu: 1000, memory: 512 }, rootfs: { imageurl: '', user: '', mounts: [] } },
};

/** Deploys once, then serves the agent in each of `states` in turn. A create is answered with `status`. */
async function served(states: readonly Record[], status = 200) {
  let looks = 0;
  let revision = '';
  const service = await StubService.start(({ method, url, body }, response) => {
    const record = () => ({
      ...RECORD,
      env_vars: { DEPLOY_REVISION: revision },
      ...states[Math.min(looks++, states.length - 1)],
    });
    if (method === 'POST' && url === '/api/agent') {
      revision = JSON.parse(body).env_vars.DEPLOY_REVISION;
      if (status === 200) json(response, 200, { code: 200, instance_id: 'i-2' });
      else json(response, status, { code: status, message: 'failed to create agent: no room' });
    } else if (url.startsWith('/api/agent?')) json(response, 200, { instances: revision === '' ? [] : [record()] });
    else if (url.startsWith('/api/agent/')) json(response, 200, { instance: { ...RECORD, instance_id: 'i-2' } });
    else json(response, 200, { code: 200 });
  });
  // The first deploy stores the revision of the file.
  expect((await cli(['deploy', '-f', file, '--address', service.address])).code).toBe(status === 200 ? 0 : 1);
  service.seen.length = 0;
  looks = 0;
  return service;
}

const deploy = (service: StubService, command = 'deploy') =>
  cli([command, '-f', file, '--address', service.address, ...(command === 'diff' ? ['--exit-code'] : [])]);

test('deploy keeps an agent that runs as the file says', async () => {
  await using service = await served([{ status: 'RUNNING' }]);
  expect(await deploy(service)).toMatchObject({ code: 0, out: expect.stringContaining('agent default/a: unchanged') });
});

test.each([
  [{ status: 'RUNNING', load_error: 'SyntaxError' }, 'its code could not be loaded'],
  [{ status: 'FAILED' }, 'it is FAILED'],
  [{ status: 'STOPPING' }, 'it is STOPPING'],
])('an agent of the same revision is replaced when it is %j', async (state, why) => {
  await using service = await served([state]);
  expect(await deploy(service, 'diff')).toMatchObject({ code: 1, out: `agent default/a: to be replaced (${why})\n` });
  expect((await deploy(service)).out).toContain(`agent default/a: replaced (${why}): i-2`);
  const writes = service.seen.filter(({ method, url }) => method !== 'GET' && url.startsWith('/api/agent'));
  expect(writes.map(({ method, url }) => `${method} ${url}`)).toEqual(['POST /api/agent']);
  expect(JSON.parse(writes[0]?.body ?? '')).toMatchObject({ name: 'a', replace: true });
});

test.each(['deploy', 'diff'])('the command %s waits until an agent is no longer CREATING', async command => {
  const creating = { status: 'CREATING' };
  await using service = await served([creating, creating, { status: 'RUNNING' }]);
  const { code, out } = await deploy(service, command);
  expect({ code, out }).toMatchObject({ code: 0, out: expect.stringContaining('Nothing') });
  expect(service.seen.filter(({ url }) => url.startsWith('/api/agent?'))).toHaveLength(3);
});

test('a failed replacement reports that the old agent is kept', async () => {
  await using service = await served([{ status: 'FAILED' }], 500);
  expect(await deploy(service)).toMatchObject({
    code: 1,
    out: expect.stringContaining(
      'agent default/a: failed: the old one stays as it is, since the new one: failed to create agent: no room',
    ),
  });
});
