import { execFileSync, spawnSync } from 'node:child_process';
import {
  existsSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  renameSync,
  rmdirSync,
  rmSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { describe, expect, test } from 'vitest';
import { ROOT } from '../../scripts/command.ts';
import { messageOf } from '../../src/core/error.ts';
import { available } from '../parts/available.ts';
import { ProcessFixture } from './process-fixture.ts';
import { commandLine, pidOf, pids, zygoteTitles } from './zygote-processes.ts';

const WAIT_MS = 30_000;
/** Directory where the kernel counts the processes of groups, version 1. */
const PIDS_GROUP = '/sys/fs/cgroup/pids';
const HAS_PIDS_GROUP = existsSync(`${PIDS_GROUP}/cgroup.procs`) && process.getuid?.() === 0;
/** Longer than any test waits, so that a zygote ends only on request. */
const NEVER_IDLE = { zygoteIdleExitMs: 600_000 };

/** Tests that zygotes end with their server, whatever happened to them before. */
describe('zygotes when their server closes cleanly', { timeout: 120_000 }, () => {
  const zygoteOf = ({ dataDir }: ProcessFixture) => {
    const [title = ''] = zygoteTitles(dataDir);
    const pid = pidOf(title);
    if (pid === null) throw new Error('no zygote runs');
    return { title, pid };
  };

  /** Returns a zygote and its forks that are not instances. */
  const familyOf = (title: string) => pids().filter(pid => commandLine(pid) === title);

  const haveEnded = async (title: string) => await expect.poll(() => familyOf(title), { timeout: WAIT_MS }).toEqual([]);

  /** Starts a zygote and kills its server. */
  const leaveZygote = ({ dataDir }: ProcessFixture) => {
    const file = join(dataDir, 'server.mts');
    writeFileSync(
      file,
      `import { ProcessFixture } from ${JSON.stringify(join(import.meta.dirname, 'process-fixture.ts'))};
       import { available } from ${JSON.stringify(join(ROOT, 'test/parts/available.ts'))};
       await available(new ProcessFixture(${JSON.stringify({ ...NEVER_IDLE, dataDir })}).driver());
       process.kill(process.pid, 'SIGKILL');`,
    );
    const server = ['--import', 'tsx', file];
    const { signal, stderr } = spawnSync(process.execPath, server, { cwd: ROOT, encoding: 'utf8' });
    expect(signal, stderr).toBe('SIGKILL');
  };

  const logOf = ({ dataDir }: ProcessFixture) => {
    const run = join(dataDir, 'run');
    const name = readdirSync(run).find(each => /^py.*\.log$/.test(each)) ?? '';
    return join(run, name);
  };

  /**
   * Starts a sandbox, and makes the creation of further workers fail until `mend`. Then the zygote must end
   * with its driver.
   */
  const withFailedWorkers = async (own: ProcessFixture, spoil: () => void, mend: () => void, isLogged = true) => {
    const driver = own.driver();
    const start = () => driver.start(own.spec(), AbortSignal.timeout(WAIT_MS)).then(() => 'started', messageOf);
    expect(await start()).toBe('started');
    const { title, pid } = zygoteOf(own);
    spoil();
    // A start that waits for such a worker fails.
    await expect.poll(start, { timeout: WAIT_MS }).toMatch(/the sandbox cannot be made/);
    // Every further start fails, because no earlier worker is left. The failed workers have logged the reason
    // by then.
    for (let each = 0; each < 10; each++) expect(await start()).toMatch(/the sandbox cannot be made/);
    if (isLogged) expect(readFileSync(logOf(own), 'utf8')).toMatch(/cannot be made/);
    mend();
    // The zygote continues to serve. Only the workers in creation fail.
    await expect.poll(start, { timeout: WAIT_MS }).toBe('started');
    expect(pidOf(title)).toBe(pid);
    for (const { handle } of await driver.list()) await driver.remove(handle);
    await driver.close();
    await haveEnded(title);
    await own.dispose();
  };

  test('zygotes end although their workers could not be made: the directory of workers is missing', async () => {
    const own = new ProcessFixture(NEVER_IDLE);
    const workers = join(own.dataDir, 'run/spares');
    await withFailedWorkers(
      own,
      () => renameSync(workers, `${workers}-away`),
      () => renameSync(`${workers}-away`, workers),
    );
  });

  test.runIf(process.getuid?.() === 0).each([
    ['the disk is full', true],
    ['the disk is full for their log too', false],
  ])('zygotes end although their workers could not be made: %s', async (_, isLogged) => {
    const disk = mkdtempSync(join(tmpdir(), 'rookery-full-'));
    execFileSync('mount', ['-t', 'tmpfs', '-o', 'size=4m', 'tmpfs', disk]);
    try {
      const own = new ProcessFixture({ ...NEVER_IDLE, dataDir: join(disk, 'data') });
      await withFailedWorkers(
        own,
        () => {
          // Allocates the first block of the log, so that the full disk still has capacity for its lines.
          if (isLogged) writeFileSync(logOf(own), 'begun\n', { flag: 'r+' });
          expect(() => {
            for (let part = 0; ; part++) writeFileSync(join(disk, `filler-${part}`), Buffer.alloc(4096));
          }).toThrow('ENOSPC');
        },
        () => execFileSync('sh', ['-c', 'rm -f filler-*'], { cwd: disk }),
        isLogged,
      );
    } finally {
      execFileSync('umount', ['-l', disk]);
      rmSync(disk, { recursive: true });
    }
  });

  test.runIf(HAS_PIDS_GROUP)(
    'zygotes end although no worker could be forked, and waiting starts fail with the reason',
    async () => {
      const own = new ProcessFixture(NEVER_IDLE);
      const group = mkdtempSync(`${PIDS_GROUP}/rookery-test-`);
      const forkServer = () => {
        const title = zygoteOf(own).title.replace('zygote', 'fork server');
        return String(pids().find(pid => commandLine(pid) === title));
      };
      let usual = '';
      await withFailedWorkers(
        own,
        () => {
          const pid = forkServer();
          const line = readFileSync(`/proc/${pid}/cgroup`, 'utf8').match(/:pids:(.*)$/m);
          usual = join(PIDS_GROUP, line?.[1] ?? '');
          writeFileSync(join(group, 'pids.max'), '1');
          writeFileSync(join(group, 'cgroup.procs'), pid);
        },
        () => writeFileSync(join(usual, 'cgroup.procs'), forkServer()),
      );
      rmdirSync(group);
    },
  );

  test('zygotes end although one was killed while several starts waited for it', async () => {
    const own = new ProcessFixture(NEVER_IDLE);
    const driver = own.driver();
    const start = () => driver.start(own.spec(), AbortSignal.timeout(WAIT_MS));
    await driver.remove((await start()).handle);
    const { pid } = zygoteOf(own);
    process.kill(pid, 'SIGSTOP');
    const starts = Array.from({ length: 6 }, start);
    process.kill(pid, 'SIGKILL');
    for (const { handle } of await Promise.all(starts)) await driver.remove(handle);
    const { title } = zygoteOf(own);
    await driver.close();
    await haveEnded(title);
    await own.dispose();
  });

  test.each([
    ['the server has used the zygotes', false],
    ['a killed server left the zygotes, and this server never used them', true],
  ])('zygotes end although they are stopped when the request arrives: %s', async (_, isLeft) => {
    const own = new ProcessFixture(NEVER_IDLE);
    const driver = own.driver();
    if (isLeft) leaveZygote(own);
    else await available(driver);
    const { title, pid } = zygoteOf(own);
    process.kill(pid, 'SIGSTOP');
    try {
      await driver.close();
    } finally {
      process.kill(pid, 'SIGCONT');
    }
    await haveEnded(title);
    await own.dispose();
  });
});
