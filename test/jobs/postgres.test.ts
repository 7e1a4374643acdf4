import { Readable } from 'node:stream';
import { afterAll, beforeAll, expect, test, vi } from 'vitest';
import type { LeaseName } from '../../src/cluster/contract.ts';
import { ClusterReplica } from '../../src/cluster/replicas.ts';
import { readJobSubmission } from '../../src/core/job.ts';
import { readSchedule } from '../../src/jobs/schedules.ts';
import { jobClusterOf } from '../../src/server/owners.ts';
import { WRITE_OPERATIONS } from '../../src/server/write-operations.ts';
import { openStores } from '../../src/storage/stores.ts';
import type { Stores } from '../../src/storage/stores-contract.ts';
import { startPostgres, type TestPostgres } from '../parts/postgres.ts';
import { QUICK } from '../parts/replicas.ts';
import { describeWith } from '../probe.ts';
import { JobsHarness, TENANT } from './harness.ts';

const PROGRAM = new URL('../registry/write-program.mjs', import.meta.url);
const WAIT = { timeout: 30_000 };

interface Node {
  readonly jobs: JobsHarness;
  readonly replica: ClusterReplica;
  readonly stores: Stores;
}

/** Starts a replica like a server: records and leases in PostgreSQL, with its own machine and disk. */
async function startNode(url: string, id: string): Promise<Node> {
  const stores = await openStores(
    { url, waitMs: 30_000, poolSize: 4 },
    { operations: WRITE_OPERATIONS, program: PROGRAM },
  );
  const log = { info: () => undefined, warn: () => undefined, error: () => undefined };
  const self = { id, advertise: `${id}:1`, roles: ['frontend', 'meta', 'worker'], version: '1' };
  const replica = await ClusterReplica.open({ url, self, log, times: QUICK, hasWakeUps: true });
  await replica.join();
  const { jobs: cluster, woken } = jobClusterOf(replica);
  const isJobs = (name: LeaseName) => (name === 'jobs' ? woken() : undefined);
  const jobs = await JobsHarness.open({
    nodeId: id,
    cluster,
    store: null,
    stores: { database: stores.database, writes: replica.feed.publishing(stores.writes) },
  });
  replica.setLeaseOwner({ onAcquired: isJobs, onReleasing: async () => undefined, onLost: isJobs });
  return { jobs, replica, stores };
}

describeWith(['postgres'], 'jobs of two replicas over one PostgreSQL', () => {
  let server: TestPostgres;
  let a: Node;
  let b: Node;

  beforeAll(async () => {
    server = await startPostgres();
    const url = await server.database();
    a = await startNode(url, 'a');
    b = await startNode(url, 'b');
    const both = () => a.replica.membership.living().length === 2 && b.replica.membership.living().length === 2;
    await vi.waitFor(() => expect(both()).toBe(true), WAIT);
  }, 120_000);
  afterAll(async () => {
    for (const node of [a, b]) {
      await node?.jobs[Symbol.asyncDispose]();
      await node?.replica.leave();
      await node?.stores.close();
    }
    await server?.close();
  }, 60_000);

  const submit = ({ jobs }: Node, body: object) =>
    jobs.service.jobs.submit(TENANT, readJobSubmission({ entrypoint: 'true', ...body }, ''));
  const idsOn = async ({ jobs }: Node) => {
    const ids: string[] = [];
    for await (const page of jobs.service.jobs.list(TENANT)) ids.push(...page.map(({ id }) => id));
    return ids;
  };

  test('each contested id goes to one submit, other submits make their own jobs, and all lists agree', async () => {
    const submits = Array.from({ length: 30 }, (_, index) => {
      const metadata = { index: String(index) };
      return submit(
        index % 2 === 0 ? a : b,
        index < 15 ? { submission_id: `raced-${index % 3}`, metadata } : { metadata },
      );
    });
    const results = await Promise.allSettled(submits);
    expect(results.slice(0, 15).filter(({ status }) => status === 'fulfilled')).toHaveLength(3);
    expect(results.slice(15).every(({ status }) => status === 'fulfilled')).toBe(true);
    for (const result of results) {
      if (result.status === 'rejected') expect(result.reason).toMatchObject({ code: 'already_exists' });
    }
    const [first, second] = [await idsOn(a), await idsOn(b)];
    expect(first).toHaveLength(18);
    expect(second).toEqual(first);
    await vi.waitFor(() => expect(a.jobs.driver.begun.length + b.jobs.driver.begun.length).toBe(18), WAIT);
  }, 60_000);

  test('a job runs on the replica that has its package, which the feed notifies', async () => {
    await b.jobs.service.packages.write(TENANT, 'p.zip', Readable.from([Buffer.from('PK')]));
    expect(await a.jobs.service.packages.has(TENANT, 'p.zip')).toBe(true);
    const job = await submit(a, { submission_id: 'given', runtime_env: { working_dir: 'gcs://p.zip' } });
    expect(job.nodeId).toBe('b');
    await vi.waitFor(async () => expect((await a.jobs.job('given')).status).toBe('FAILED'), WAIT);
    expect((await a.jobs.job('given')).message).toContain('package gcs://p.zip: ');
  }, 60_000);

  test('a stop that another replica wrote to the records ends the job on its own replica', async () => {
    await submit(a, { submission_id: 'stopped' });
    await vi.waitFor(() => a.jobs.instanceOf('stopped'), WAIT);
    await b.jobs.service.jobs.stop(TENANT, 'stopped');
    await vi.waitFor(async () => expect((await b.jobs.job('stopped')).status).toBe('STOPPED'), WAIT);
  }, 60_000);

  test('a schedule continues with the next holder of the lease', async () => {
    const schedule = { schedule_id: 's', cron: '* * * * * *', overlap: 'allow', job: { entrypoint: 'true' } };
    await b.jobs.service.schedules.create(TENANT, readSchedule(schedule));
    const nodesOf = async () => {
      const ids = (await idsOn(a)).filter(id => id.startsWith('s-'));
      return await Promise.all(ids.map(async id => (await a.jobs.job(id)).nodeId));
    };
    await vi.waitFor(async () => expect((await nodesOf()).length).toBeGreaterThan(1), WAIT);
    const holder = a.replica.shards.holds('jobs') ? a : b;
    const other = holder === a ? b : a;
    await holder.replica.retire();
    await vi.waitFor(() => expect(other.replica.shards.holds('jobs')).toBe(true), WAIT);
    await vi.waitFor(async () => expect(new Set(await nodesOf())).toEqual(new Set(['a', 'b'])), WAIT);
    await b.jobs.service.schedules.delete(TENANT, 's');
  }, 120_000);
});

describeWith(['postgres'], 'jobs while PostgreSQL is down', () => {
  test('a job that ends meanwhile gets its real final state afterwards', async () => {
    await using server = await startPostgres();
    const limits = { url: await server.database(), waitMs: 200, poolSize: 4 };
    const stores = await openStores(limits, { operations: WRITE_OPERATIONS, program: PROGRAM });
    try {
      await using jobs = await JobsHarness.open({ nodeId: 'a', cluster: null, store: null, stores });
      const job = { entrypoint: 'true', submission_id: 'x' };
      await jobs.service.jobs.submit(TENANT, readJobSubmission(job, ''));
      await vi.waitFor(async () => expect((await jobs.job('x')).status).toBe('RUNNING'), WAIT);
      const instance = await jobs.instanceOf('x');
      await server.stop();
      jobs.driver.kill(instance, { code: 0, signal: null });
      await vi.waitFor(() => expect(jobs.warnings).toContain('cannot read job; retrying'), WAIT);
      await server.start();
      await vi.waitFor(async () => expect((await jobs.job('x')).status).toBe('SUCCEEDED'), WAIT);
    } finally {
      await stores.close();
    }
  }, 120_000);
});
