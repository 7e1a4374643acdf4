import { buffer } from 'node:stream/consumers';
import { gzipSync } from 'node:zlib';
import { pack } from 'tar-stream';
import { afterAll, beforeAll, expect, test, vi } from 'vitest';
import { Served } from '../../scripts/served.ts';
import { KUBERNETES_START_MS, kubernetesImage, kubernetesNamespace, type TestNamespace } from '../parts/kubernetes.ts';
import { describeWith } from '../probe.ts';
import { JobClient } from './client.ts';

/** Limits of a wait, since each job needs a pod that is created, scheduled and started. */
const PATIENCE = { timeout: 60_000, interval: 200 };

describeWith(['kubernetes'], 'jobs on Kubernetes', () => {
  let namespace: TestNamespace;
  let server: Served;
  let jobs: JobClient;

  beforeAll(async () => {
    namespace = await kubernetesNamespace();
    const image = await kubernetesImage();
    const sets = {
      'jobs.sandbox': 'kubernetes',
      'kubernetes.kubeconfig': namespace.kubeconfig,
      'kubernetes.namespace': namespace.name,
      'kubernetes.image': image,
      'jobs.defaultCpuMillis': '100',
      'jobs.defaultMemoryMb': '128',
    };
    const args = Object.entries(sets).flatMap(([name, value]) => ['--set', `${name}=${value}`]);
    server = await Served.start({ args });
    jobs = new JobClient(server.frontendUrl);
  }, KUBERNETES_START_MS);

  afterAll(async () => {
    await server?.remove();
    await namespace?.close();
  });

  async function objects(): Promise<{ readonly jobs: number; readonly pods: number }> {
    const place = { namespace: namespace.name };
    const [made, pods] = await Promise.all([
      namespace.batch.listNamespacedJob(place),
      namespace.core.listNamespacedPod(place),
    ]);
    return { jobs: made.items.length, pods: pods.items.length };
  }

  async function isEmpty(): Promise<void> {
    await vi.waitFor(async () => expect(await objects()).toEqual({ jobs: 0, pods: 0 }), PATIENCE);
  }

  test('a job is a batch/v1 Job that starts only once and is removed at its end', async () => {
    const id = await jobs.submit({ entrypoint: 'echo begun; while [ ! -e /tmp/go ]; do sleep 0.1; done; echo over' });
    await jobs.until(id, ({ status }) => status === 'RUNNING');
    const { items } = await namespace.batch.listNamespacedJob({ namespace: namespace.name });
    expect(items.map(({ spec }) => spec)).toMatchObject([{ backoffLimit: 0, completions: 1, parallelism: 1 }]);
    const pod = (await namespace.core.listNamespacedPod({ namespace: namespace.name })).items[0];
    expect(pod?.metadata?.ownerReferences).toMatchObject([{ kind: 'Job', name: items[0]?.metadata?.name }]);
    await vi.waitFor(async () => expect(await jobs.log(id)).toBe('begun\n'), PATIENCE);
    expect((await jobs.ask('POST', `/api/jobs/${id}/stop`)).status).toBe(200);
    expect(await jobs.until(id)).toMatchObject({ status: 'STOPPED' });
    expect(await jobs.log(id)).toBe('begun\n');
    await isEmpty();
  });

  test('a job ends with the exit of its command and has the whole log', async () => {
    const good = await jobs.run({
      entrypoint: 'echo $GREETING from $PWD',
      runtime_env: { env_vars: { GREETING: 'hello' } },
    });
    expect(good).toMatchObject({ status: 'SUCCEEDED' });
    expect(await jobs.log(String(good.submission_id))).toBe('hello from /workspace\n');
    const bad = await jobs.run({ entrypoint: 'echo before; exit 7' });
    expect(bad).toMatchObject({ status: 'FAILED', driver_exit_code: 7 });
    expect(await jobs.log(String(bad.submission_id))).toBe('before\n');
    await isEmpty();
  });

  test('a job runs in the directory of its files with the Python of the image', async () => {
    const archive = pack();
    archive.entry({ name: 'greet.py' }, 'NAME = "package"\n');
    archive.entry({ name: 'main.py' }, 'import greet\nopen("made", "w").write("x")\nprint("from", greet.NAME)\n');
    archive.finalize();
    const path = '/api/packages/gcs/_ray_pkg_fedcba9876543210.tar.gz';
    const content = gzipSync(await buffer(archive));
    const put = await fetch(`${server.frontendUrl}${path}`, { method: 'PUT', body: new Uint8Array(content) });
    expect(put.status).toBe(200);
    const runtimeEnv = { working_dir: 'gcs://_ray_pkg_fedcba9876543210.tar.gz' };
    const record = await jobs.run({ entrypoint: 'python main.py', runtime_env: runtimeEnv });
    expect(await jobs.log(String(record.submission_id))).toBe('from package\n');
    expect(record).toMatchObject({ status: 'SUCCEEDED' });
  });

  test('a job with pip packages fails with a message', async () => {
    const record = await jobs.run({ entrypoint: 'true', runtime_env: { pip: ['six'] } });
    expect(record).toMatchObject({
      status: 'FAILED',
      message:
        'runtime_env setup failed: pip is not possible where jobs run in an image: put the packages into the image',
    });
  });

  test('a job continues without the server, and the next server records its end', async () => {
    const id = await jobs.submit({ entrypoint: 'echo begun; sleep 3; echo over' });
    await jobs.until(id, ({ status }) => status === 'RUNNING');
    await server.end('SIGKILL');
    server = await server.next();
    jobs = new JobClient(server.frontendUrl);
    expect(await jobs.until(id)).toMatchObject({ status: 'SUCCEEDED' });
    expect(await jobs.log(id)).toBe('begun\nover\n');
    await isEmpty();
  });

  test('a job fails without a second start when a user deletes its pod', async () => {
    const id = await jobs.submit({ entrypoint: 'echo begun; sleep 600' });
    await jobs.until(id, ({ status }) => status === 'RUNNING');
    const pod = (await namespace.core.listNamespacedPod({ namespace: namespace.name })).items[0];
    const name = pod?.metadata?.name ?? '';
    await namespace.core.deleteNamespacedPod({ name, namespace: namespace.name, gracePeriodSeconds: 1 });
    expect(await jobs.until(id)).toMatchObject({ status: 'FAILED' });
    await isEmpty();
  });
});
