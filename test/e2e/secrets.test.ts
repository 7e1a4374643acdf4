import { randomBytes } from 'node:crypto';
import { readdirSync, readFileSync } from 'node:fs';
import { stat } from 'node:fs/promises';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, test, vi } from 'vitest';
import { Served } from '../../scripts/served.ts';
import { Bed } from './agents.ts';

const CODE = `
import os
def env(event, context):
    return [os.environ.get("KEY"), context.env("KEY")]
def fail(event, context):
    raise ValueError("no such thing")
`;
const REF = { secret: 'db-password' };
const WAIT = { timeout: 60_000, interval: 100 };

let bed: Bed;
let value: string;

beforeAll(async () => {
  bed = await Bed.start({ 'app.py': CODE });
}, 60_000);
afterAll(async () => {
  await bed?.[Symbol.asyncDispose]();
}, 60_000);

/** Stores a new random value, which cannot occur by accident. */
async function write(name = REF.secret): Promise<string> {
  value = `hunter2-${randomBytes(8).toString('hex')}`;
  const { status, body } = await bed.ask('PUT', `/api/secrets/${name}`, { value });
  expect({ status, code: body.code }).toEqual({ status: 200, code: 200 });
  expect(JSON.stringify(body)).not.toContain(value);
  return value;
}
const agentOf = (name: string, env_vars: object = { KEY: REF }) => bed.createBody(name, 'app.env', {}, { env_vars });
async function create(name: string): Promise<string> {
  const { status, body } = await bed.ask('POST', '/api/agent', agentOf(name));
  expect({ status, body }).toMatchObject({ status: 200 });
  return String(body.instance_id);
}
const seenBy = async (id: string) => (await bed.invoke(id)).body.data;

async function register(name: string, environment: object = { KEY: REF }) {
  return await bed.ask(
    'POST',
    '/serverless/v1/functions',
    {
      ...{ name: `0@s@${name}`, kind: 'faas', runtime: bed.runtime, cpu: 500, memory: 256, handler: 'app.env' },
      ...{ environment, storageType: 'local', codePath: bed.codeDir },
    },
    { meta: true },
  );
}
/** Returns the newest recorded call of an agent; null: there is none yet. */
async function lastCallOf(id: string) {
  const { body } = await bed.ask('GET', `/api/calls?agent=${id}&limit=1`);
  const [newest] = body.calls as { id: string }[];
  return newest === undefined ? null : (await bed.ask('GET', `/api/calls/${newest.id}`)).body.call;
}
const callFunction = (urn: unknown) =>
  bed.ask('POST', `/serverless/v1/functions/${encodeURIComponent(String(urn))}/invocations`, {});

/** Returns every file below the data directory that contains a text. */
function filesWith(text: string): readonly string[] {
  return readdirSync(bed.server.dataDir, { recursive: true, withFileTypes: true })
    .filter(entry => entry.isFile())
    .map(entry => join(entry.parentPath, entry.name))
    .filter(path => readFileSync(path).includes(text));
}

describe('a secret in an environment', () => {
  test('a secret is visible to the code of an agent, and the record shows only its name', async () => {
    await write();
    const id = await create('agent');
    expect(await seenBy(id)).toEqual([value, value]);
    const got = await bed.ask('GET', `/api/agent/${id}`);
    expect((got.body.instance as { env_vars: unknown }).env_vars).toEqual({ KEY: REF });
    const list = await bed.ask('GET', '/api/agent');
    expect(JSON.stringify([got.body, list.body])).not.toContain(value);
  });

  test('a secret has its newest value after a restart of the agent, and after its sandbox died', async () => {
    const old = await write();
    const id = await create('renewed');
    await write();
    expect(await seenBy(id)).toEqual([old, old]);
    expect((await bed.ask('POST', `/api/agent/${id}/restart`)).status).toBe(200);
    expect(await seenBy(id)).toEqual([value, value]);
  });

  test('a secret reaches functions, also new instances when a function scales up', async () => {
    await write();
    const registered = await register('fn');
    expect(registered.body).toMatchObject({ code: 0, function: { environment: { KEY: REF } } });
    expect((await callFunction(registered.body.functionVersionUrn)).body).toEqual([value, value]);
    const shown = await bed.ask(
      'GET',
      `/serverless/v1/functions/${encodeURIComponent('0@s@fn')}?versionNumber=latest`,
      undefined,
      {
        meta: true,
      },
    );
    expect(JSON.stringify([registered.body, shown.body])).not.toContain(value);
  });

  test('a secret reaches agents that are made from a function, and variables of the agent take precedence', async () => {
    await write();
    const name = '0@s@made-from';
    const fn = await bed.ask(
      'POST',
      '/serverless/v1/functions',
      {
        ...{ name, kind: 'agent', runtime: bed.runtime, cpu: 500, memory: 256, handler: 'app.env', codePath: '/code' },
        ...{ environment: { KEY: REF }, rootfs: { imageurl: 'host' } },
      },
      { meta: true },
    );
    expect(fn.body).toMatchObject({ code: 0 });
    const made = async (agent: string, env_vars: object) => {
      const mounts = [{ source: bed.codeDir, target: '/code', readonly: true }];
      const urn = fn.body.functionVersionUrn;
      const { body } = await bed.ask('POST', '/api/agent', { namespace: 'e2e', name: agent, urn, mounts, env_vars });
      return await seenBy(String(body.instance_id));
    };
    expect(await made('made-1', {})).toEqual([value, value]);
    expect(await made('made-2', { KEY: 'plain' })).toEqual(['plain', 'plain']);
  });

  // biome-ignore-start lint/suspicious/noTemplateCurlyInString: what a shell would expand
  test('a secret reaches jobs unchanged, without the expansion of other values', async () => {
    await bed.ask('PUT', '/api/secrets/dollar', { value: '$HOME-${PATH}' });
    const entrypoint = 'test "$SECRET" = \'$HOME-${PATH}\' && test "$PLAIN" = "$HOME"';
    const env_vars = { SECRET: { secret: 'dollar' }, PLAIN: '$HOME' };
    const submitted = await bed.ask('POST', '/api/jobs/', {
      entrypoint,
      submission_id: 'j',
      runtime_env: { env_vars },
    });
    expect(submitted.status).toBe(200);
    const job = await vi.waitFor(async () => {
      const { body } = await bed.ask('GET', '/api/jobs/j');
      expect(body.status).toMatch(/SUCCEEDED|FAILED/);
      return body;
    }, WAIT);
    expect(job).toMatchObject({ status: 'SUCCEEDED', runtime_env: { env_vars } });
  });

  // biome-ignore-end lint/suspicious/noTemplateCurlyInString: what a shell would expand

  test('a secret is in no file and no log line of the service, also when calls fail', async () => {
    await write();
    const id = await create('nowhere');
    expect(await seenBy(id)).toEqual([value, value]);
    const shown = { output: '["[redacted]","[redacted]"]' };
    await vi.waitFor(async () => expect(await lastCallOf(id)).toMatchObject(shown), WAIT);
    const failing = await bed.create('failing', 'app.fail', {}, { env_vars: { KEY: REF } });
    expect(JSON.stringify(await bed.invoke(failing))).not.toContain(value);
    await bed.ask('POST', '/api/jobs/', {
      entrypoint: 'sleep 600',
      submission_id: 'long',
      runtime_env: { env_vars: { KEY: REF } },
    });
    await vi.waitFor(async () => expect((await bed.ask('GET', '/api/jobs/long')).body.status).toBe('RUNNING'), WAIT);
    expect(filesWith(value)).toEqual([]);
    expect(bed.server.output).not.toContain(value);
    await bed.ask('POST', '/api/jobs/long/stop');
  });
});

describe('a missing secret', () => {
  test('a missing secret fails the create of an agent with its name, and the name of the agent stays free', async () => {
    const { status, body } = await bed.ask('POST', '/api/agent', agentOf('lacks', { KEY: { secret: 'nobody' } }));
    expect({ status, body }).toEqual({
      status: 500,
      body: { code: 500, message: 'failed to create agent: secret does not exist: nobody' },
    });
    await bed.create('lacks', 'app.env');
  });

  test('a missing secret fails the register, the publish and the update of a function', async () => {
    const refused = { code: 4104, message: 'environment.KEY: secret does not exist: nobody' };
    expect(await register('lacks', { KEY: { secret: 'nobody' } })).toMatchObject({ status: 200, body: refused });
    const { body } = await register('later', {});
    const { revisionId } = body.function as { revisionId: string };
    const path = `/serverless/v1/functions/${encodeURIComponent('0@s@later')}`;
    const update = { revisionId, environment: { KEY: { secret: 'nobody' } } };
    expect(await bed.ask('PUT', path, update, { meta: true })).toMatchObject({ status: 200, body: refused });
  });

  test('a missing secret fails the submit of a job and of a schedule', async () => {
    const job = { entrypoint: 'true', runtime_env: { env_vars: { KEY: { secret: 'nobody' } } } };
    for (const [path, sent] of [
      ['/api/jobs/', job],
      ['/api/job_schedules', { cron: '0 0 1 1 *', job }],
    ] as const) {
      const answer = await fetch(`${bed.server.frontendUrl}${path}`, { method: 'POST', body: JSON.stringify(sent) });
      expect([answer.status, await answer.text()]).toEqual([
        400,
        expect.stringContaining('secret does not exist: nobody'),
      ]);
    }
  });
});

describe('the routes of secrets', () => {
  test('the routes of secrets list names and times of their tenant only', async () => {
    await write('listed');
    const mine = await bed.ask('GET', '/api/secrets');
    const names = (mine.body.secrets as { name: string }[]).map(({ name }) => name);
    expect(names).toContain('listed');
    expect(names).toEqual(names.toSorted());
    expect(JSON.stringify(mine.body)).not.toContain(value);
    const headers = { 'x-tenant-id': 'other' };
    expect((await bed.ask('GET', '/api/secrets', undefined, { headers })).body).toEqual({ code: 200, secrets: [] });
    expect((await bed.ask('DELETE', '/api/secrets/listed', undefined, { headers })).status).toBe(404);
    const lacks = await bed.ask('POST', '/api/agent', agentOf('of-other', { KEY: { secret: 'listed' } }), { headers });
    expect(lacks.body.message).toBe('failed to create agent: secret does not exist: listed');
  });

  test('no route returns the value of a secret', async () => {
    await write('unread');
    expect((await bed.ask('GET', '/api/secrets/unread')).status).toBe(404);
  });

  test('a secret can be deleted only when no resource refers to it', async () => {
    await write('held');
    const { body } = await register('holds', { KEY: { secret: 'held' } });
    expect(body.code).toBe(0);
    expect(await bed.ask('DELETE', '/api/secrets/held')).toMatchObject({
      status: 409,
      body: { message: expect.stringContaining('function 0@s@holds:$latest refers to it') },
    });
    await bed.ask('DELETE', `/serverless/v1/functions/${encodeURIComponent('0@s@holds')}`, undefined, { meta: true });
    expect(await bed.ask('DELETE', '/api/secrets/held')).toMatchObject({ status: 200, body: { status: 'deleted' } });
    expect((await bed.ask('DELETE', '/api/secrets/held')).status).toBe(404);
  });

  test.each([
    ['no value', {}],
    ['an empty value', { value: '' }],
    ['a value that is not a text', { value: { a: 1 } }],
    ['a NUL character', { value: 'a\0b' }],
  ])('the routes of secrets refuse %s', async (_, sent) => {
    const { status, body } = await bed.ask('PUT', '/api/secrets/refused', sent);
    expect({ status, message: body.message }).toEqual({ status: 400, message: expect.stringContaining('value') });
  });
});

test('secrets survive kill -9, and a service without their key refuses to start with the reason', async () => {
  const kept = await write();
  const id = await create('survivor');
  await bed.killAndRestart();
  expect(await seenBy(id)).toEqual([kept, kept]);
  expect((await bed.ask('POST', `/api/agent/${id}/restart`)).status).toBe(200);
  expect(await seenBy(id)).toEqual([kept, kept]);
  expect((await stat(join(bed.server.dataDir, 'secrets.key'))).mode & 0o777).toBe(0o600);
  await bed.server.end();
  try {
    const env = { ROOKERY_SECRETS_KEY: randomBytes(32).toString('base64') };
    const start = Served.start({ dataDir: bed.server.dataDir, env });
    await expect(start).rejects.toThrow(/secrets in the database cannot be read: .*secrets\.keyFile/);
  } finally {
    bed.server = await bed.server.next();
  }
  expect(await seenBy(id)).toEqual([kept, kept]);
}, 120_000);
