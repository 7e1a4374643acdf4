import { execFile } from 'node:child_process';
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { SignJWT } from 'jose';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { ROOT } from '../../scripts/command.ts';
import { Bed } from './agents.ts';

const SECRET = 'a secret that is at least 32 bytes long';
const VALUE = 'hunter2-is-no-password';

let bed: Bed;
let directory: string;
let agentId: string;
let urn: string;

async function as(role: string | null) {
  const jwt = new SignJWT(role === null ? {} : { role })
    .setProtectedHeader({ alg: 'HS256' })
    .setSubject('acme')
    .setExpirationTime('1h');
  return { headers: { 'x-auth': await jwt.sign(Buffer.from(SECRET)) } };
}

beforeAll(async () => {
  directory = mkdtempSync(join(tmpdir(), 'rookery-viewer-'));
  const secretFile = join(directory, 'secret');
  writeFileSync(secretFile, SECRET);
  const sets = [
    'enable_func_token_auth=true',
    `jwt.secretFile=${secretFile}`,
    'pools.tenants=acme',
    'pools.images=any',
  ];
  const args = sets.flatMap(set => ['--set', set]);
  bed = await Bed.start({ 'plain.py': 'def handler(event, context):\n    return event\n' }, { args });
  const developer = await as('developer');
  const runtime_spec = { runtime: bed.runtime, rootfs: { imageurl: 'any' } };
  const agent = await bed.ask(
    'POST',
    '/api/agent',
    { namespace: 'v', name: 'v', env_vars: { KEY: VALUE }, runtime_spec },
    developer,
  );
  expect(agent.body).toMatchObject({ code: 200 });
  agentId = String(agent.body.instance_id);
  const fn = await bed.ask(
    'POST',
    '/serverless/v1/functions',
    {
      name: '0@v@viewed',
      runtime: bed.runtime,
      kind: 'faas',
      cpu: 500,
      memory: 500,
      timeout: 10,
      handler: 'plain.handler',
      environment: { KEY: VALUE },
      storageType: 'local',
      codePath: bed.codeDir,
    },
    { ...developer, meta: true },
  );
  expect(fn.body).toMatchObject({ code: 0 });
  urn = String(fn.body.functionVersionUrn);
  const pool = {
    id: 'viewed',
    size: 1,
    environment: { KEY: VALUE },
    image: 'any',
    resources: { requests: { cpu: '100m', memory: '100Mi' }, limits: { cpu: '100m', memory: '100Mi' } },
  };
  const pools = await bed.ask('POST', '/serverless/v1/podpools', { pools: [pool] }, { ...developer, meta: true });
  expect(pools.body).toMatchObject({ code: 0 });
  const job = { entrypoint: 'true', submission_id: 'viewed', runtime_env: { env_vars: { KEY: VALUE } } };
  expect((await bed.ask('POST', '/api/jobs', job, developer)).status).toBe(200);
  const schedule = { schedule_id: 'viewed', cron: '0 0 1 1 *', job: { ...job, submission_id: undefined } };
  expect((await bed.ask('POST', '/api/job_schedules', schedule, developer)).status).toBe(200);
});

afterAll(async () => {
  await bed?.[Symbol.asyncDispose]();
  if (directory) rmSync(directory, { recursive: true, force: true });
});

/**
 * Every `GET` of both entries that returns stored records as JSON; `true` marks records with an environment.
 */
const FRONTEND = {
  '/api/agent': true,
  '/api/agent/{instanceId}': true,
  '/api/jobs': true,
  '/api/jobs/{id}': true,
  '/api/job_schedules': true,
  '/api/job_schedules/{id}': true,
  '/api/jobs/{id}/logs': false,
  '/api/version': false,
  '/api/cluster': false,
  '/api/packages/{protocol}/{name}': false,
  '/api/agent/{instanceId}/files/list': false,
  '/api/agent/{instanceId}/files/download': false,
  '/api/agent/{instanceId}/files/stat': false,
  '/api/agent/{instanceId}/files/watch': false,
  '/api/agent/{instanceId}/processes': false,
  '/api/agent/{instanceId}/processes/{process}/attach': false,
  '/api/aws/keys': false,
  '/api/e2b/keys': false,
  '/api/agent/{instanceId}/alarms': false,
  '/api/agent/{instanceId}/export': false,
  '/api/agent/{instanceId}/logs': false,
  '/api/agent/{instanceId}/exec': false,
  '/serverless/v1/functions/async-results/{id}': false,
  '/serverless/v1/functions/{urn}/instances': false,
  '/serverless/v1/functions/{urn}/stats': false,
  '/api/agent/{instanceId}/stats': false,
  '/api/builds': false,
  '/api/calls': false,
  '/api/calls/{id}': false,
  '/api/builds/{id}': false,
  '/api/builds/{id}/logs': false,
  '/api/code': false,
  '/api/code/{sha256}': false,
  '/api/doctor': false,
  '/api/events': false,
  '/api/metrics/history': false,
  '/api/metrics/usage': false,
  '/api/recordings': false,
  '/api/secrets': false,
  '/api/session': false,
  '/api/settings': false,
  '/serverless/v1/functions/{urn}/logs': false,
  '/serverless/v1/http/{*}': false,
  '/serverless/v1/ws': false,
};
const META = {
  '/serverless/v1/functions': true,
  '/serverless/v1/functions/{name}': true,
  '/serverless/v1/functions/{name}/versions': true,
  '/serverless/v1/podpools': true,
  '/serverless/v1/functions/reserve-instance': false,
};
const SYSTEM = ['/healthz', '/metrics', '/openapi.json', '/readyz'];

const filled = (path: string) =>
  path
    .replace('{instanceId}', agentId)
    .replace('{name}', `${encodeURIComponent(urn)}?versionNumber=latest`)
    .replace('{urn}', encodeURIComponent(urn))
    .replace('{id}', 'viewed')
    .replace('?versionNumber=latest/versions', '/versions');

describe('a viewer sees the names of environment variables and not their values', () => {
  test.each([
    ['the frontend', FRONTEND, false],
    ['the meta_service', META, true],
  ])('the test knows every GET of %s', async (_, known, meta) => {
    const { body } = await bed.ask('GET', '/openapi.json', undefined, { ...(await as(null)), meta });
    const paths = Object.entries(body.paths as Record<string, object>);
    const gets = paths.filter(([, methods]) => 'get' in methods).map(([path]) => path);
    expect(gets.sort()).toEqual([...Object.keys(known), ...SYSTEM].sort());
  });

  const rows = [
    ...Object.entries(FRONTEND).map(([path, has]) => [path, has, false] as const),
    ...Object.entries(META).map(([path, has]) => [path, has, true] as const),
  ].filter(([, has]) => has);

  test.each(rows)('a viewer sees no values of environments in GET %s', async (path, _has, meta) => {
    for (const [role, isShown] of [
      ['viewer', false],
      [null, false],
      ['user', true],
      ['developer', true],
    ] as const) {
      const { status, body } = await bed.ask('GET', filled(path), undefined, { ...(await as(role)), meta });
      const text = JSON.stringify(body);
      expect({ path, role, status }).toEqual({ path, role, status: 200 });
      expect({ role, isShown: text.includes(VALUE) }).toEqual({ role, isShown });
      expect(text).toContain(isShown ? `"KEY":"${VALUE}"` : '"KEY":"***"');
    }
  });

  test('a path with a slash at its end hides the values too', async () => {
    for (const path of ['/api/jobs/', '/api/jobs/viewed/', '/api/job_schedules/', '/api/job_schedules/viewed/']) {
      const { status, body } = await bed.ask('GET', path, undefined, await as('viewer'));
      expect({ path, status, masked: JSON.stringify(body).includes('"KEY":"***"') }).toEqual({
        path,
        status: 200,
        masked: true,
      });
    }
  });
});

test('a token without a role may read, and neither call nor change', async () => {
  const none = await as(null);
  expect((await bed.ask('GET', `/api/agent/${agentId}`, undefined, none)).status).toBe(200);
  expect((await bed.ask('POST', `/api/agent/${agentId}/invoke`, {}, none)).status).toBe(403);
  expect((await bed.ask('DELETE', `/api/agent/${agentId}`, undefined, none)).status).toBe(403);
});

test('a role that does not exist is refused, on reads too', async () => {
  for (const role of ['', 'admin', 'Developer', 'constructor']) {
    expect((await bed.ask('GET', `/api/agent/${agentId}`, undefined, await as(role))).status).toBe(403);
  }
});

describe('rookery diff', () => {
  const ofEnvironment = /its environment is not compared/;
  let file: string;
  const write = (deployment: object) => writeFileSync(file, JSON.stringify(deployment));

  async function cli(role: string, ...words: string[]): Promise<{ code: number; out: string; err: string }> {
    const { 'x-auth': token } = (await as(role)).headers;
    const { frontendUrl, metaUrl } = bed.server;
    const args = [...words, '-f', file, '--address', frontendUrl, '--meta-address', metaUrl, '--token', token];
    return await new Promise(resolve => {
      execFile(process.execPath, [join(ROOT, 'dist/main.js'), ...args], { encoding: 'utf8' }, (error, out, err) => {
        resolve({ code: error === null ? 0 : Number(error.code), out, err });
      });
    });
  }

  test('diff reports no difference for values that a viewer does not see, and prints a note', async () => {
    const work = join(directory, 'deployed');
    mkdirSync(join(work, 'code'), { recursive: true });
    writeFileSync(join(work, 'code/app.py'), 'def handle(event, context):\n    return event\n');
    file = join(work, 'rookery.yaml');
    const SIZE = { cpu: '500m', memory: '512Mi' };
    const runs = { code: './code', runtime: bed.runtime, handler: 'app.handle', cpu: 500, memory: 256 };
    const env = { KEY: VALUE };
    const deployment = {
      agents: { seen: { ...runs, env }, bare: runs },
      functions: { 'v@seen': { ...runs, env }, 'v@bare': runs },
      jobs: { seen: { command: 'true', schedule: '0 3 1 1 *', env } },
      pools: { seen: { size: 1, resources: { requests: SIZE, limits: SIZE }, env } },
    };
    write(deployment);
    // A machine with less isolation warns on stderr.
    expect(await cli('developer', 'deploy')).toMatchObject({ code: 0 });
    expect(await cli('developer', 'diff', '--exit-code')).toMatchObject({ code: 0 });

    const { code, out } = await cli('viewer', 'diff', '--exit-code');
    const lines = out.trimEnd().split('\n');
    expect(lines).toEqual([
      'pool seen: not known: its environment is not compared, since a viewer is not shown the values',
      'function 0@v@seen: not known: its environment is not compared, since a viewer is not shown the values',
      'function 0@v@bare: unchanged',
      'agent default/seen: not known: its environment is not compared, since a viewer is not shown the values',
      'agent default/bare: not known: its environment is not compared, since a viewer is not shown the values',
      'job seen: not known: its environment is not compared, since a viewer is not shown the values',
      'Nothing would change, as far as a viewer is shown.',
    ]);
    expect(code).toBe(0);

    // The output lists visible differences and mentions possible hidden ones.
    write({
      ...deployment,
      agents: { seen: { ...runs, env: { ...env, MORE: 'x' } }, bare: { ...runs, memory: 300 } },
      functions: { 'v@seen': { ...runs, env, timeout: 7 }, 'v@bare': runs },
    });
    const changed = await cli('viewer', 'diff', '--exit-code', '--json');
    expect(changed.code).toBe(1);
    const { resources } = JSON.parse(changed.out) as { resources: { name: string }[] };
    expect(resources).toMatchObject([
      { name: 'seen', action: 'unknown', changes: [], detail: expect.stringMatching(ofEnvironment) },
      { name: '0@v@seen', action: 'update', changes: ['timeout'], detail: expect.stringMatching(ofEnvironment) },
      { name: '0@v@bare', action: 'unchanged', changes: [], detail: '' },
      { name: 'default/seen', action: 'replace', changes: ['env'], detail: '' },
      { name: 'default/bare', action: 'replace', changes: ['memory'], detail: expect.stringMatching(ofEnvironment) },
      { name: 'seen', action: 'unknown', changes: [], detail: expect.stringMatching(ofEnvironment) },
    ]);
  }, 120_000);
});
