import { once } from 'node:events';
import { afterAll, afterEach, beforeAll, describe, expect, test } from 'vitest';
import type { ExecRequest, SandboxHandle, SandboxSpec } from '../../src/sandbox/driver.ts';
import type { ProcessDriver } from '../../src/sandbox/process/driver.ts';
import { available } from '../parts/available.ts';
import { isError } from '../suites/sandbox-driver.ts';
import { ProcessFixture } from './process-fixture.ts';

const WAIT_MS = 30_000;
const MOST_PROCESSES = 24;

function command(script: string, maxOutputBytes = 1_000_000): ExecRequest {
  return { argv: ['sh', '-c', script], workingDir: '', env: {}, stdin: '', timeoutMs: WAIT_MS, maxOutputBytes };
}

/**
 * Script that adds a process for each line. It tries again while the processes of an earlier command still
 * count.
 */
const FILLER = `
import os, sys, time
for line in sys.stdin:
    while True:
        try:
            child = os.fork()
        except OSError:
            time.sleep(0.01)
            continue
        break
    if child == 0:
        time.sleep(600)
    print('more', flush=True)
`;

/**
 * Test that needs control groups, which limit the processes and the memory of a sandbox. Only root always has
 * them.
 */
const testWithGroups = test.runIf(process.getuid?.() === 0);

describe('commands in a process sandbox', { timeout: 120_000 }, () => {
  let fixture: ProcessFixture;
  let driver: ProcessDriver;

  beforeAll(async () => {
    fixture = new ProcessFixture();
    driver = fixture.driver();
    await available(driver);
  });

  afterEach(async () => {
    for (const { handle } of await driver.list()) await driver.remove(handle);
  });

  afterAll(async () => {
    await fixture.dispose();
  });

  const signal = () => AbortSignal.timeout(WAIT_MS);
  const start = async (changes: Partial<SandboxSpec>) => (await driver.start(fixture.spec(changes), signal())).handle;
  const exec = (handle: SandboxHandle, script: string) => driver.exec(handle, command(script), signal());

  testWithGroups('a command says that no process can be started when the sandbox is at its process limit', async () => {
    const handle = await start({ maxProcesses: MOST_PROCESSES });
    const argv = ['python3', '-c', FILLER];
    const filler = await driver.access(handle).openExec({ argv, workingDir: '', env: {}, terminal: null }, signal());
    const failures: unknown[] = [];
    // If one more process fits, the helper's own fork fails; if none fits, the fork of init fails.
    for (let count = 0; count < MOST_PROCESSES && failures.length < 2; count++) {
      filler.stdin.write('\n');
      await once(filler.stdout, 'data', { signal: signal() });
      await exec(handle, 'exit 0').catch((error: unknown) => failures.push(error));
    }
    const isTold = isError('unavailable', /^no process can be started inside: Resource temporarily unavailable$/);
    expect(failures).toHaveLength(2);
    for (const failure of failures) expect(failure).toSatisfy(isTold);
    expect(await driver.inspect(handle)).toEqual({ state: 'running' });
  });

  testWithGroups('a command says that the sandbox ran out of memory when that ended it', async () => {
    const handle = await start({ memoryMb: 64 });
    const filling = exec(handle, 'exec dd if=/dev/zero of=/tmp/fill bs=1M count=600');
    const error: unknown = await filling.catch((failure: unknown) => failure);
    // The kernel kills the command, which reports it, or the runtime, which ends the sandbox.
    if (error instanceof Error) {
      const isTold = isError(
        'unavailable',
        /^the sandbox ended before the command did: signal SIGKILL \(out of memory\)$/,
      );
      expect(error).toSatisfy(isTold);
    } else expect(error).toMatchObject({ returncode: 137 });
  });

  test('a truncated output ends with a whole character', async () => {
    const handle = await start({});
    const request = command("printf 'a'; for i in 1 2 3 4 5 6 7 8 9; do printf 'é'; done", 10);
    const result = await driver.exec(handle, request, signal());
    expect(result).toMatchObject({ stdout: 'aéééé', truncated: true });
  });
});
