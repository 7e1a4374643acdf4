import { readdir } from 'node:fs/promises';
import { join } from 'node:path';
import { afterEach, expect, test } from 'vitest';
import { Served } from '../../scripts/served.ts';
import { JobClient } from './client.ts';

let server: Served | undefined;

afterEach(async () => {
  await server?.remove();
  server = undefined;
});

async function serve(...args: string[]): Promise<{ served: Served; jobs: JobClient }> {
  server = await Served.start({ args });
  return { served: server, jobs: new JobClient(server.frontendUrl) };
}

/** Returns the values of all series whose name begins with `prefix`, by name and labels. */
async function metricsOf({ frontendUrl }: Served, prefix: string): Promise<Record<string, number>> {
  const page = await (await fetch(`${frontendUrl}/metrics`)).text();
  const lines = page.split('\n').filter(line => line.startsWith(prefix) && !line.includes('_bucket'));
  return Object.fromEntries(lines.map(line => [line.slice(0, line.lastIndexOf(' ')), Number(line.split(' ').at(-1))]));
}

test('metrics count waiting, running and ended jobs and measure their waiting and running times', async () => {
  const { served, jobs } = await serve('--set', 'jobs.maxRunning=1');
  const metadata = { 'rookery.retries': '1', 'rookery.retry_delay_ms': '1' };
  await jobs.run({ entrypoint: 'true' });
  await jobs.run({ entrypoint: 'exit 1', metadata });
  const running = await jobs.submit({ entrypoint: 'sleep 1000' });
  await jobs.until(running, ({ status }) => status === 'RUNNING');
  const waiting = await jobs.submit({ entrypoint: 'true' });
  expect(await metricsOf(served, 'rookery_jobs')).toEqual({
    'rookery_jobs{status="PENDING"}': 1,
    'rookery_jobs{status="RUNNING"}': 1,
  });
  for (const id of [waiting, running]) await jobs.ask('POST', `/api/jobs/${id}/stop`);
  await jobs.until(running);
  await expect
    .poll(() => metricsOf(served, 'rookery_jobs'))
    .toEqual({ 'rookery_jobs{status="PENDING"}': 0, 'rookery_jobs{status="RUNNING"}': 0 });
  expect(await metricsOf(served, 'rookery_job_ends_total')).toEqual({
    'rookery_job_ends_total{status="SUCCEEDED"}': 1,
    'rookery_job_ends_total{status="FAILED"}': 1,
    'rookery_job_ends_total{status="STOPPED"}': 2,
  });
  // The job that was stopped while it waited never began. The failed job ran twice and waited once.
  expect(await metricsOf(served, 'rookery_job_wait_seconds_count')).toEqual({ rookery_job_wait_seconds_count: 3 });
  expect(await metricsOf(served, 'rookery_job_run_seconds_count')).toEqual({
    'rookery_job_run_seconds_count{status="SUCCEEDED"}': 1,
    'rookery_job_run_seconds_count{status="FAILED"}': 2,
    'rookery_job_run_seconds_count{status="STOPPED"}': 1,
  });
});

test('the last log line of a stop counts running and waiting jobs, and --stop-agents ends the running ones', async () => {
  const { served, jobs } = await serve('--set', 'jobs.maxRunning=1');
  const running = await jobs.submit({ entrypoint: 'sleep 1000' });
  await jobs.until(running, ({ status }) => status === 'RUNNING');
  const waiting = await jobs.submit({ entrypoint: 'sleep 1000' });
  expect(await served.end()).toBe(0);
  expect(served.output).toMatch(
    /^stopped: no agent is left; 1 job runs on and is adopted at the next start; 1 job waits and is taken up at the next start; /m,
  );
  const next = await served.next({ args: ['--set', 'jobs.maxRunning=1', '--stop-agents'] });
  try {
    const again = new JobClient(next.frontendUrl);
    expect((await again.get(running)).status).toBe('RUNNING');
    expect((await again.get(waiting)).status).toBe('PENDING');
    expect(await metricsOf(next, 'rookery_jobs')).toEqual({
      'rookery_jobs{status="PENDING"}': 1,
      'rookery_jobs{status="RUNNING"}': 1,
    });
  } finally {
    expect(await next.end()).toBe(0);
  }
  expect(next.output).toMatch(/^stopped: no agent is left; 1 job waits and is taken up at the next start$/m);
});

test('a job of an earlier server can be stopped as soon as the next one is ready', async () => {
  const { served, jobs } = await serve();
  const id = await jobs.submit({ entrypoint: 'sleep 1000' });
  await jobs.until(id, ({ status }) => status === 'RUNNING');
  await served.end('SIGKILL');
  const next = await served.next();
  const again = new JobClient(next.frontendUrl);
  try {
    expect((await again.ask('POST', `/api/jobs/${id}/stop`)).text).toBe('{"stopped":true}');
    expect(await again.until(id)).toMatchObject({ status: 'STOPPED' });
  } finally {
    await next.end('SIGKILL');
  }
});

test.each([
  ['', []],
  [' with --stop-agents', ['--stop-agents']],
])('a stop%s leaves a job that installs packages to the next start without waiting for pip', async (_, args) => {
  const { served, jobs } = await serve(...args);
  // Nothing writes to the other end of this terminal, so pip waits for input.
  const pip = { packages: ['-r /dev/ptmx'] };
  const id = await jobs.submit({ entrypoint: 'true', runtime_env: { pip } });
  const environments = join(served.dataDir, 'jobs', 'environments');
  await expect.poll(() => readdir(environments).catch(() => [])).toHaveLength(1);
  expect(await served.end()).toBe(0);
  expect(served.output).toContain('stopped: no agent is left; 1 job waits and is taken up at the next start');
  const next = await served.next({ args: [] });
  try {
    expect(await new JobClient(next.frontendUrl).get(id)).toMatchObject({ status: 'PENDING', attempt: 1 });
  } finally {
    expect(await next.end()).toBe(0);
  }
});
