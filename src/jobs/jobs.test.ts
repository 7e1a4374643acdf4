import { afterEach, describe, expect, test, vi } from 'vitest';
import { JobsHarness, TENANT } from '../../test/jobs/harness.ts';
import { JobNodes } from '../../test/jobs/nodes.ts';
import { failedPrecondition, unavailable } from '../core/error.ts';
import { readJobSubmission } from '../core/job.ts';

/** Opens when the test says so. */
function gate(): { readonly opened: Promise<void>; open(): void } {
  let open!: () => void;
  const opened = new Promise<void>(resolve => {
    open = resolve;
  });
  return { opened, open };
}

const startsOf = ({ driver }: JobsHarness, count: number) => vi.waitFor(() => expect(driver.starts.length).toBe(count));

/** One that runs has most of the processors, and `large` waits for them. */
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
  ] as const)('with exit code %d it is %s, and nothing of it is left', async (code, status) => {
    await using jobs = await JobsHarness.open();
    await jobs.submit('a');
    await jobs.exit('a', code);
    expect(await jobs.untilEnded('a')).toMatchObject({ status, exitCode: code, attempt: 1 });
    await jobs.untilNothingIsLeft();
  });

  test('also when it has ended before its start is over', async () => {
    await using jobs = await JobsHarness.open();
    jobs.driver.exitsAtOnce = 4;
    await jobs.submit('a');
    expect(await jobs.untilEnded('a')).toMatchObject({ status: 'FAILED', exitCode: 4 });
    await jobs.untilNothingIsLeft();
  });

  test('one that fails is run again as often as it asked for, each time in a new sandbox', async () => {
    await using jobs = await JobsHarness.open();
    jobs.driver.exitsAtOnce = 1;
    await jobs.submit('a', { 'rookery.retries': '2', 'rookery.retry_delay_ms': '1' });
    expect(await jobs.untilEnded('a')).toMatchObject({ status: 'FAILED', attempt: 3 });
    expect(new Set(jobs.driver.starts.map(({ instanceId }) => instanceId)).size).toBe(3);
    await jobs.untilNothingIsLeft();
  });
});

test('any number of jobs run at a time without a warning of Node that listeners leak', async () => {
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
  test('for good fails the job with the reason, without another attempt', async () => {
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

  test('for a reason that may pass is tried again, which is no attempt of the job', async () => {
    await using jobs = await JobsHarness.open();
    jobs.driver.faults.startError = unavailable('the machine is short of processes');
    await jobs.submit('a');
    await vi.waitFor(async () => {
      expect((await jobs.job('a')).message).toContain('is tried again: the machine is short of processes');
    });
    jobs.driver.faults.startError = undefined;
    await jobs.exit('a', 0);
    expect(await jobs.untilEnded('a')).toMatchObject({ status: 'SUCCEEDED', attempt: 1 });
  });

  test('is waited for anew when the one before was long ago, and no longer when they go on failing', async () => {
    await using jobs = await JobsHarness.open();
    const now = performance.now.bind(performance);
    let aheadMs = 0;
    vi.spyOn(performance, 'now').mockImplementation(() => now() + aheadMs);
    jobs.driver.faults.startError = unavailable('not yet');
    const triesAgain = async (id: string) => {
      await jobs.submit(id);
      await vi.waitFor(async () => expect((await jobs.job(id)).message).toContain('is tried again'));
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

  test('leaves the others alone', async () => {
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
  test('while a job runs: it is RUNNING until the driver tells how it ended', async () => {
    await using jobs = await JobsHarness.open();
    await jobs.submit('a');
    const instance = await jobs.instanceOf('a');
    const wait = vi.spyOn(jobs.driver, 'wait').mockRejectedValueOnce(unavailable('away'));
    // The wait that is open goes on; that of the next server is the one that fails.
    await jobs.restartServer();
    await vi.waitFor(() => expect(wait.mock.calls.length).toBeGreaterThan(1));
    expect((await jobs.job('a')).status).toBe('RUNNING');
    jobs.driver.kill(instance, { code: 0, signal: null });
    expect((await jobs.untilEnded('a')).status).toBe('SUCCEEDED');
    await jobs.untilNothingIsLeft();
  });

  test('when a server starts: a job that runs is not given up, and starts no second time', async () => {
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

  test('to a start: a stop of the job meanwhile ends it, and nothing of it is left', async () => {
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

  test('to a removal: it is removed later', async () => {
    await using jobs = await JobsHarness.open();
    jobs.driver.faults.removeFailures = 1;
    await jobs.submit('a');
    await jobs.exit('a', 0);
    await jobs.untilEnded('a');
    await jobs.untilNothingIsLeft();
  });
});

describe('a stop', () => {
  test('ends a job that runs; of one that is over it changes nothing', async () => {
    await using jobs = await JobsHarness.open();
    await jobs.submit('a');
    await jobs.until('a', 'RUNNING');
    expect(await jobs.service.jobs.stop(TENANT, 'a')).toBe(true);
    expect((await jobs.untilEnded('a')).status).toBe('STOPPED');
    expect(await jobs.service.jobs.stop(TENANT, 'a')).toBe(false);
    await jobs.untilNothingIsLeft();
  });

  test('of a job that the others wait behind starts them', async () => {
    await using jobs = await JobsHarness.open();
    await submitLarge(jobs);
    await jobs.submit('small');
    expect(await jobs.service.jobs.stop(TENANT, 'large')).toBe(true);
    await jobs.until('small', 'RUNNING');
    expect((await jobs.job('large')).status).toBe('STOPPED');
  });

  test.each([
    ['a failed one', 1, undefined],
    ['one that could not be started', 0, unavailable('not yet')],
  ] as const)('while %s goes back to the queue ends it at once', async (_, code, startError) => {
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

  test('that its driver ignores leaves the job RUNNING, and can be asked for again', async () => {
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

  test('that its driver ignored is asked for by the next server', async () => {
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

describe('a restart of the server', () => {
  test('finds a job that runs, and one that ended meanwhile with its exit code', async () => {
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

  test('while a job waits to be tried again loses nothing of it', async () => {
    await using jobs = await JobsHarness.open();
    jobs.driver.faults.startError = unavailable('not yet');
    await jobs.submit('a');
    await vi.waitFor(async () => expect((await jobs.job('a')).message).toContain('is tried again'));
    jobs.driver.faults.startError = undefined;
    await jobs.restartServer();
    await jobs.exit('a', 0);
    expect(await jobs.untilEnded('a')).toMatchObject({ status: 'SUCCEEDED', attempt: 1 });
  });

  test('in the middle of a start runs the command once', async () => {
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

describe('a server that stops its jobs when it ends', () => {
  test('ends all of them although the disk takes no reasons; they are not tried again', async () => {
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

  test('ends those that it knows when the database does not answer', async () => {
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

describe('a timeout', () => {
  const RULES = { 'rookery.timeout_ms': '60000', 'rookery.retries': '1', 'rookery.retry_delay_ms': '1' };

  /** While no server runs, a job ends so many milliseconds after its start; the next server starts an hour later, and asks for its end last. */
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

  test('does not count for a command that succeeded in time, however late its end is learned', async () => {
    await using jobs = await JobsHarness.open();
    await endsWhileAway(jobs, 1501, 0);
    expect(await jobs.untilEnded('a')).toMatchObject({ status: 'SUCCEEDED', exitCode: 0, attempt: 1 });
    await jobs.untilNothingIsLeft();
  });

  test('does not count for one that failed in time: it is tried again, in a time of its own', async () => {
    await using jobs = await JobsHarness.open();
    await endsWhileAway(jobs, 1501, 3);
    await vi.waitFor(() => expect(jobs.driver.starts).toHaveLength(2));
    await jobs.exit('a', 0);
    expect(await jobs.untilEnded('a')).toMatchObject({ status: 'SUCCEEDED', attempt: 2 });
  });

  test.each([59_999, 60_000])('counts for one that ended %d ms after its start, also when it succeeded', async ms => {
    await using jobs = await JobsHarness.open();
    await endsWhileAway(jobs, ms, 0);
    expect(await jobs.untilEnded('a')).toMatchObject({
      status: 'FAILED',
      message: 'Job was stopped because it ran longer than its timeout of 60000 ms.',
      attempt: 1,
    });
  });

  test('is over with the command: what is kept of its log takes time that is not the job’s', async () => {
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
