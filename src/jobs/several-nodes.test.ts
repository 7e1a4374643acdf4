import { readdir } from 'node:fs/promises';
import { join } from 'node:path';
import { Readable } from 'node:stream';
import { text } from 'node:stream/consumers';
import { describe, expect, test, vi } from 'vitest';
import { TENANT } from '../../test/jobs/harness.ts';
import { JobNodes, type TestNode } from '../../test/jobs/nodes.ts';
import { unavailable } from '../core/error.ts';
import { readJobSubmission } from '../core/job.ts';
import { failJobsOfNode, nodeOfJob } from '../storage/queries/job-owners.ts';

const WAIT = { timeout: 30_000 };
const REASON = 'The replica that ran it was lost.';

const submit = (node: TestNode, body: object, tenant = TENANT) =>
  node.jobs.service.jobs.submit(tenant, readJobSubmission({ entrypoint: 'true', ...body }, ''));

async function idsOn(node: TestNode): Promise<string[]> {
  const ids: string[] = [];
  for await (const page of node.jobs.service.jobs.list(TENANT)) ids.push(...page.map(({ id }) => id));
  return ids;
}

const put = (node: TestNode, name: string, content = 'PK') =>
  node.jobs.service.packages.write(TENANT, name, Readable.from([Buffer.from(content)]));

const lost = (nodes: JobNodes, id: string, epoch: number) =>
  nodes.writes.write(failJobsOfNode, id, epoch, REASON, Date.now());

/** Ids of the jobs whose commands began on these nodes, one entry per start. */
function begun(nodes: readonly TestNode[]): string[] {
  const ids = nodes.flatMap(({ jobs: { driver } }) => driver.begun);
  return ids.toSorted();
}

function gate(): { readonly opened: Promise<void>; open(): void } {
  let open!: () => void;
  const opened = new Promise<void>(resolve => {
    open = resolve;
  });
  return { opened, open };
}

describe('every node gives the same answers about jobs', () => {
  test('every node sees the record, list entry and taken id of a job right after its submit', async () => {
    await using nodes = await JobNodes.open();
    const [a, b] = [await nodes.start('a'), await nodes.start('b')];
    await submit(a, { submission_id: 'x' });
    expect((await b.jobs.job('x')).nodeId).toBe('a');
    expect(await idsOn(b)).toEqual(['x']);
    expect((await submit(b, { submission_id: 'x' })).nodeId).toBe('a');
    await expect(submit(b, { submission_id: 'x', entrypoint: 'false' })).rejects.toThrow(
      'Job with submission_id x already exists. Please use a different submission_id.',
    );
    await vi.waitFor(() => expect(a.jobs.driver.starts).toHaveLength(1), WAIT);
    expect(b.jobs.driver.starts).toEqual([]);
  });

  test('parallel submits make one job each in one order, even when the clock of a node is wrong', async () => {
    await using nodes = await JobNodes.open();
    const both = [await nodes.start('a'), await nodes.start('b')];
    vi.spyOn(Date, 'now').mockReturnValue(1_800_000_000_000);
    await Promise.all(Array.from({ length: 40 }, (_, index) => submit(both[index % 2] as TestNode, {})));
    vi.mocked(Date.now).mockReturnValue(1_700_000_000_000);
    const last = await submit(both[1] as TestNode, { submission_id: 'last' });
    vi.mocked(Date.now).mockRestore();
    const [first, second] = [await idsOn(both[0] as TestNode), await idsOn(both[1] as TestNode)];
    expect(new Set(first).size).toBe(41);
    expect(first).toEqual(second);
    expect(first[0]).toBe(last.id);
  });

  test('exactly one of 20 parallel submits of one id succeeds, and the others fail with already_exists', async () => {
    await using nodes = await JobNodes.open();
    const both = [await nodes.start('a'), await nodes.start('b')];
    const results = await Promise.allSettled(
      Array.from({ length: 20 }, (_, index) =>
        submit(both[index % 2] as TestNode, { submission_id: 'x', metadata: { index: String(index) } }),
      ),
    );
    expect(results.filter(({ status }) => status === 'fulfilled')).toHaveLength(1);
    for (const result of results) {
      if (result.status === 'rejected') expect(result.reason).toMatchObject({ code: 'already_exists' });
    }
    expect(await idsOn(both[0] as TestNode)).toEqual(['x']);
  });

  test('the limits of open jobs count the jobs of all nodes, in total and per tenant', async () => {
    await using nodes = await JobNodes.open({ maxOpen: 4, maxOpenPerTenant: 3 });
    const [a, b] = [await nodes.start('a'), await nodes.start('b')];
    await submit(a, {});
    await submit(b, {});
    await submit(a, {});
    await expect(submit(b, {})).rejects.toMatchObject({ code: 'resource_exhausted' });
    await submit(b, {}, 'other');
    await expect(submit(a, {}, 'another')).rejects.toMatchObject({ code: 'resource_exhausted' });
  });

  test('a repeated submit gets its job or the conflict even when the limit of open jobs is reached', async () => {
    await using nodes = await JobNodes.open({ maxOpen: 1 });
    const [a, b] = [await nodes.start('a'), await nodes.start('b')];
    const { sequence } = await submit(a, { submission_id: 'x' });
    expect((await submit(b, { submission_id: 'x' })).sequence).toBe(sequence);
    await expect(submit(b, { submission_id: 'x', entrypoint: 'false' })).rejects.toMatchObject({
      code: 'already_exists',
    });
    await expect(submit(b, { submission_id: 'y' })).rejects.toMatchObject({ code: 'resource_exhausted' });
  });

  test('each node counts only its own jobs in the metrics', async () => {
    await using nodes = await JobNodes.open();
    const [a, b] = [await nodes.start('a'), await nodes.start('b')];
    await submit(a, { submission_id: 'x' });
    await a.jobs.until('x', 'RUNNING');
    expect(a.jobs.service.jobs.byStatus()).toEqual({ PENDING: 0, RUNNING: 1 });
    expect(b.jobs.service.jobs.byStatus()).toEqual({ PENDING: 0, RUNNING: 0 });
  });

  test('any node can delete the ended job of another node', async () => {
    await using nodes = await JobNodes.open();
    const [a, b] = [await nodes.start('a'), await nodes.start('b')];
    await submit(a, { submission_id: 'x' });
    await a.jobs.exit('x', 0);
    await a.jobs.untilEnded('x');
    await b.jobs.service.jobs.delete(TENANT, 'x');
    await expect(a.jobs.job('x')).rejects.toMatchObject({ code: 'not_found' });
  });
});

describe('a job belongs to one node', () => {
  test('a starting service resumes only the jobs of its own node', async () => {
    await using nodes = await JobNodes.open();
    const a = await nodes.start('a');
    await submit(a, { submission_id: 'x' });
    await a.jobs.instanceOf('x');
    const b = await nodes.start('b');
    await b.jobs.restartServer();
    expect(b.jobs.service.jobs.byStatus()).toEqual({ PENDING: 0, RUNNING: 0 });
    expect((await b.jobs.job('x')).status).toBe('RUNNING');
    await a.jobs.exit('x', 0);
    expect((await b.jobs.untilEnded('x')).status).toBe('SUCCEEDED');
  });

  test('any node can stop a waiting job, and the node of the job does not start the job afterwards', async () => {
    await using nodes = await JobNodes.open();
    const [a, b] = [await nodes.start('a'), await nodes.start('b')];
    const { opened, open } = gate();
    a.jobs.driver.faults.startGate = opened;
    await a.jobs.submit('impossible-here', {});
    const huge = await submit(a, { submission_id: 'huge', entrypoint_num_gpus: 1 });
    expect(await b.jobs.service.jobs.nodeOf(TENANT, huge.id, 'stop')).toBeNull();
    expect(await b.jobs.service.jobs.stop(TENANT, 'huge')).toBe(true);
    expect((await a.jobs.job('huge')).status).toBe('STOPPED');
    a.cluster.wake();
    await vi.waitFor(() => expect(a.jobs.service.jobs.byStatus().PENDING).toBe(1), WAIT);
    open();
  });

  test('jobs behind a waiting job start when another node stops that job', async () => {
    await using nodes = await JobNodes.open();
    const [a, b] = [await nodes.start('a'), await nodes.start('b')];
    await submit(a, { submission_id: 'runs', entrypoint_num_cpus: 90 });
    await a.jobs.until('runs', 'RUNNING');
    await submit(a, { submission_id: 'large', entrypoint_num_cpus: 50 });
    await submit(a, { submission_id: 'small' });
    await b.jobs.service.jobs.stop(TENANT, 'large');
    a.cluster.wake();
    await a.jobs.until('small', 'RUNNING');
  });

  test('a running job is stopped on its own node, even when the stop only reached the database', async () => {
    await using nodes = await JobNodes.open();
    const [a, b] = [await nodes.start('a'), await nodes.start('b')];
    await submit(a, { submission_id: 'x' });
    await a.jobs.instanceOf('x');
    expect(await b.jobs.service.jobs.nodeOf(TENANT, 'x', 'stop')).toBe('a');
    expect(await a.jobs.service.jobs.nodeOf(TENANT, 'x', 'stop')).toBeNull();
    expect(await b.jobs.service.jobs.nodeOf(TENANT, 'x', 'log')).toBe('a');
    expect(await b.jobs.service.jobs.nodeOf(TENANT, 'unknown', 'log')).toBeNull();
    await b.jobs.service.jobs.stop(TENANT, 'x');
    expect((await b.jobs.untilEnded('x')).status).toBe('STOPPED');
    expect(await b.jobs.service.jobs.nodeOf(TENANT, 'x', 'stop')).toBeNull();
    expect(await b.jobs.service.jobs.nodeOf(TENANT, 'x', 'log')).toBe('a');
  });
});

describe('packages without an object store', () => {
  test('every node knows the packages of all nodes, and a job runs on the node of its package', async () => {
    await using nodes = await JobNodes.open();
    const [a, b] = [await nodes.start('a'), await nodes.start('b')];
    expect(await a.jobs.service.packages.has(TENANT, 'p.zip')).toBe(false);
    await put(b, 'p.zip');
    expect(await a.jobs.service.packages.has(TENANT, 'p.zip')).toBe(true);
    expect(await a.jobs.service.packages.has('other', 'p.zip')).toBe(false);
    const job = await submit(a, { submission_id: 'x', runtime_env: { working_dir: 'gcs://p.zip' } });
    expect(job.nodeId).toBe('b');
    b.cluster.wake();
    await b.jobs.untilEnded('x');
    expect((await a.jobs.job('x')).message).toContain('package gcs://p.zip: ');
    expect(a.jobs.service.jobs.byStatus()).toEqual({ PENDING: 0, RUNNING: 0 });
  });

  test('a package on a dead node counts as missing, and can be uploaded to another node', async () => {
    await using nodes = await JobNodes.open();
    const [a, b] = [await nodes.start('a'), await nodes.start('b')];
    await put(b, 'p.zip');
    nodes.living.delete('b');
    expect(await a.jobs.service.packages.has(TENANT, 'p.zip')).toBe(false);
    await put(a, 'p.zip');
    expect((await submit(a, { runtime_env: { working_dir: 'gcs://p.zip' } })).nodeId).toBe('a');
  });

  test('a package that another node looked up recently is kept, and is missing on all nodes once removed', async () => {
    await using nodes = await JobNodes.open();
    const [a, b] = [await nodes.start('a'), await nodes.start('b')];
    await put(b, 'p.zip');
    const later = Date.now() + 601_000;
    vi.spyOn(Date, 'now').mockReturnValue(later);
    try {
      expect(await a.jobs.service.packages.has(TENANT, 'p.zip')).toBe(true);
      await b.jobs.service.packages.collect(() => false);
      expect(await a.jobs.service.packages.has(TENANT, 'p.zip')).toBe(true);
      vi.mocked(Date.now).mockReturnValue(later + 601_000);
      await b.jobs.service.packages.collect(() => false);
      expect(await a.jobs.service.packages.has(TENANT, 'p.zip')).toBe(false);
      expect(await b.jobs.service.packages.has(TENANT, 'p.zip')).toBe(false);
    } finally {
      vi.mocked(Date.now).mockRestore();
    }
  });

  test('a package whose record could not be written is removed after its retention time', async () => {
    await using nodes = await JobNodes.open();
    const a = await nodes.start('a');
    const write = nodes.writes.write.bind(nodes.writes);
    vi.spyOn(nodes.writes, 'write').mockImplementation(async (operation, ...args) => {
      if (operation.name === 'putJobPackage') throw unavailable('the database is away');
      return await write(operation, ...args);
    });
    await expect(put(a, 'p.zip')).rejects.toMatchObject({ code: 'unavailable' });
    const kept = () => readdir(join(a.jobs.dataDir, 'packages', TENANT));
    const later = Date.now() + 601_000;
    await a.jobs.service.packages.collect(() => false);
    expect(await kept()).toEqual(['p.zip']);
    vi.spyOn(Date, 'now').mockReturnValue(later);
    try {
      await a.jobs.service.packages.collect(() => false);
    } finally {
      vi.mocked(Date.now).mockRestore();
    }
    expect(await kept()).toEqual([]);
  });

  test('a node that was declared lost publishes its packages again in its next epoch', async () => {
    await using nodes = await JobNodes.open();
    const [a, b] = [await nodes.start('a'), await nodes.start('b')];
    await put(b, 'p.zip');
    await lost(nodes, 'b', 1);
    expect(await a.jobs.service.packages.has(TENANT, 'p.zip')).toBe(false);
    b.cluster.epochNow = 2;
    b.cluster.wake();
    await vi.waitFor(async () => expect(await a.jobs.service.packages.has(TENANT, 'p.zip')).toBe(true), WAIT);
    // A decision about epoch 1 does not affect epoch 2.
    await lost(nodes, 'b', 1);
    expect(await a.jobs.service.packages.has(TENANT, 'p.zip')).toBe(true);
  });

  test('a start of a replica without an object store logs one warning about jobs.store', async () => {
    await using nodes = await JobNodes.open();
    const a = await nodes.start('a');
    expect(a.jobs.warnings.filter(warning => warning.includes('jobs.store'))).toHaveLength(1);
  });
});

describe('a node that is lost', () => {
  test('a job of a lost node is FAILED with the reason, and its sandbox ends when the node returns', async () => {
    await using nodes = await JobNodes.open();
    const [a, b] = [await nodes.start('a'), await nodes.start('b')];
    await submit(a, { submission_id: 'x' });
    await a.jobs.instanceOf('x');
    expect(await lost(nodes, 'a', 1)).toEqual({ failed: 1, freed: 0 });
    const failed = await b.jobs.job('x');
    expect(failed).toMatchObject({ status: 'FAILED', message: REASON, errorType: 'JOB_SUPERVISOR_ACTOR_DIED' });
    a.cluster.epochNow = 2;
    a.cluster.wake();
    await a.jobs.untilNothingIsLeft();
    expect(await b.jobs.job('x')).toEqual(failed);
    await vi.waitFor(() => expect(a.jobs.service.jobs.byStatus()).toEqual({ PENDING: 0, RUNNING: 0 }), WAIT);
  });

  test('a job of a lost node stays FAILED when the node returns as a new process', async () => {
    await using nodes = await JobNodes.open();
    const [a, b] = [await nodes.start('a'), await nodes.start('b')];
    await submit(a, { submission_id: 'x' });
    await a.jobs.instanceOf('x');
    await a.jobs.stopServer();
    await lost(nodes, 'a', 1);
    a.cluster.epochNow = 2;
    await a.jobs.startServer();
    await a.jobs.untilNothingIsLeft();
    expect(await b.jobs.job('x')).toMatchObject({ status: 'FAILED', message: REASON });
  });

  test('a late exit report does not change the state of a job of a lost node', async () => {
    await using nodes = await JobNodes.open();
    const [a, b] = [await nodes.start('a'), await nodes.start('b')];
    await submit(a, { submission_id: 'x', metadata: { 'rookery.retries': '3', 'rookery.retry_delay_ms': '0' } });
    const instance = await a.jobs.instanceOf('x');
    await lost(nodes, 'a', 1);
    a.jobs.driver.kill(instance, { code: 1, signal: null });
    await a.jobs.untilNothingIsLeft();
    expect(await b.jobs.job('x')).toMatchObject({ status: 'FAILED', message: REASON, attempt: 1 });
    expect(a.jobs.driver.starts).toHaveLength(1);
  });

  test('an unstarted job of a lost node runs exactly once even when that node continues', async () => {
    await using nodes = await JobNodes.open();
    const [a, b] = [await nodes.start('a'), await nodes.start('b')];
    a.jobs.driver.faults.startError = unavailable('the machine rests');
    const jobs = ['x', 'y', 'z'];
    for (const id of jobs) await submit(a, { submission_id: id });
    await vi.waitFor(async () => {
      for (const id of jobs) expect((await a.jobs.job(id)).message).toContain('the service retries');
    }, WAIT);
    expect(await lost(nodes, 'a', 1)).toEqual({ failed: 0, freed: 3 });
    a.jobs.driver.faults.startError = undefined;
    b.cluster.wake();
    a.cluster.wake();
    const both = [a, b];
    for (const id of jobs) {
      const { nodeId, instanceId } = await vi.waitFor(() => b.jobs.until(id, 'RUNNING'), WAIT);
      const node = both.find(each => each.id === nodeId) as TestNode;
      node.jobs.driver.kill(instanceId, { code: 0, signal: null });
      expect(await b.jobs.untilEnded(id)).toMatchObject({ status: 'SUCCEEDED' });
    }
    for (const { jobs: each } of both) await each.untilNothingIsLeft();
    expect(begun(both)).toEqual(jobs);
  });

  test('a job that was starting on a lost node is FAILED, and its sandbox is removed', async () => {
    await using nodes = await JobNodes.open();
    const [a, b] = [await nodes.start('a'), await nodes.start('b')];
    const { opened, open } = gate();
    a.jobs.driver.faults.startGate = opened;
    a.jobs.driver.faults.obeysAbort = false;
    await submit(a, { submission_id: 'x' });
    await vi.waitFor(() => expect(a.jobs.driver.starts).toHaveLength(1), WAIT);
    expect(await lost(nodes, 'a', 1)).toEqual({ failed: 1, freed: 0 });
    open();
    await a.jobs.untilNothingIsLeft();
    expect(await b.jobs.job('x')).toMatchObject({ status: 'FAILED', message: REASON });
    a.cluster.wake();
    await vi.waitFor(() => expect(a.jobs.service.jobs.byStatus()).toEqual({ PENDING: 0, RUNNING: 0 }), WAIT);
  });

  test('a node that restarted before its loss was declared keeps its jobs', async () => {
    await using nodes = await JobNodes.open();
    const a = await nodes.start('a');
    await submit(a, { submission_id: 'x' });
    await a.jobs.instanceOf('x');
    await a.jobs.stopServer();
    a.cluster.epochNow = 2;
    await a.jobs.startServer();
    expect(await lost(nodes, 'a', 1)).toEqual({ failed: 0, freed: 0 });
    await a.jobs.exit('x', 0);
    expect((await a.jobs.untilEnded('x')).status).toBe('SUCCEEDED');
  });

  test('an unstarted job of a lost node fails only when no other node has its package', async () => {
    await using nodes = await JobNodes.open();
    const [a, b] = [await nodes.start('a'), await nodes.start('b')];
    await put(a, 'only-a.zip');
    await put(a, 'both.zip');
    await put(b, 'both.zip');
    // No node has a GPU, so both jobs wait.
    const waits = { entrypoint_num_gpus: 1 };
    await submit(a, { submission_id: 'x', runtime_env: { working_dir: 'gcs://only-a.zip' }, ...waits });
    await submit(a, { submission_id: 'y', runtime_env: { working_dir: 'gcs://both.zip' }, ...waits });
    expect(await lost(nodes, 'a', 1)).toEqual({ failed: 1, freed: 1 });
    expect((await b.jobs.job('x')).message).toContain('gcs://only-a.zip was nowhere else');
    nodes.living.delete('a');
    b.cluster.wake();
    await vi.waitFor(
      async () => expect(await nodeOfJob(nodes.database, TENANT, 'y')).toMatchObject({ nodeId: 'b', isOpen: true }),
      WAIT,
    );
  });
});

test('the log of a job is read on the node that ran the job', async () => {
  await using nodes = await JobNodes.open();
  const [a, b] = [await nodes.start('a'), await nodes.start('b')];
  await submit(a, { submission_id: 'x' });
  a.jobs.driver.output.set('x', 'hello\n');
  await a.jobs.exit('x', 0);
  await a.jobs.untilEnded('x');
  expect(await b.jobs.service.jobs.nodeOf(TENANT, 'x', 'log')).toBe('a');
  const chunks = await a.jobs.service.jobs.log(TENANT, 'x', new AbortController().signal);
  expect(await text(Readable.from(chunks))).toBe('hello\n');
});

test('following a waiting job fails when the job moves, and works on the new node', async () => {
  await using nodes = await JobNodes.open();
  const [a, b] = [await nodes.start('a'), await nodes.start('b')];
  a.jobs.driver.faults.startError = unavailable('the machine rests');
  await submit(a, { submission_id: 'x' });
  await vi.waitFor(async () => expect((await a.jobs.job('x')).message).toContain('the service retries'), WAIT);
  const { signal } = new AbortController();
  const followed = text(Readable.from(await a.jobs.service.jobs.follow(TENANT, 'x', signal)));
  const sentAway = expect(followed).rejects.toMatchObject({ code: 'unavailable' });
  expect(await lost(nodes, 'a', 1)).toEqual({ failed: 0, freed: 1 });
  b.cluster.wake();
  await vi.waitFor(async () => expect((await b.jobs.job('x')).nodeId).toBe('b'), WAIT);
  a.cluster.wake();
  await sentAway;
  expect(await a.jobs.service.jobs.nodeOf(TENANT, 'x', 'log')).toBe('b');
  b.jobs.driver.output.set('x', 'hello\n');
  const there = text(Readable.from(await b.jobs.service.jobs.follow(TENANT, 'x', signal)));
  await b.jobs.exit('x', 0);
  expect(await there).toBe('hello\n');
});
