import { execFileSync } from 'node:child_process';
import { mkdirSync, readdirSync } from 'node:fs';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, test, vi } from 'vitest';
import { Served } from '../../scripts/served.ts';
import { JobClient } from '../jobs/client.ts';
import { describeWith } from '../probe.ts';

const WAIT_MS = 30_000;
/** Script for 60 nested directories with names of 200 characters; no path may be that long. */
const DEEP = `python3 -c "import os
for _ in range(60):
    os.mkdir('d' * 200); os.chdir('d' * 200)
open('file', 'w').close()"`;

let server: Served;

beforeEach(async () => {
  server = await Served.start();
});

afterEach(async () => {
  await server?.end('SIGKILL');
  // Node cannot remove directories of that depth.
  execFileSync('rm', ['-rf', work()]);
  await server?.remove();
});

const work = () => join(server.dataDir, 'jobs', 'work');
const metric = async () =>
  /^rookery_leftovers (\d+)$/m.exec(await (await fetch(`${server.frontendUrl}/metrics`)).text())?.[1];

describe('leftovers of a job', { timeout: 120_000 }, () => {
  test('a directory tree of any depth is removed with the job that made it', async () => {
    const jobs = new JobClient(server.frontendUrl);
    expect(await jobs.run({ entrypoint: DEEP })).toMatchObject({ status: 'SUCCEEDED' });
    await vi.waitFor(() => expect(readdirSync(work())).toEqual([]), WAIT_MS);
    expect(await metric()).toBe('0');
  });

  test('a deep directory tree of a job does not prevent the start of the next service', async () => {
    const jobs = new JobClient(server.frontendUrl);
    const id = await jobs.submit({ entrypoint: `${DEEP}; echo made; sleep 600` });
    await vi.waitFor(async () => expect(await jobs.log(id)).toContain('made'), WAIT_MS);
    await server.end('SIGKILL');
    // The directory belongs to a job without a record.
    mkdirSync(join(work(), '4711'));
    execFileSync('sh', ['-c', DEEP], { cwd: join(work(), '4711') });
    server = await server.next();
    expect((await fetch(`${server.frontendUrl}/readyz`)).status).toBe(200);
    await new JobClient(server.frontendUrl).ask('POST', `/api/jobs/${id}/stop`);
    await vi.waitFor(() => expect(readdirSync(work())).toEqual([]), WAIT_MS);
    expect(await metric()).toBe('0');
  });
});

describeWith(['root'], 'a leftover that cannot be removed', () => {
  test('a leftover that cannot be removed does not stop the start, is counted, and is removed later', {
    timeout: 120_000,
  }, async () => {
    await server.end('SIGKILL');
    const busy = join(work(), '4711', 'a', 'busy');
    mkdirSync(busy, { recursive: true });
    mkdirSync(join(work(), '4712'));
    execFileSync('mount', ['-t', 'tmpfs', 'none', busy]);
    try {
      server = await server.next();
      expect((await fetch(`${server.frontendUrl}/readyz`)).status).toBe(200);
      expect(readdirSync(work())).toEqual([]);
      expect(await metric()).toBe('1');
    } finally {
      const mounts = `grep -F ${server.dataDir} /proc/self/mountinfo | cut -d ' ' -f 5 | xargs -r umount -l`;
      execFileSync('sh', ['-c', mounts]);
    }
    await server.end('SIGKILL');
    server = await server.next();
    await vi.waitFor(() => expect(readdirSync(join(server.dataDir, 'leftovers'))).toEqual([]), WAIT_MS);
  });
});
