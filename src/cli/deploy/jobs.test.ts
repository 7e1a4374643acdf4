import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, expect, test } from 'vitest';
import { cli, json, StubService } from '../../../test/parts/cli.ts';

const directory = mkdtempSync(join(tmpdir(), 'rookery-deploy-jobs-'));
const file = join(directory, 'rookery.yaml');
writeFileSync(file, 'jobs: { nightly: { command: "true", schedule: "0 4 * * *" } }');
afterAll(() => rmSync(directory, { recursive: true }));

const OLD = { schedule_id: 'nightly', cron: '0 3 * * *', timezone: 'UTC', overlap: 'skip' };
const JOB = { entrypoint: 'true', metadata: {}, runtime_env: {} };

/** Serves one schedule, and answers each write with `status`. */
const serve = (status: number) =>
  StubService.start((request, response) => {
    if (request.method === 'GET') json(response, 200, { ...OLD, job: JOB });
    else json(response, status, { message: 'no room' });
  });

const deploy = (service: StubService) => cli(['deploy', '-f', file, '--address', service.address]);

test('a changed schedule is replaced in one request', async () => {
  await using service = await serve(200);
  expect(await deploy(service)).toMatchObject({ code: 0, out: expect.stringContaining('nightly: replaced (cron)') });
  expect(service.seen.map(({ method, url }) => `${method} ${url}`)).toEqual([
    'GET /api/job_schedules/nightly',
    'PUT /api/job_schedules/nightly',
  ]);
  expect(JSON.parse(service.last.body)).toMatchObject({ cron: '0 4 * * *', job: JOB });
});

test('a refused schedule reports that the old schedule continues', async () => {
  await using service = await serve(400);
  expect(await deploy(service)).toMatchObject({
    code: 1,
    out: expect.stringContaining('nightly: failed: the former schedule stays in force; the new one failed: no room'),
  });
});

const failedJob = async (run: (service: StubService, file: string) => Promise<void>) => {
  const once = join(directory, 'once.yaml');
  writeFileSync(once, 'jobs: { four: { command: "exit 4" } }');
  await using service = await StubService.start(({ method }, response) => {
    if (method === 'GET') json(response, 200, { status: 'FAILED', message: 'it ended with 4', driver_exit_code: 4 });
    else json(response, 200, { submission_id: 'four-1' });
  });
  await run(service, once);
};

test('a deploy ends with exit code 1 when a one-off job has failed', async () => {
  await failedJob(async (service, once) => {
    expect(await cli(['deploy', '-f', once, '--address', service.address])).toMatchObject({
      code: 1,
      out: 'job four: unchanged (it FAILED: exit code 4): rookery deploy --rerun-failed runs it again\n',
    });
  });
});

test('a deploy runs a failed one-off job again when --rerun-failed is given', async () => {
  await failedJob(async (service, once) => {
    const ran = await cli(['deploy', '-f', once, '--address', service.address, '--rerun-failed']);
    expect(ran).toMatchObject({ code: 0, out: 'job four: replaced (it FAILED: exit code 4): four-1\n' });
    expect(service.seen.map(({ method }) => method)).toEqual(['GET', 'DELETE', 'POST']);
  });
});
