import { deflateRawSync } from 'node:zlib';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { Served, STOP_AGENTS } from '../../scripts/served.ts';
import { JobClient } from './client.ts';

let server: Served;
let jobs: JobClient;

beforeAll(async () => {
  server = await Served.start({ args: [STOP_AGENTS] });
  jobs = new JobClient(server.frontendUrl);
});

afterAll(async () => {
  await server?.remove();
});

async function put(name: string, body: Buffer): Promise<void> {
  const url = `${server.frontendUrl}/api/packages/gcs/${name}`;
  const { status } = await fetch(url, { method: 'PUT', body: new Uint8Array(body) });
  expect(status).toBe(200);
}

test('a job that requests a resource named like a property of objects waits, and other jobs run', async () => {
  const odd = await jobs.submit({ entrypoint: 'true', entrypoint_resources: { constructor: 1 } });
  expect(await jobs.run({ entrypoint: 'true' })).toMatchObject({ status: 'SUCCEEDED' });
  const { status, message } = await jobs.get(odd);
  expect({ status, message }).toMatchObject({
    status: 'PENDING',
    message: expect.stringContaining('it asks for 1 of constructor, and there are 0'),
  });
  await jobs.ask('POST', `/api/jobs/${odd}/stop`);
});

test('a submit and a schedule with a deeply nested body are rejected', async () => {
  const deep = `${'['.repeat(20_000)}${']'.repeat(20_000)}`;
  const submit = await jobs.ask('POST', '/api/jobs/', `{"entrypoint": "true", "runtime_env": {"a": ${deep}}}`);
  const schedule = `{"cron": "* * * * *", "job": {"entrypoint": "true", "zzz": ${deep}}}`;
  for (const answer of [submit, await jobs.ask('POST', '/api/job_schedules/', schedule)]) {
    expect(answer).toMatchObject({ status: 400, text: expect.stringContaining('nested deeper than 100 levels') });
  }
});

test('variables that a job does not have stay unexpanded in values', async () => {
  const env_vars = { X: '$constructor $toString $__proto__ $HOME', __proto__x: 'y' };
  const record = await jobs.run({ entrypoint: 'echo "$X"', runtime_env: { env_vars } });
  expect(await jobs.log(String(record.submission_id))).toBe('$constructor $toString $__proto__ /workspace\n');
});

test('only one of three concurrent deletes succeeds, and the others find no job', async () => {
  const { submission_id: id } = await jobs.run({ entrypoint: 'true' });
  const answers = await Promise.all([1, 2, 3].map(() => jobs.ask('DELETE', `/api/jobs/${id}`)));
  expect(answers.map(({ status }) => status).sort()).toEqual([200, 404, 404]);
});

test('a plain request for the tail of an existing job answers that a WebSocket is required', async () => {
  const { submission_id: id } = await jobs.run({ entrypoint: 'true' });
  expect(await jobs.ask('GET', `/api/jobs/${id}/logs/tail`)).toMatchObject({
    status: 426,
    text: 'the log is followed over a WebSocket: the request must ask for an upgrade',
  });
  expect((await jobs.ask('GET', '/api/jobs/nope/logs/tail')).status).toBe(404);
});

test('the paths of schedules work with and without a slash at the end', async () => {
  const schedule = { schedule_id: 'slash', cron: '0 0 1 1 *', job: { entrypoint: 'true' } };
  expect((await jobs.ask('POST', '/api/job_schedules/', schedule)).status).toBe(200);
  for (const path of ['/api/job_schedules', '/api/job_schedules/']) {
    expect(JSON.parse((await jobs.ask('GET', path)).text)).toMatchObject([{ schedule_id: 'slash' }]);
  }
  expect((await jobs.ask('GET', '/api/job_schedules/slash/')).status).toBe(200);
  expect((await jobs.ask('PUT', '/api/job_schedules/slash/', schedule)).status).toBe(200);
  expect((await jobs.ask('DELETE', '/api/job_schedules/slash/')).text).toBe('{"deleted":true}');
});

test('a package of an unsupported kind fails the job with its name and the accepted kinds', async () => {
  await put('a.tar.xz', Buffer.from('\xfd7zXZ\0…', 'latin1'));
  const record = await jobs.run({ entrypoint: 'true', runtime_env: { working_dir: 'gcs://a.tar.xz' } });
  expect(record).toMatchObject({
    status: 'FAILED',
    error_type: 'RUNTIME_ENV_SETUP_FAILURE',
    message:
      'runtime_env setup failed: package gcs://a.tar.xz: a tar.xz archive cannot be unpacked: expected a zip or a tar.gz archive',
  });
});

test('a zip with a file larger than declared fails its job, and the service continues', async () => {
  await put('size.zip', zipOfWrongSize());
  const record = await jobs.run({ entrypoint: 'true', runtime_env: { working_dir: 'gcs://size.zip' } });
  expect(record).toMatchObject({ status: 'FAILED', error_type: 'RUNTIME_ENV_SETUP_FAILURE' });
  expect(record.message).toContain('"a" is broken');
  expect(await jobs.run({ entrypoint: 'true' })).toMatchObject({ status: 'SUCCEEDED' });
});

/** Returns a zip with one deflated file of 1000 bytes whose header declares 5 (APPNOTE 4.3). */
function zipOfWrongSize(): Buffer {
  const content = deflateRawSync(Buffer.alloc(1000));
  const local = Buffer.alloc(31);
  local.writeUInt32LE(0x04034b50, 0);
  const central = Buffer.alloc(47);
  central.writeUInt32LE(0x02014b50, 0);
  for (const [header, at] of [
    [local, 8],
    [central, 10],
  ] as const) {
    header.writeUInt16LE(8, at);
    header.writeUInt32LE(content.length, at + 10);
    header.writeUInt32LE(5, at + 14);
    header.writeUInt16LE(1, at + 18);
    header.write('a', header.length - 1);
  }
  const end = Buffer.alloc(22);
  end.writeUInt32LE(0x06054b50, 0);
  end.writeUInt16LE(1, 8);
  end.writeUInt16LE(1, 10);
  end.writeUInt32LE(central.length, 12);
  end.writeUInt32LE(local.length + content.length, 16);
  return Buffer.concat([local, content, central, end]);
}
