import { execFileSync } from 'node:child_process';
import { mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, describe, expect, test, vi } from 'vitest';
import { Served } from '../../scripts/served.ts';
import { describeWith } from '../probe.ts';
import { JobClient } from './client.ts';

const WAIT_MS = 60_000;
const servers: Served[] = [];

afterEach(async () => {
  for (const server of servers.splice(0)) await server.remove();
});

/** Starts a server that is removed after the test; `next` continues with its directory. */
async function serve(options: Parameters<typeof Served.start>[0]): Promise<Served> {
  const server = await Served.start(options);
  servers.push(server);
  return server;
}

/** Returns the pids of this data directory's zygotes, which have their names in their process titles. */
function zygotePids(dataDir: string): number[] {
  const names = readdirSync(join(dataDir, 'run')).flatMap(file => /^(py.*)\.lock$/.exec(file)?.[1] ?? []);
  const pids = readdirSync('/proc').filter(name => /^\d+$/.test(name));
  return pids.filter(pid => names.some(name => titleOf(pid).startsWith(`rookery: zygote ${name}`))).map(Number);
}

function titleOf(pid: string): string {
  try {
    return readFileSync(`/proc/${pid}/cmdline`, 'utf8');
  } catch {
    return '';
  }
}

/** Sends a signal; returns false when the process does not exist. */
function isSent(pid: number, signal: NodeJS.Signals): boolean {
  try {
    return process.kill(pid, signal);
  } catch {
    return false;
  }
}

describe('a zygote that does not answer', () => {
  test('a zygote that does not answer fails neither the running job nor the waiting job', async () => {
    const first = await serve({ args: ['--set', 'jobs.maxRunning=2'] });
    const before = new JobClient(first.frontendUrl);
    const running = await before.submit({ entrypoint: 'while [ ! -e go ]; do sleep 0.1; done; echo went' });
    const { status } = await before.until(running, record => record.status === 'RUNNING');
    expect(status).toBe('RUNNING');
    await first.end('SIGKILL');
    // A fork that does not yet have its own title may have exited.
    const zygotes = zygotePids(first.dataDir).filter(pid => isSent(pid, 'SIGSTOP'));
    expect(zygotes).not.toEqual([]);
    let jobs: JobClient;
    let waiting: string;
    try {
      servers.push(await first.next());
      servers.shift();
      jobs = new JobClient((servers[0] as Served).frontendUrl);
      waiting = await jobs.submit({ entrypoint: 'echo waited' });
      const record = await jobs.until(waiting, ({ message }) => String(message).includes('the service retries'));
      expect(record.status).toBe('PENDING');
      expect((await jobs.get(running)).status).toBe('RUNNING');
    } finally {
      for (const pid of zygotes) isSent(pid, 'SIGCONT');
    }
    expect(await jobs.until(waiting)).toMatchObject({ status: 'SUCCEEDED' });
    expect(await jobs.log(waiting)).toBe('waited\n');
    await jobs.ask('POST', `/api/jobs/${running}/stop`);
    expect(await jobs.until(running)).toMatchObject({ status: 'STOPPED' });
  }, 180_000);
});

describeWith(['root', 'namespaces'], 'a full disk', () => {
  test('a full disk does not lose the end of a job, and the server reports the full disk until space is free', async () => {
    const disk = mkdtempSync(join(tmpdir(), 'rookery-full-'));
    execFileSync('mount', ['-t', 'tmpfs', '-o', 'size=32m', 'tmpfs', disk]);
    const empty = () => execFileSync('sh', ['-c', 'rm -f filler-*'], { cwd: disk });
    try {
      const server = await serve({ dataDir: disk });
      const jobs = new JobClient(server.frontendUrl);
      const running = await jobs.submit({ entrypoint: 'sleep 20; exit 7' });
      await jobs.until(running, ({ status }) => status === 'RUNNING');
      expect(() => {
        for (let part = 0; ; part++) writeFileSync(join(disk, `filler-${part}`), Buffer.alloc(4096));
      }).toThrow('ENOSPC');
      // Jobs that never run use up the space in the log of the database.
      for (let status = 200; status === 200; ) {
        ({ status } = await jobs.ask('POST', '/api/jobs/', { entrypoint: 'true', entrypoint_num_gpus: 1 }));
      }
      await vi.waitFor(() => expect(server.output).toContain('cannot write new state of job; retrying'), {
        timeout: WAIT_MS,
      });
      const refused = await jobs.ask('POST', '/api/jobs/', {
        entrypoint: 'true',
        metadata: { large: 'x'.repeat(100_000) },
      });
      expect(refused).toMatchObject({ status: 503, text: expect.stringContaining('the disk is full') });
      expect(refused.text).not.toContain('rollback');
      const ready = await fetch(`${server.frontendUrl}/readyz`);
      expect([ready.status, await ready.json()]).toMatchObject([
        503,
        { components: { storage: expect.stringMatching(/disk .*is full/) } },
      ]);
      expect((await jobs.get(running)).status).toBe('RUNNING');
      empty();
      expect(await jobs.until(running)).toMatchObject({ status: 'FAILED', driver_exit_code: 7 });
      await vi.waitFor(async () => expect((await fetch(`${server.frontendUrl}/readyz`)).status).toBe(200), {
        timeout: WAIT_MS,
      });
      expect(await jobs.run({ entrypoint: 'true' })).toMatchObject({ status: 'SUCCEEDED' });
    } finally {
      empty();
      for (const server of servers.splice(0)) await server.remove().catch(() => undefined);
      execFileSync('umount', ['-l', disk]);
      rmSync(disk, { recursive: true, force: true });
    }
  }, 180_000);
});
