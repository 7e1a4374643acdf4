import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { buffer } from 'node:stream/consumers';
import { gzipSync } from 'node:zlib';
import tar from 'tar-stream';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { WebSocket } from 'ws';
import { Served } from '../../scripts/served.ts';
import { JobClient } from './client.ts';

let server: Served;
let jobs: JobClient;
let hostDir: string;

beforeAll(async () => {
  hostDir = mkdtempSync(join(tmpdir(), 'rookery-jobs-'));
  mkdirSync(join(hostDir, 'package'));
  writeFileSync(join(hostDir, 'package', '__init__.py'), 'word = "from the host"\n');
  const settings = ['jobs.allowHostPaths=true', 'jobs.resources=license=1', 'jobs.maxPackageMb=2'];
  server = await Served.start({ args: settings.flatMap(setting => ['--set', setting]) });
  jobs = new JobClient(server.frontendUrl);
});

afterAll(async () => {
  await server?.remove();
  rmSync(hostDir, { recursive: true, force: true });
});

const byShell = (line: string, more: object = {}) => ({ entrypoint: line, ...more });

async function packageOf(files: Readonly<Record<string, string>>): Promise<Buffer> {
  const pack = tar.pack();
  for (const [name, content] of Object.entries(files)) pack.entry({ name }, content);
  pack.finalize();
  return gzipSync(await buffer(pack));
}

describe('submits and records of jobs', () => {
  test('GET /api/jobs is an array, also with a slash at its end', async () => {
    for (const path of ['/api/jobs', '/api/jobs/']) {
      const { status, text } = await jobs.ask('GET', path);
      expect(status).toBe(200);
      expect(Array.isArray(JSON.parse(text))).toBe(true);
    }
  });

  test('GET /api/version answers a version that Ray clients accept', async () => {
    const { text } = await jobs.ask('GET', '/api/version');
    expect(JSON.parse(text)).toMatchObject({ version: '4', ray_version: '2.60.0' });
  });

  test('a successful job has a complete record, also in the list', async () => {
    const record = await jobs.run(
      byShell('echo hello; echo there >&2', { submission_id: 'good', metadata: { a: 'b' } }),
    );
    expect(record).toMatchObject({
      type: 'SUBMISSION',
      submission_id: 'good',
      status: 'SUCCEEDED',
      entrypoint: 'echo hello; echo there >&2',
      message: 'Job finished successfully.',
      error_type: '',
      metadata: { a: 'b' },
      runtime_env: {},
      driver_agent_http_address: '',
      driver_exit_code: 0,
    });
    expect(record.start_time).toMatch(/^\d{13}$/);
    expect(record.end_time).toMatch(/^\d{13}$/);
    expect((record.driver_info as { pid: string }).pid).toMatch(/^\d+$/);
    expect(await jobs.log('good')).toBe('hello\nthere\n');
    const list = JSON.parse((await jobs.ask('GET', '/api/jobs')).text) as { submission_id: string }[];
    expect(list.find(({ submission_id }) => submission_id === 'good')).toEqual(record);
  });

  test('a job that fails shows its exit code and its last lines', async () => {
    const record = await jobs.run(byShell('echo bad; exit 3'));
    expect(record).toMatchObject({
      status: 'FAILED',
      driver_exit_code: 3,
      error_type: 'JOB_ENTRYPOINT_COMMAND_ERROR',
      message: 'Job entrypoint command failed with exit code 3, last available logs (truncated to 20,000 chars):\nbad',
    });
  });

  test('a job that a signal ends has a negative exit code', async () => {
    expect(await jobs.run(byShell('kill -9 $$'))).toMatchObject({ status: 'FAILED', driver_exit_code: -9 });
  });

  // Only control groups kill the job; an ordinary user's job gets a MemoryError.
  test.runIf(process.getuid?.() === 0)(
    'a job that uses more memory than requested is killed, and its message has the reason',
    async () => {
      const body = byShell('exec python -c "bytearray(500_000_000)"', { entrypoint_memory: 64 * 1024 * 1024 });
      const record = await jobs.run(body);
      expect(record).toMatchObject({ status: 'FAILED', driver_exit_code: -9 });
      expect(record.message).toContain('out of memory');
    },
  );

  test('a job with an empty entrypoint succeeds, and one with a missing command exits with 127', async () => {
    expect(await jobs.run(byShell(''))).toMatchObject({ status: 'SUCCEEDED' });
    expect(await jobs.run(byShell('no-such-command'))).toMatchObject({ status: 'FAILED', driver_exit_code: 127 });
  });

  test('a submit with the same id and body returns the same job, and another body is refused with one sentence', async () => {
    await jobs.submit(byShell('echo once', { submission_id: 'twice' }));
    await jobs.until('twice');
    expect(await jobs.submit(byShell('echo once', { submission_id: 'twice' }))).toBe('twice');
    expect(await jobs.ask('POST', '/api/jobs/', byShell('echo other', { submission_id: 'twice' }))).toEqual({
      status: 409,
      type: 'text/plain; charset=utf-8',
      text: 'Job with submission_id twice already exists. Please use a different submission_id.',
    });
  });

  test('a wrong submit is refused with one plain sentence', async () => {
    for (const body of ['{', { entrypoint: 5 }, {}, byShell('x', { runtime_env: { conda: {} } })]) {
      const { status, type, text } = await jobs.ask('POST', '/api/jobs/', body);
      expect({ status, type }).toEqual({ status: 400, type: 'text/plain; charset=utf-8' });
      expect(text).not.toContain('\n');
    }
  });

  test('a job and its log are hidden from other tenants', async () => {
    await jobs.run(byShell('echo secret', { submission_id: 'mine' }));
    for (const path of ['/api/jobs/mine', '/api/jobs/mine/logs']) {
      const { status, text } = await jobs.ask('GET', path, undefined, { tenantId: 'other' });
      expect({ status, text }).toEqual({ status: 404, text: 'Job mine does not exist' });
    }
    expect((await jobs.ask('GET', '/api/jobs', undefined, { tenantId: 'other' })).text).toBe('[]');
  });

  test('an unknown job is 404 with Ray’s sentence, everywhere', async () => {
    for (const [method, path] of [
      ['GET', ''],
      ['DELETE', ''],
      ['POST', '/stop'],
      ['GET', '/logs'],
    ]) {
      const { status, type, text } = await jobs.ask(method as string, `/api/jobs/nope${path}`);
      expect({ status, type, text }).toEqual({
        status: 404,
        type: 'text/plain; charset=utf-8',
        text: 'Job nope does not exist',
      });
    }
  });
});

describe('reruns of jobs', () => {
  test('a rerun submits the whole request of a job again, under a new id', async () => {
    const resources = { entrypoint_num_cpus: 0.5, entrypoint_resources: { license: 1 } };
    const body = byShell('echo $WORD; exit 3', { metadata: { a: 'b' }, runtime_env: { env_vars: { WORD: 'again' } } });
    const first = await jobs.run({ ...body, ...resources });
    const { status, text } = await jobs.ask('POST', `/api/jobs/${first.submission_id}/rerun`);
    expect(status).toBe(200);
    const { submission_id: id } = JSON.parse(text);
    expect(id).not.toBe(first.submission_id);
    const second = await jobs.until(id);
    const { entrypoint, metadata, runtime_env } = first;
    expect(second).toMatchObject({ entrypoint, metadata, runtime_env, status: 'FAILED', driver_exit_code: 3 });
    expect(await jobs.log(id)).toBe('again\n');
  });

  test('a rerun of a job whose files are gone is refused with the way to run it', async () => {
    const runtime_env = { working_dir: 'gcs://_ray_pkg_gone.zip' };
    const { submission_id } = await jobs.run(byShell('true', { runtime_env }));
    const { status, text } = await jobs.ask('POST', `/api/jobs/${submission_id}/rerun`);
    expect([status, text]).toEqual([409, expect.stringMatching(/_ray_pkg_gone.zip.*Submit it with its files/)]);
  });

  test('a rerun of an unknown job is answered 404', async () => {
    expect(await jobs.ask('POST', '/api/jobs/nope/rerun')).toMatchObject({ status: 404 });
  });
});

describe('stops and deletes of jobs', () => {
  test('a running job can be deleted only after its stop', async () => {
    const id = await jobs.submit(byShell('sleep 1000'));
    await jobs.until(id, ({ status }) => status === 'RUNNING');
    expect(await jobs.ask('DELETE', `/api/jobs/${id}`)).toMatchObject({
      status: 409,
      text: `Attempted to delete job '${id}', but it is in a non-terminal state RUNNING.`,
    });
    expect((await jobs.ask('POST', `/api/jobs/${id}/stop`)).text).toBe('{"stopped":true}');
    expect(await jobs.until(id)).toMatchObject({ status: 'STOPPED', driver_exit_code: null, error_type: '' });
    expect((await jobs.ask('POST', `/api/jobs/${id}/stop`)).text).toBe('{"stopped":false}');
    expect((await jobs.ask('DELETE', `/api/jobs/${id}`)).text).toBe('{"deleted":true}');
    expect((await jobs.ask('GET', `/api/jobs/${id}`)).status).toBe(404);
  });

  test('a stop sends SIGTERM to every process of a job and waits for its end', async () => {
    const python = `import signal, sys, time
def end(*_):
    time.sleep(0.3)
    print("cleaned up")
    sys.exit(0)
signal.signal(signal.SIGTERM, end)
print("up")
time.sleep(1000)`;
    const id = await jobs.submit(byShell(`python -c '${python}'; echo the shell goes on`));
    await untilLog(id, 'up\n');
    await jobs.ask('POST', `/api/jobs/${id}/stop`);
    expect(await jobs.until(id)).toMatchObject({ status: 'STOPPED' });
    expect(await jobs.log(id)).toBe('up\ncleaned up\n');
  });

  test('a job that ignores SIGTERM is killed after its time', async () => {
    const body = byShell("trap '' TERM; echo up; while :; do sleep 0.05; done", {
      runtime_env: { env_vars: { RAY_JOB_STOP_WAIT_TIME_S: '0.2' } },
    });
    const id = await jobs.submit(body);
    await untilLog(id, 'up\n');
    await jobs.ask('POST', `/api/jobs/${id}/stop`);
    expect(await jobs.until(id)).toMatchObject({ status: 'STOPPED' });
  });

  test('a job that waits for a missing resource can be stopped at once', async () => {
    const id = await jobs.submit(byShell('true', { entrypoint_num_gpus: 1 }));
    const record = await jobs.get(id);
    expect(record.status).toBe('PENDING');
    expect(record.message).toContain('it asks for 1 GPUs, and there are none');
    await jobs.ask('POST', `/api/jobs/${id}/stop`);
    expect(await jobs.get(id)).toMatchObject({ status: 'STOPPED', message: 'Job was intentionally stopped.' });
  });
});

describe('files of jobs', () => {
  test('an uploaded package can be read, and each job runs in a separate copy', async () => {
    const path = '/api/packages/gcs/_ray_pkg_0123456789abcdef.tar.gz';
    expect((await jobs.ask('GET', path)).status).toBe(404);
    const body = await packageOf({
      'main.py': 'import helper\nopen("out", "w")\nprint(helper.word)\n',
      'helper.py': 'word = 1\n',
    });
    const put = await fetch(`${server.frontendUrl}${path}`, { method: 'PUT', body: new Uint8Array(body) });
    expect({ status: put.status, text: await put.text() }).toEqual({ status: 200, text: '' });
    expect(await jobs.ask('GET', path)).toMatchObject({ status: 200, text: '' });
    const got = await fetch(`${server.frontendUrl}${path}`, { headers: { accept: 'application/octet-stream' } });
    expect(Buffer.from(await got.arrayBuffer()).equals(body)).toBe(true);
    const env = { runtime_env: { working_dir: 'gcs://_ray_pkg_0123456789abcdef.tar.gz' } };
    for (const run of [1, 2]) {
      const record = await jobs.run(byShell('ls out 2>/dev/null; python main.py', env));
      expect({ run, status: record.status, log: await jobs.log(String(record.submission_id)) }).toEqual({
        run,
        status: 'SUCCEEDED',
        log: '1\n',
      });
    }
  });

  test('a package that is too large is refused with a sentence, with and without Content-Length', async () => {
    const url = `${server.frontendUrl}/api/packages/gcs/large.zip`;
    const large = new Uint8Array(3 * 1024 * 1024);
    const stream = new ReadableStream({
      start(controller) {
        controller.enqueue(large);
        controller.close();
      },
    });
    for (const body of [large, stream]) {
      const answer = await fetch(url, { method: 'PUT', body, duplex: 'half' } as RequestInit);
      const text = await answer.text();
      expect({ status: answer.status, text }).toEqual({
        status: 413,
        text: 'the package is larger than 2097152 bytes',
      });
    }
    expect((await fetch(url)).status).toBe(404);
  });

  test('a package that was never uploaded fails the job and not its submit', async () => {
    const record = await jobs.run(byShell('true', { runtime_env: { working_dir: 'gcs://nope.zip' } }));
    expect(record).toMatchObject({ status: 'FAILED', error_type: 'RUNTIME_ENV_SETUP_FAILURE' });
    expect(record.message).toMatch(/^runtime_env setup failed: package gcs:\/\/nope.zip was not uploaded/);
  });

  test('a job runs in a directory of the host itself, and unsafe directories are refused', async () => {
    const env = { runtime_env: { working_dir: hostDir, py_modules: [join(hostDir, 'package')] } };
    const record = await jobs.run(byShell('cd /tmp && python -c "import package; print(package.word)"', env));
    expect(await jobs.log(String(record.submission_id))).toBe('from the host\n');
    for (const path of ['/etc', server.dataDir, '/']) {
      const answer = await jobs.ask('POST', '/api/jobs/', byShell('true', { runtime_env: { working_dir: path } }));
      expect({ path, status: answer.status }).toEqual({ path, status: 400 });
    }
  });

  test('a job has its variables, in which variables of the job are expanded', async () => {
    const env = { runtime_env: { env_vars: { FOO: 'in $HOME', PYTHONPATH: '/x' } } };
    const record = await jobs.run(
      byShell('echo "$FOO $PYTHONPATH $ROOKERY_JOB_ID"', { ...env, submission_id: 'vars' }),
    );
    expect(record.status).toBe('SUCCEEDED');
    expect(await jobs.log('vars')).toBe('in /workspace /x:/workspace vars\n');
  });
});

describe('logs of jobs', () => {
  test('a follower gets the whole log, and the job has ended when the connection closes', async () => {
    const id = await jobs.submit(byShell('for i in 1 2 3; do echo line $i; sleep 0.1; done'));
    const { text, code } = await tail(id);
    expect({ text, code }).toEqual({ text: 'line 1\nline 2\nline 3\n', code: 1000 });
    expect((await jobs.get(id)).status).toBe('SUCCEEDED');
    expect((await tail(id)).text).toBe(text);
    expect((await jobs.ask('GET', `/api/jobs/${id}/logs?follow=true`)).text).toBe(text);
  });

  test('the handshake of a log is refused for an unknown job', async () => {
    await expect(tail('nope')).rejects.toThrow('404');
  });

  test('a log of 100 000 lines arrives completely and in order', async () => {
    const id = await jobs.submit(byShell('seq 100000'));
    const { text } = await tail(id);
    expect(text).toBe(await jobs.log(id));
    const lines = text.trimEnd().split('\n');
    expect({ count: lines.length, first: lines[0], last: lines.at(-1) }).toEqual({
      count: 100_000,
      first: '1',
      last: '100000',
    });
  });
});

describe('rules in the metadata of jobs', () => {
  test('a job that fails runs again, and its log has every attempt', async () => {
    const metadata = { 'rookery.retries': '2', 'rookery.retry_delay_ms': '10' };
    const line = 'echo attempt $ROOKERY_JOB_ATTEMPT; [ $ROOKERY_JOB_ATTEMPT = 3 ]';
    const record = await jobs.run(byShell(line, { metadata, submission_id: 'retried' }));
    expect(record).toMatchObject({ status: 'SUCCEEDED', attempt: 3, max_attempts: 3 });
    expect(await jobs.log('retried')).toBe('attempt 1\nattempt 2\nattempt 3\n');
  });

  test('a job that takes too long fails', async () => {
    const record = await jobs.run(byShell('sleep 1000', { metadata: { 'rookery.timeout_ms': '200' } }));
    expect(record).toMatchObject({
      status: 'FAILED',
      message: 'Job was stopped because it ran longer than its timeout of 200 ms.',
    });
  });

  test('a job waits for a resource that another job uses', async () => {
    const body = { entrypoint_resources: { license: 1 } };
    const first = await jobs.submit(byShell('sleep 1000', body));
    await jobs.until(first, ({ status }) => status === 'RUNNING');
    const second = await jobs.submit(byShell('true', body));
    expect((await jobs.get(second)).status).toBe('PENDING');
    await jobs.ask('POST', `/api/jobs/${first}/stop`);
    expect(await jobs.until(second)).toMatchObject({ status: 'SUCCEEDED' });
  });
});

test('a schedule submits jobs by the clock until it is deleted', async () => {
  const body = { schedule_id: 'tick', cron: '* * * * * *', job: byShell('echo tick') };
  expect((await jobs.ask('POST', '/api/job_schedules', { ...body, cron: 'never' })).status).toBe(400);
  expect((await jobs.ask('POST', '/api/job_schedules', body)).status).toBe(200);
  expect((await jobs.ask('POST', '/api/job_schedules', body)).status).toBe(409);
  const list = async () => JSON.parse((await jobs.ask('GET', '/api/jobs')).text) as Record<string, string>[];
  const ofSchedule = async () => (await list()).filter(job => job.submission_id?.startsWith('tick-'));
  await expect.poll(async () => (await ofSchedule()).length).toBeGreaterThan(0);
  expect((await jobs.ask('DELETE', '/api/job_schedules/tick')).status).toBe(200);
  expect((await jobs.ask('GET', '/api/job_schedules/tick')).status).toBe(404);
});

test('a schedule is created or replaced in one step, and stays unchanged when the new one is refused', async () => {
  const body = { cron: '0 0 1 1 *', job: byShell('echo old') };
  const put = (changes: object) => jobs.ask('PUT', '/api/job_schedules/put', { ...body, ...changes });
  const get = async () => JSON.parse((await jobs.ask('GET', '/api/job_schedules/put')).text);
  const made = await put({});
  expect(made).toMatchObject({ status: 200 });
  expect(await get()).toEqual(JSON.parse(made.text));
  const replaced = await put({ schedule_id: 'put', job: byShell('echo new'), jobb: 1 });
  expect(JSON.parse(replaced.text)).toMatchObject({ schedule_id: 'put', job: byShell('echo new') });
  expect(JSON.parse(replaced.text).warnings).toEqual([expect.stringContaining('jobb')]);
  const before = await get();
  for (const wrong of [{ cron: '0 99 * * *' }, { schedule_id: 'other' }, { job: undefined }]) {
    expect((await put(wrong)).status).toBe(400);
  }
  expect(await get()).toEqual(before);
});

async function untilLog(id: string, wanted: string): Promise<void> {
  await expect.poll(() => jobs.log(id), { timeout: 20_000 }).toBe(wanted);
}

function tail(id: string): Promise<{ text: string; code: number }> {
  return new Promise((resolve, reject) => {
    const socket = new WebSocket(`${server.frontendUrl.replace('http', 'ws')}/api/jobs/${id}/logs/tail`);
    let text = '';
    socket.on('message', data => {
      text += String(data);
    });
    socket.on('close', code => resolve({ text, code }));
    socket.on('error', reject);
  });
}
