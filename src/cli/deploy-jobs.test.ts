import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, expect, test } from 'vitest';
import { cli, json, StubService } from '../../test/parts/cli.ts';

const directory = mkdtempSync(join(tmpdir(), 'rookery-deploy-jobs-'));
const file = join(directory, 'rookery.yaml');
writeFileSync(file, 'jobs: { nightly: { command: "true", schedule: "0 4 * * *" } }');
afterAll(() => rmSync(directory, { recursive: true }));

const OLD = { schedule_id: 'nightly', cron: '0 3 * * *', timezone: 'UTC', overlap: 'skip' };
const JOB = { entrypoint: 'true', metadata: {}, runtime_env: {} };

/** Has the schedule, and answers every write of it with `status`. */
const serve = (status: number) =>
  StubService.start((request, response) => {
    if (request.method === 'GET') json(response, 200, { ...OLD, job: JOB });
    else json(response, status, { message: 'no room' });
  });

const deploy = (service: StubService) => cli(['deploy', '-f', file, '--address', service.address]);

test('a schedule is replaced in one request, so that it is never gone', async () => {
  await using service = await serve(200);
  expect(await deploy(service)).toMatchObject({ code: 0, out: expect.stringContaining('nightly: replaced (cron)') });
  expect(service.seen.map(({ method, url }) => `${method} ${url}`)).toEqual([
    'GET /api/job_schedules/nightly',
    'PUT /api/job_schedules/nightly',
  ]);
  expect(JSON.parse(service.last.body)).toMatchObject({ cron: '0 4 * * *', job: JOB });
});

test('a schedule that is refused is told together with what becomes of the old one', async () => {
  await using service = await serve(400);
  expect(await deploy(service)).toMatchObject({
    code: 1,
    out: expect.stringContaining('nightly: failed: the old schedule goes on, since the new one: no room'),
  });
});
