import { afterEach, describe, expect, test, vi } from 'vitest';
import { JobsHarness, TENANT } from '../../test/jobs/harness.ts';
import { JobNodes } from '../../test/jobs/nodes.ts';
import { failedPrecondition, unavailable } from '../core/error.ts';
import { readJobSubmission } from '../core/job.ts';

/** Gate that the test opens. */
function gate(): { readonly opened: Promise<void>; open(): void } {
  let open!: () => void;
  const opened = new Promise<void>(resolve => {
    open = resolve;
  });
  return { opened, open };
}

const startsOf = ({ driver }: JobsHarness, count: number) => vi.waitFor(() => expect(driver.starts.length).toBe(count));

/** Submits a running job with most of the processors, and a job `large` that waits for them. */
async function submitLarge(jobs: JobsHarness): Promise<void> {
  for (const [id, cpus] of [
    ['runs', 90],
    ['large', 50],
  ] as const) {
    const body = { entrypoint: 'true', submission_id: id, entrypoint_num_cpus: cpus };
    await jobs.service.jobs.submit(TENANT, readJobSubmission(body, ''));
  }
  await jobs.until('runs', 'RUNNING');
}

afterEach(() => {
  vi.restoreAllMocks();
});

describe('a job ends as its command ends', () => {
  test.each([
    [0, 'SUCCEEDED'],
    [3, 'FAILED'],
  ] as const)('a job whose command exits with code %d is %s and leaves no residue', async (code, status) => {
    await using jobs = await JobsHarness.open();
    await jobs.submit('a');
    await jobs.exit('a', code);
    expect(await jobs.untilEnded('a')).toMatchObject({ status, exitCode: code, attempt: 1 });
    await jobs.untilNothingIsLeft();
  });

  test('a job gets its exit code when the command exits before the start is complete', async () => {
    await using jobs = await JobsHarness.open();
    jobs.driver.exitsAtOnce = 4;
    await jobs.submit('a');
    expect(await jobs.untilEnded('a')).toMatchObject({ status: 'FAILED', exitCode: 4 });
    await jobs.untilNothingIsLeft();
  });

  test('a failing job is retried as often as requested, each time in a new sandbox', async () => {
    await using jobs = await JobsHarness.open();
    jobs.driver.exitsAtOnce = 1;
    await jobs.submit('a', { 'rookery.retries': '2', 'rookery.retry_delay_ms': '1' });
    expect(await jobs.untilEnded('a')).toMatchObject({ status: 'FAILED', attempt: 3 });
    expect(new Set(jobs.driver.starts.map(({ instanceId }) => instanceId)).size).toBe(3);
    await jobs.untilNothingIsLeft();
  });
});

test('30 jobs run at a time without a listener leak warning of Node.js', async () => {
  const warnings: string[] = [];
  const note = (warning: Error) => void warnings.push(warning.message);
  process.on('warning', note);
  try {
    await using jobs = await JobsHarness.open();
    const ids = Array.from({ length: 30 }, (_, index) => `job-${index}`);
    for (const id of ids) await jobs.submit(id);
    await Promise.all(ids.map(id => jobs.until(id, 'RUNNING')));
    for (const id of ids) await jobs.exit(id, 0);
    await Promise.all(ids.map(id => jobs.untilEnded(id)));
    await jobs.untilNothingIsLeft();
  } finally {
    process.off('warning', note);
  }
  expect(warnings).toEqual([]);
});

describe('a start that fails', () => {
  test('a permanent start failure fails the job with the reason and without a retry', async () => {
    await using jobs = await JobsHarness.open();
    jobs.driver.faults.startError = failedPrecondition('no such directory');
    await jobs.submit('a', { 'rookery.retries': '2' });
    expect(await jobs.untilEnded('a')).toMatchObject({
      status: 'FAILED',
      message: expect.stringContaining('Job could not be started: no such directory'),
      exitCode: null,
    });
    expect(jobs.driver.starts).toHaveLength(1);
    expect(jobs.driver.instanceIds).toEqual([]);
  });

  test('a temporary start failure is retried without counting as an attempt', async () => {
    await using jobs = await JobsHarness.open();
    jobs.driver.faults.startError = unavailable('the machine is short of processes');
    await jobs.submit('a');
    await vi.waitFor(async () => {
      expect((await jobs.job('a')).message).toContain('the service retries: the machine is short of processes');
    });
    jobs.driver.faults.startError = undefined;
    await jobs.exit('a', 0);
    expect(await jobs.untilEnded('a')).toMatchObject({ status: 'SUCCEEDED', attempt: 1 });
  });

  test('the time for start retries begins again an hour after a failure, and ends while starts keep failing', async () => {
    await using jobs = await JobsHarness.open();
    const now = performance.now.bind(performance);
    let aheadMs = 0;
    vi.spyOn(performance, 'now').mockImplementation(() => now() + aheadMs);
    jobs.driver.faults.startError = unavailable('not yet');
    const triesAgain = async (id: string) => {
      await jobs.submit(id);
      await vi.waitFor(async () => expect((await jobs.job(id)).message).toContain('the service retries'));
      await jobs.service.jobs.stop(TENANT, id);
    };
    await triesAgain('first');
    aheadMs += 3_600_000;
    for (const id of ['next', 'later', 'last']) {
      await triesAgain(id);
      aheadMs += 110_000;
    }
    await jobs.submit('too-late');
    expect(await jobs.untilEnded('too-late')).toMatchObject({
      status: 'FAILED',
      message: expect.stringContaining('Job could not be started: not yet'),
    });
  });

  test('a start failure does not affect other jobs', async () => {
    await using jobs = await JobsHarness.open();
    await jobs.submit('good');
    await jobs.until('good', 'RUNNING');
    jobs.driver.faults.startError = failedPrecondition('no');
    await jobs.submit('bad');
    await jobs.untilEnded('bad');
    await jobs.exit('good', 0);
    expect((await jobs.untilEnded('good')).status).toBe('SUCCEEDED');
  });
});

describe('a driver that does not answer', () => {
  test('a job stays RUNNING until an unreachable driver reports its exit', async () => {
    await using jobs = await JobsHarness.open();
    await jobs.submit('a');
    const instance = await jobs.instanceOf('a');
    const wait = vi.spyOn(jobs.driver, 'wait').mockRejectedValueOnce(unavailable('away'));
    // The open wait continues. The wait of the next service is the one that fails.
    await jobs.restartServer();
    await vi.waitFor(() => expect(wait.mock.calls.length).toBeGreaterThan(1));
    expect((await jobs.job('a')).status).toBe('RUNNING');
    jobs.driver.kill(instance, { code: 0, signal: null });
    expect((await jobs.untilEnded('a')).status).toBe('SUCCEEDED');
    await jobs.untilNothingIsLeft();
  });

  test('a running job is kept, and starts only once, when the driver is unreachable at a service start', async () => {
    await using jobs = await JobsHarness.open();
    await jobs.submit('a');
    const instance = await jobs.instanceOf('a');
    await jobs.stopServer();
    jobs.driver.faults.away = 'it restarts';
    await jobs.startServer();
    expect((await jobs.job('a')).status).toBe('RUNNING');
    jobs.driver.faults.away = undefined;
    jobs.driver.kill(instance, { code: 0, signal: null });
    expect((await jobs.untilEnded('a')).status).toBe('SUCCEEDED');
    expect(jobs.driver.starts).toHaveLength(1);
  });

  test('a stop during an unanswered start ends the job and leaves no residue', async () => {
    await using jobs = await JobsHarness.open();
    const { opened, open } = gate();
    jobs.driver.faults.startGate = opened;
    await jobs.submit('a');
    await startsOf(jobs, 1);
    expect(await jobs.service.jobs.stop(TENANT, 'a')).toBe(true);
    open();
    expect((await jobs.untilEnded('a')).status).toBe('STOPPED');
    await jobs.untilNothingIsLeft();
  });

  test('a sandbox is removed later when its first removal fails', async () => {
    await using jobs = await JobsHarness.open();
    jobs.driver.faults.removeFailures = 1;
    await jobs.submit('a');
    await jobs.exit('a', 0);
    await jobs.untilEnded('a');
    await jobs.untilNothingIsLeft();
  });
});

describe('a stop of a job', () => {
  test('a stop ends a running job, and changes nothing when the job has ended', async () => {
    await using jobs = await JobsHarness.open();
    await jobs.submit('a');
    await jobs.until('a', 'RUNNING');
    expect(await jobs.service.jobs.stop(TENANT, 'a')).toBe(true);
    expect((await jobs.untilEnded('a')).status).toBe('STOPPED');
    expect(await jobs.service.jobs.stop(TENANT, 'a')).toBe(false);
    await jobs.untilNothingIsLeft();
  });

  test('a stop of the first waiting job starts the jobs behind it', async () => {
    await using jobs = await JobsHarness.open();
    await submitLarge(jobs);
    await jobs.submit('small');
    expect(await jobs.service.jobs.stop(TENANT, 'large')).toBe(true);
    await jobs.until('small', 'RUNNING');
    expect((await jobs.job('large')).status).toBe('STOPPED');
  });

  test.each([
    ['a failed job', 1, undefined],
    ['a job that could not be started', 0, unavailable('not yet')],
  ] as const)('a stop while %s returns to the queue ends the job immediately', async (_, code, startError) => {
    await using nodes = await JobNodes.open({ isAlone: true });
    const write = nodes.writes.write.bind(nodes.writes);
    const { jobs } = await nodes.start('n');
    const { opened, open } = gate();
    vi.spyOn(nodes.writes, 'write').mockImplementation(async (operation, ...args) => {
      if (operation.name === 'requeueJob') await opened;
      return await write(operation, ...args);
    });
    jobs.driver.faults.startError = startError;
    await jobs.submit('a', { 'rookery.retries': '1', 'rookery.retry_delay_ms': '3600000' });
    if (startError === undefined) await jobs.exit('a', code);
    const requeues = () => vi.mocked(nodes.writes.write).mock.calls.filter(([{ name }]) => name === 'requeueJob');
    await vi.waitFor(() => expect(requeues()).toHaveLength(1));
    expect(await jobs.service.jobs.stop(TENANT, 'a')).toBe(true);
    open();
    expect(await jobs.untilEnded('a')).toMatchObject({ status: 'STOPPED', exitCode: null, attempt: 1 });
    await vi.waitFor(() => expect(jobs.service.jobs.byStatus()).toEqual({ PENDING: 0, RUNNING: 0 }));
    await jobs.untilNothingIsLeft();
  });

  test('a stop that fails in the driver leaves the job RUNNING, and can be requested again', async () => {
    await using jobs = await JobsHarness.open();
    await jobs.submit('a');
    await jobs.until('a', 'RUNNING');
    jobs.driver.faults.stopFailures = 1;
    await jobs.service.jobs.stop(TENANT, 'a');
    await vi.waitFor(() => expect(jobs.driver.faults.stopFailures).toBe(0));
    expect((await jobs.job('a')).status).toBe('RUNNING');
    await jobs.service.jobs.stop(TENANT, 'a');
    expect((await jobs.untilEnded('a')).status).toBe('STOPPED');
    await jobs.untilNothingIsLeft();
  });

  test('a stop that failed in the driver is repeated by the next service', async () => {
    await using jobs = await JobsHarness.open();
    await jobs.submit('a');
    await jobs.until('a', 'RUNNING');
    jobs.driver.faults.stopFailures = 1;
    await jobs.service.jobs.stop(TENANT, 'a');
    await vi.waitFor(() => expect(jobs.driver.faults.stopFailures).toBe(0));
    await jobs.restartServer();
    expect((await jobs.untilEnded('a')).status).toBe('STOPPED');
  });
});

describe('a restart of the service', () => {
  test('a restarted service finds running jobs, and the exit codes of jobs that ended meanwhile', async () => {
    await using jobs = await JobsHarness.open();
    for (const id of ['runs', 'ended']) await jobs.submit(id);
    const [running, ended] = [await jobs.instanceOf('runs'), await jobs.instanceOf('ended')];
    await jobs.stopServer();
    jobs.driver.kill(ended, { code: 7, signal: null });
    await jobs.startServer();
    expect(await jobs.untilEnded('ended')).toMatchObject({ status: 'FAILED', exitCode: 7 });
    expect(await jobs.job('runs')).toMatchObject({ status: 'RUNNING', instanceId: running });
    await jobs.exit('runs', 0);
    expect((await jobs.untilEnded('runs')).status).toBe('SUCCEEDED');
    expect(jobs.driver.starts).toHaveLength(2);
    await jobs.untilNothingIsLeft();
  });

  test('a restart of the service keeps a job that waits for a retry of its start', async () => {
    await using jobs = await JobsHarness.open();
    jobs.driver.faults.startError = unavailable('not yet');
    await jobs.submit('a');
    await vi.waitFor(async () => expect((await jobs.job('a')).message).toContain('the service retries'));
    jobs.driver.faults.startError = undefined;
    await jobs.restartServer();
    await jobs.exit('a', 0);
    expect(await jobs.untilEnded('a')).toMatchObject({ status: 'SUCCEEDED', attempt: 1 });
  });

  test('a restart of the service during a start runs the command once', async () => {
    await using jobs = await JobsHarness.open();
    const { opened, open } = gate();
    jobs.driver.faults.startGate = opened;
    jobs.driver.faults.obeysAbort = false;
    await jobs.submit('a');
    await startsOf(jobs, 1);
    const stopping = jobs.stopServer();
    open();
    await stopping;
    await jobs.startServer();
    const running = await jobs.instanceOf('a');
    expect(jobs.driver.runningIds).toEqual([running]);
    await jobs.exit('a', 0);
    expect(await jobs.untilEnded('a')).toMatchObject({ status: 'SUCCEEDED', attempt: 1 });
    await jobs.untilNothingIsLeft();
  });
});

describe('a service that stops its jobs at shutdown', () => {
  test('a shutdown stops all jobs without retries although the stop reasons cannot be written', async () => {
    await using nodes = await JobNodes.open({ isAlone: true });
    const write = nodes.writes.write.bind(nodes.writes);
    const { jobs } = await nodes.start('n');
    for (const id of ['a', 'b']) {
      await jobs.submit(id, { 'rookery.retries': '1' });
      await jobs.until(id, 'RUNNING');
    }
    vi.spyOn(nodes.writes, 'write').mockImplementation(async (operation, ...args) => {
      if (operation.name === 'setJobStopReason') throw unavailable('the disk is full');
      return await write(operation, ...args);
    });
    await jobs.stopServer(10_000);
    expect(jobs.driver.runningIds).toEqual([]);
    await jobs.startServer();
    for (const id of ['a', 'b']) expect((await jobs.job(id)).status).toBe('STOPPED');
  });

  test('a shutdown stops the jobs in memory when the database does not answer', async () => {
    await using nodes = await JobNodes.open({ isAlone: true });
    const { jobs } = await nodes.start('n');
    await jobs.submit('a');
    await jobs.until('a', 'RUNNING');
    await vi.waitFor(() => expect(jobs.service.jobs.byStatus().RUNNING).toBe(1));
    const away = vi.spyOn(nodes.database, 'selectFrom').mockImplementation(() => {
      throw unavailable('the database is away');
    });
    const stopping = jobs.stopServer(10_000);
    await vi.waitFor(() => expect(jobs.driver.runningIds).toEqual([]));
    away.mockRestore();
    await stopping;
    await jobs.startServer();
    expect((await jobs.job('a')).status).toBe('STOPPED');
  });
});

describe('a timeout of a job', () => {
  const RULES = { 'rookery.timeout_ms': '60000', 'rookery.retries': '1', 'rookery.retry_delay_ms': '1' };

  /**
   * Ends a job `afterMs` after its start, while no service runs.
   * The next service starts an hour later, and asks for the exit last.
   */
  async function endsWhileAway(jobs: JobsHarness, afterMs: number, code: number): Promise<void> {
    await jobs.submit('a', RULES);
    const { instanceId, startedAtMs } = await jobs.until('a', 'RUNNING');
    await jobs.stopServer();
    jobs.driver.kill(instanceId, { code, signal: null, atMs: Number(startedAtMs) + afterMs });
    const nowMs = Date.now();
    vi.spyOn(Date, 'now').mockReturnValue(nowMs + 3_600_000);
    const { opened, open } = gate();
    const { driver } = jobs;
    const stop = driver.stop.bind(driver);
    vi.spyOn(driver, 'stop').mockImplementation(async (...args) => {
      await stop(...args);
      vi.mocked(Date.now).mockRestore();
      open();
    });
    const wait = driver.wait.bind(driver);
    vi.spyOn(driver, 'wait').mockImplementationOnce(async (...args) => {
      await opened;
      return await wait(...args);
    });
    await jobs.startServer();
  }

  test('a timeout does not fail a job that succeeded in time, however late the exit is reported', async () => {
    await using jobs = await JobsHarness.open();
    await endsWhileAway(jobs, 1501, 0);
    expect(await jobs.untilEnded('a')).toMatchObject({ status: 'SUCCEEDED', exitCode: 0, attempt: 1 });
    await jobs.untilNothingIsLeft();
  });

  test('a job that failed within its timeout is retried with a new timeout', async () => {
    await using jobs = await JobsHarness.open();
    await endsWhileAway(jobs, 1501, 3);
    await vi.waitFor(() => expect(jobs.driver.starts).toHaveLength(2));
    await jobs.exit('a', 0);
    expect(await jobs.untilEnded('a')).toMatchObject({ status: 'SUCCEEDED', attempt: 2 });
  });

  test.each([59_999, 60_000])('a job that succeeded %d ms after its start fails with a timeout', async ms => {
    await using jobs = await JobsHarness.open();
    await endsWhileAway(jobs, ms, 0);
    expect(await jobs.untilEnded('a')).toMatchObject({
      status: 'FAILED',
      message: 'Job was stopped because it ran longer than its timeout of 60000 ms.',
      attempt: 1,
    });
  });

  test('a timeout ends with the command, before the log of the job is archived', async () => {
    await using jobs = await JobsHarness.open();
    const armed = vi.spyOn(globalThis, 'setTimeout');
    const disarmed = vi.spyOn(globalThis, 'clearTimeout');
    await jobs.submit('a', { 'rookery.timeout_ms': '7654321' });
    const instance = await jobs.instanceOf('a');
    const isTimeout = (ms: number | undefined) => ms !== undefined && ms > 7_000_000 && ms <= 7_654_321;
    const timer = await vi.waitFor(() => {
      const at = armed.mock.calls.findIndex(([, ms]) => isTimeout(ms));
      expect(at).toBeGreaterThanOrEqual(0);
      return armed.mock.results[at]?.value as NodeJS.Timeout;
    });
    const { opened, open } = gate();
    const logs = jobs.driver.logs.bind(jobs.driver);
    const kept = vi.spyOn(jobs.driver, 'logs').mockImplementationOnce(async function* (...args) {
      await opened;
      yield* logs(...args);
    });
    jobs.driver.kill(instance, { code: 0, signal: null });
    await vi.waitFor(() => expect(kept).toHaveBeenCalled());
    expect(disarmed).toHaveBeenCalledWith(timer);
    open();
    expect((await jobs.untilEnded('a')).status).toBe('SUCCEEDED');
  });
});
