import { execFileSync } from 'node:child_process';
import { mkdirSync, mkdtempSync, readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, afterEach, beforeAll, expect, test, vi } from 'vitest';
import { leftoversIn } from '../../src/lib/removals.ts';
import { describeExit, type SandboxDriver, type SandboxSpec } from '../../src/sandbox/driver.ts';
import { describeWith } from '../probe.ts';
import { ProcessFixture } from './process-fixture.ts';

const WAIT_MS = 60_000;
const MAX_MB = 4;
const DISK = { maxMb: MAX_MB, intervalMs: 50 };

vi.setConfig({ testTimeout: 120_000 });

describeWith(['root'], 'the files of a sandbox on the disk of the host', () => {
  let fixture: ProcessFixture;
  let driver: SandboxDriver;
  let host: string;

  beforeAll(() => {
    fixture = new ProcessFixture({ disk: DISK });
    driver = fixture.driver();
    host = mkdtempSync(join(tmpdir(), 'rookery-disk-'));
  });

  afterEach(async () => {
    for (const { handle } of await driver.list()) await driver.remove(handle);
  });

  afterAll(async () => {
    await fixture.dispose();
    execFileSync('rm', ['-rf', host]);
  });

  /** Returns a Python program, and `/writable`, a directory of the service for it. */
  const program = (code: string, changes: Partial<SandboxSpec> = {}) => {
    const work = mkdtempSync(join(host, 'work-'));
    const argv = ['/usr/bin/python3', '-c', `import os, time\n${code}\ntime.sleep(600)`];
    const platformMounts = [{ source: work, target: '/writable', readonly: false }];
    return { work, spec: fixture.spec({ command: { kind: 'exec', argv }, platformMounts, ...changes }) };
  };
  const start = (spec: SandboxSpec, by = driver) => by.start(spec, AbortSignal.timeout(WAIT_MS));
  const fill = (path: string, megabytes: number) => `open('${path}', 'wb').write(os.urandom(1048576) * ${megabytes})`;
  const over = new RegExp(`^it has \\d+ MB on disk, more than the ${MAX_MB} MB of process.diskMb \\(`);

  test.each([
    ['in a directory of the service', fill('/writable/file', 20)],
    ['beside its socket', fill('/run/rookery/file', 20)],
    [
      'in many files',
      `for n in range(300):\n    ${fill('/writable/%d', 1).replace("'/writable/%d'", "'/writable/%d' % n")}`,
    ],
    [
      'in directories deeper than any path',
      `os.chdir('/writable')\nfor _ in range(60):\n    os.mkdir('d' * 200); os.chdir('d' * 200)\n${fill('file', 20)}`,
    ],
    [
      'in a directory without permissions',
      `os.mkdir('/writable/d')\n${fill('/writable/d/file', 20)}\nos.chmod('/writable/d', 0)`,
    ],
  ])('a sandbox that writes above its disk bound ends with that reason: %s', async (_title, code) => {
    const { handle } = await start(program(code).spec);
    const exit = await driver.wait(handle, AbortSignal.timeout(WAIT_MS));
    expect(describeExit(exit)).toMatch(over);
    // A later inspect returns the same.
    expect(await driver.inspect(handle)).toMatchObject({ state: 'exited', exit: { cause: exit.cause } });
  });

  test('the disk use of a sandbox excludes files in memory, holes of sparse files and mounted directories', async () => {
    const callers = mkdtempSync(join(host, 'callers-'));
    mkdirSync(join(callers, 'd'));
    const code = [
      fill('/tmp/file', 20),
      fill('/dev/shm/file', 20),
      fill('/mine/file', 20),
      "os.truncate(os.open('/writable/sparse', os.O_CREAT | os.O_RDWR), 1 << 40)",
      "os.symlink('/mine/file', '/writable/link')",
      "open('/writable/done', 'w').close()",
    ].join('\n');
    const mounts = [{ source: callers, target: '/mine', readonly: false }];
    const { work, spec } = program(code, { mounts });
    const neighbour = program(fill('/writable/file', 20));
    const { handle } = await start(spec);
    await expect.poll(() => execFileSync('ls', [work]).toString(), { timeout: WAIT_MS }).toContain('done');
    // A check that began after the program finished has seen its files. The neighbour's end proves that such
    // a check ran.
    const other = await start(neighbour.spec);
    await driver.wait(other.handle, AbortSignal.timeout(WAIT_MS));
    expect(await driver.inspect(handle)).toEqual({ state: 'running' });
  });

  test('a sandbox’s disk is bounded by the next service too', async () => {
    const own = new ProcessFixture({ disk: DISK });
    const first = own.driver({ disk: { ...DISK, intervalMs: 600_000 } });
    const go = mkdtempSync(join(host, 'go-'));
    const wait = `while not os.path.exists('/go/now'): time.sleep(0.05)\n${fill('/writable/file', 20)}`;
    const { spec } = program(wait, { mounts: [{ source: go, target: '/go', readonly: true }] });
    const { handle } = await start(spec, first);
    await first.close();
    const next = own.driver();
    writeFileSync(join(go, 'now'), '');
    expect(describeExit(await next.wait(handle, AbortSignal.timeout(WAIT_MS)))).toMatch(over);
    await own.dispose();
  });

  test('files of a sandbox are removed with it, whatever their depth, and the driver lists it no more', async () => {
    const code = `os.chdir('/run/rookery')
for _ in range(60):
    os.mkdir('d' * 200); os.chdir('d' * 200)
os.mkdir('/writable/made')`;
    const { work, spec } = program(code);
    const { handle } = await start(spec);
    await expect.poll(() => readdirSync(work), { timeout: WAIT_MS }).toEqual(['made']);
    await driver.remove(handle);
    expect(readdirSync(join(fixture.dataDir, 'run', 'instances'))).toEqual([]);
    expect(await driver.list()).toEqual([]);
  });

  test('a sandbox whose files cannot be removed ends, and can be created again', async () => {
    const { spec } = program('');
    const { handle } = await start(spec);
    const busy = join(fixture.dataDir, 'run', 'instances', spec.instanceId, 'sock', 'busy');
    mkdirSync(busy);
    execFileSync('mount', ['-t', 'tmpfs', 'none', busy]);
    try {
      await driver.remove(handle);
      expect(await driver.inspect(handle)).toEqual({ state: 'gone' });
      expect(await driver.list()).toEqual([]);
      await driver.remove((await start(spec)).handle);
      expect(readdirSync(leftoversIn(fixture.dataDir))).toHaveLength(1);
    } finally {
      const mounts = `grep -F ${fixture.dataDir} /proc/self/mountinfo | cut -d ' ' -f 5 | xargs -r umount -l`;
      execFileSync('sh', ['-c', mounts]);
    }
  });

  test('the disk use of a Python handler is not measured, because its files are in memory', async () => {
    const { handle } = await start(fixture.spec());
    expect(() => readFileSync(join(fixture.dataDir, 'run', 'instances', handle.instanceId, 'disk.json'))).toThrow(
      'ENOENT',
    );
  });
});
