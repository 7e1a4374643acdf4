import { expect, test } from 'vitest';
import { cli, json, StubService } from '../../../test/parts/cli.ts';

const submitted = () => StubService.start((_, response) => json(response, 200, { submission_id: 'x' }));

test.each([
  [['--timezone', 'Europe/Berlin', '--', 'python', 'report.py', '--timezone', 'x'], 'python report.py --timezone x'],
  [['--timezone', 'Europe/Berlin', 'python', 'report.py', '-v'], 'python report.py -v'],
  [['--timezone=Europe/Berlin', '--retries', '2', '--', 'python'], 'python'],
])('schedule create reads options between the pattern and the command: %j', async (words, entrypoint) => {
  await using service = await submitted();
  const ran = await cli(['job', 'schedule', 'create', '--address', service.address, 'nightly', '0 3 * * *', ...words]);
  expect(ran).toMatchObject({ code: 0, err: '' });
  expect(JSON.parse(service.last.body)).toMatchObject({ timezone: 'Europe/Berlin', job: { entrypoint } });
});

test('schedule create replaces a schedule only when --replace is given', async () => {
  await using service = await submitted();
  const create = (...flags: string[]) =>
    cli(['job', 'schedule', 'create', '--address', service.address, 'a/b', '0 3 * * *', ...flags, '--', 'true']);
  for (const flags of [[], ['--replace']]) expect(await create(...flags)).toMatchObject({ code: 0, out: 'a/b\n' });
  expect(service.seen.map(({ method, url }) => `${method} ${url}`)).toEqual([
    'POST /api/job_schedules',
    'PUT /api/job_schedules/a%2Fb',
  ]);
});

test('schedule create names --replace when the schedule exists', async () => {
  await using service = await StubService.start((_, response) => json(response, 409, { message: 'It exists' }));
  const ran = await cli(['job', 'schedule', 'create', '--address', service.address, 'a', '0 3 * * *', '--', 'true']);
  expect(ran).toMatchObject({ code: 1, err: expect.stringMatching(/It exists\nUse --replace/) });
});

test('job submit reads options before the command, and passes later options to the command', async () => {
  await using service = await submitted();
  const address = ['--address', service.address];
  for (const words of [
    ['--retries', '3', '--', 'python', '--retries', '1'],
    ['--', 'python', '--retries', '1'],
    ['python', '--retries', '1'],
  ]) {
    const ran = await cli(['job', 'submit', ...address, ...words]);
    expect(ran).toMatchObject({ code: 0, err: '' });
    expect(JSON.parse(service.last.body).entrypoint).toBe('python --retries 1');
  }
  expect(JSON.parse(service.seen[0]?.body ?? '').metadata).toEqual({ 'rookery.retries': '3' });
});

test.each([
  [['n', '0 3 * * *', '--timezon', 'X', '--', 'python'], 'no option --timezon'],
  [['n', '0 3 * * *', '--timezone', 'X'], 'The command is missing'],
])('schedule create refuses an unknown option or a missing command: %j', async (words, sentence) => {
  const ran = await cli(['job', 'schedule', 'create', ...words]);
  expect(ran).toMatchObject({ code: 2, err: expect.stringContaining(sentence) });
});

test.each(['', 'running'])('job list refuses an unknown status with exit code 2: %j', async status => {
  await using service = await StubService.start((_, response) => json(response, 200, []));
  expect(await cli(['job', 'list', '--status', status, '--address', service.address])).toMatchObject({
    ...{ code: 2, out: '' },
    err: expect.stringContaining(
      `--status must be PENDING, RUNNING, STOPPED, SUCCEEDED or FAILED, not ${JSON.stringify(status)}.`,
    ),
  });
});

test('job rerun prints the id of the new job, and --json the answer', async () => {
  await using service = await submitted();
  const rerun = (...flags: string[]) => cli(['job', 'rerun', '--address', service.address, 'a/b', ...flags]);
  expect(await rerun()).toMatchObject({ code: 0, out: 'x\n' });
  expect(JSON.parse((await rerun('--json')).out)).toEqual({ submission_id: 'x' });
  expect(service.seen.map(({ method, url }) => `${method} ${url}`)).toEqual([
    'POST /api/jobs/a%2Fb/rerun',
    'POST /api/jobs/a%2Fb/rerun',
  ]);
});
