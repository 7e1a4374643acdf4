import { execFile } from 'node:child_process';
import { createReadStream } from 'node:fs';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { Readable } from 'node:stream';
import { text } from 'node:stream/consumers';
import { promisify } from 'node:util';
import { afterAll, beforeAll, beforeEach, expect, test, vi } from 'vitest';
import { TENANT } from '../../test/jobs/harness.ts';
import { JobNodes, type TestNode } from '../../test/jobs/nodes.ts';
import { type S3TestServer, startS3Server } from '../../test/parts/s3.ts';
import { describeWith } from '../../test/probe.ts';
import { readJobSubmission } from '../core/job.ts';
import { createObjectStore, type ObjectStore } from '../object-store/object-store.ts';
import { failJobsOfNode } from '../storage/queries/job-owners.ts';

const WAIT = { timeout: 20_000 };
const NEVER = new AbortController().signal;

describeWith(['s3'], 'jobs over an object store', () => {
  let server: S3TestServer;
  let directory: string;
  let archive: string;
  let bucket: string;
  let buckets = 0;

  beforeAll(async () => {
    server = await startS3Server();
    directory = await mkdtemp(join(tmpdir(), 'rookery-job-store-'));
    await writeFile(join(directory, 'main.py'), 'print(1)');
    archive = join(directory, 'p.tar.gz');
    await promisify(execFile)('tar', ['-czf', archive, '-C', directory, 'main.py']);
  }, 60_000);
  beforeEach(async () => {
    buckets += 1;
    bucket = `jobs-${buckets}`;
    await server.makeBucket(bucket);
  });
  afterAll(async () => {
    await server.close();
    await rm(directory, { recursive: true, force: true });
  });

  const store = (): ObjectStore => createObjectStore(`s3://${bucket}/x`, { ...server, region: 'us-east-1' });
  const put = (node: TestNode, file = archive) =>
    node.jobs.service.packages.write(TENANT, 'p.tar.gz', createReadStream(file));
  const submit = (node: TestNode, id: string, body: object = {}) =>
    node.jobs.service.jobs.submit(TENANT, readJobSubmission({ entrypoint: 'true', submission_id: id, ...body }, ''));
  const WITH_PACKAGE = { runtime_env: { working_dir: 'gcs://p.tar.gz' } };
  const logOn = async (node: TestNode, id: string) =>
    await text(Readable.from(await node.jobs.service.jobs.log(TENANT, id, NEVER)));
  const followedOn = async (node: TestNode, id: string) =>
    await text(Readable.from(await node.jobs.service.jobs.follow(TENANT, id, NEVER)));
  const untilStored = (node: TestNode, id: string) =>
    vi.waitFor(async () => expect(await node.jobs.service.jobs.nodeOf(TENANT, id, 'log')).toBeNull(), WAIT);

  test('a package uploaded to one node exists on all nodes, and a job with it runs where it is submitted', async () => {
    await using nodes = await JobNodes.open({ store: store() });
    const [a, b] = [await nodes.start('a'), await nodes.start('b')];
    expect(await b.jobs.service.packages.has(TENANT, 'p.tar.gz')).toBe(false);
    await put(a);
    expect(await b.jobs.service.packages.has(TENANT, 'p.tar.gz')).toBe(true);
    expect((await submit(b, 'x', WITH_PACKAGE)).nodeId).toBe('b');
    await b.jobs.instanceOf('x');
    expect(b.jobs.driver.begun).toEqual(['x']);
    await b.jobs.exit('x', 0);
    expect((await a.jobs.untilEnded('x')).status).toBe('SUCCEEDED');
    expect(a.jobs.warnings).toEqual([]);
  });

  test('an unstarted job of a lost node moves to another node together with its package', async () => {
    await using nodes = await JobNodes.open({ store: store() });
    const [a, b] = [await nodes.start('a'), await nodes.start('b')];
    await put(a);
    await a.jobs.stopServer();
    await a.jobs.startServer();
    const { sequence } = await submit(a, 'x', { ...WITH_PACKAGE, entrypoint_num_gpus: 1 });
    expect(await nodes.writes.write(failJobsOfNode, 'a', 1, 'lost', Date.now())).toEqual({ failed: 0, freed: 1 });
    nodes.living.delete('a');
    await a.jobs.stopServer();
    b.cluster.wake();
    await vi.waitFor(async () => expect((await b.jobs.job('x')).nodeId).toBe('b'), WAIT);
    expect((await b.jobs.job('x')).sequence).toBe(sequence);
  });

  test('a job fails when its package in the object store differs from the upload', async () => {
    await using nodes = await JobNodes.open({ store: store() });
    const [a, b] = [await nodes.start('a'), await nodes.start('b')];
    await put(a);
    const [key] = await server.keys(bucket);
    await server.put(bucket, key as string, Buffer.from('something else'));
    await submit(b, 'x', WITH_PACKAGE);
    expect(await b.jobs.untilEnded('x')).toMatchObject({
      status: 'FAILED',
      errorType: 'RUNTIME_ENV_SETUP_FAILURE',
      message: expect.stringContaining('package gcs://p.tar.gz could not be fetched from the object store'),
    });
  });

  test('an upload fails with unavailable when the object store is unreachable', async () => {
    await using nodes = await JobNodes.open({ store: store() });
    const [a, b] = [await nodes.start('a'), await nodes.start('b')];
    await server.stop();
    try {
      await expect(put(a)).rejects.toMatchObject({ code: 'unavailable' });
      expect(await a.jobs.service.packages.has(TENANT, 'p.tar.gz')).toBe(false);
      expect(await b.jobs.service.packages.has(TENANT, 'p.tar.gz')).toBe(false);
    } finally {
      await server.start();
    }
    await put(a);
    expect(await b.jobs.service.packages.has(TENANT, 'p.tar.gz')).toBe(true);
  });

  test('an upload replaces the object of its name, and an unneeded package is removed from the store', async () => {
    await using nodes = await JobNodes.open({ store: store() });
    const a = await nodes.start('a');
    await put(a);
    await put(a);
    expect(await server.keys(bucket)).toHaveLength(1);
    await submit(a, 'x', { ...WITH_PACKAGE, entrypoint_num_gpus: 1 });
    const later = Date.now() + 601_000;
    vi.spyOn(Date, 'now').mockReturnValue(later);
    try {
      await a.jobs.service.housekeeping.run();
      expect(await server.keys(bucket)).toHaveLength(1);
      await a.jobs.service.jobs.stop(TENANT, 'x');
      await a.jobs.service.housekeeping.run();
      expect(await server.keys(bucket)).toEqual([]);
      expect(await a.jobs.service.packages.has(TENANT, 'p.tar.gz')).toBe(false);
    } finally {
      vi.mocked(Date.now).mockRestore();
    }
  });

  test('another node reads the log of an ended job when the node of the job has lost its disk', async () => {
    await using nodes = await JobNodes.open({ store: store() });
    const [a, b] = [await nodes.start('a'), await nodes.start('b')];
    a.jobs.driver.output.set('x', 'first line\nsecond line\n');
    await submit(a, 'x', { metadata: { 'rookery.retries': '1', 'rookery.retry_delay_ms': '0' } });
    await a.jobs.exit('x', 1);
    await vi.waitFor(async () => expect((await a.jobs.job('x')).attempt).toBe(2), WAIT);
    a.jobs.driver.output.set('x', 'third line\n');
    await a.jobs.exit('x', 0);
    await a.jobs.untilEnded('x');
    await untilStored(b, 'x');
    await a.jobs.stopServer();
    await rm(a.jobs.dataDir, { recursive: true, force: true });
    expect(await logOn(b, 'x')).toBe('first line\nsecond line\nthird line\n');
    expect(await followedOn(b, 'x')).toBe('first line\nsecond line\nthird line\n');
    await b.jobs.service.jobs.delete(TENANT, 'x');
    expect(await server.keys(bucket)).toEqual([]);
  });

  test('a job ends while the object store is unreachable, and its log is stored after a restart', async () => {
    await using nodes = await JobNodes.open({ store: store() });
    const [a, b] = [await nodes.start('a'), await nodes.start('b')];
    a.jobs.driver.output.set('x', 'hello\n');
    await server.stop();
    try {
      await submit(a, 'x');
      await a.jobs.exit('x', 0);
      expect((await a.jobs.untilEnded('x')).status).toBe('SUCCEEDED');
      expect(await b.jobs.service.jobs.nodeOf(TENANT, 'x', 'log')).toBe('a');
      expect(await logOn(a, 'x')).toBe('hello\n');
      await vi.waitFor(
        () => expect(a.jobs.warnings.join()).toContain('cannot upload job logs to the object store'),
        WAIT,
      );
      await a.jobs.stopServer();
    } finally {
      await server.start();
    }
    await a.jobs.startServer();
    await untilStored(b, 'x');
    expect(await logOn(b, 'x')).toBe('hello\n');
  });

  test('retention removes logs from the object store on any node', async () => {
    await using nodes = await JobNodes.open({ store: store() });
    const [a, b] = [await nodes.start('a'), await nodes.start('b')];
    a.jobs.driver.output.set('x', 'hello\n');
    await submit(a, 'x');
    await a.jobs.exit('x', 0);
    await untilStored(b, 'x');
    nodes.holder = 'b';
    await b.jobs.service.jobs.dropOld({ endedBeforeMs: Date.now() + 1000, keep: 1000 });
    expect(await server.keys(bucket)).toEqual([]);
  });

  test('a single node stores packages and logs in the object store', async () => {
    await using nodes = await JobNodes.open({ store: store(), isAlone: true });
    const a = await nodes.start('a');
    await put(a);
    a.jobs.driver.output.set('x', 'hello\n');
    await submit(a, 'x', WITH_PACKAGE);
    await a.jobs.exit('x', 0);
    await a.jobs.untilEnded('x');
    await vi.waitFor(async () => expect(await server.keys(bucket)).toHaveLength(2), WAIT);
  });
});
