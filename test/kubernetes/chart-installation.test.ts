import { randomBytes } from 'node:crypto';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { SignJWT } from 'jose';
import { request } from 'undici';
import { afterAll, beforeAll, expect, test, vi } from 'vitest';
import { diagnose } from '../../src/sandbox/kubernetes/diagnosis.ts';
import { LABEL_INSTANCE } from '../../src/sandbox/kubernetes/labels.ts';
import { RIGHTS } from '../../src/sandbox/kubernetes/rights.ts';
import { freePort } from '../parts/free-port.ts';
import { CHART, helm } from '../parts/helm.ts';
import { KUBERNETES_START_MS, kubernetesImage, kubernetesNamespace, type TestNamespace } from '../parts/kubernetes.ts';
import { kubeconfigOf } from '../parts/kubernetes-requests.ts';
import { startPostgres, type TestPostgres } from '../parts/postgres.ts';
import { describeWith } from '../probe.ts';
import { NO_POD_SETTINGS } from '../sandbox/kubernetes-fixture.ts';

const RELEASE = 'rookery';
const KEY = randomBytes(32).toString('hex');
const START_MS = 240_000;
const PATIENCE = { timeout: 120_000, interval: 250 };

describeWith(['kubernetes', 'helm', 'postgres'], 'the chart, installed with host network and a kubeconfig', () => {
  let namespace: TestNamespace;
  let postgres: TestPostgres;
  /** Kubeconfig with exactly the rights of the chart's Role. */
  let kubeconfig: string;
  let url: string;
  let metaUrl: string;
  let image: string;
  let ports: readonly number[];

  beforeAll(async () => {
    namespace = await kubernetesNamespace();
    image = await kubernetesImage();
    ports = [await freePort(), await freePort(), await freePort()];
    postgres = await startPostgres();
    await secret('database', { url: await postgres.database() });
    await secret('servers', { secret: randomBytes(48).toString('base64') });
    await secret('callers', { secret: KEY });
    const data = { 'handler.py': 'def handle(event, context):\n    return {"hello": event["name"]}\n' };
    await namespace.core.createNamespacedConfigMap({
      namespace: namespace.name,
      body: { metadata: { name: 'code' }, data },
    });
    await install();
    kubeconfig = await kubeconfigOf(namespace, RELEASE);
    await secret('kubeconfig', { kubeconfig });
    url = `http://127.0.0.1:${ports[0]}`;
    metaUrl = `http://127.0.0.1:${ports[1]}`;
    await vi.waitFor(isReady, { ...PATIENCE, timeout: START_MS });
  }, KUBERNETES_START_MS + START_MS);

  afterAll(async () => {
    await namespace?.close();
    await postgres?.close();
  });

  async function secret(name: string, stringData: Record<string, string>): Promise<void> {
    await namespace.core.createNamespacedSecret({
      namespace: namespace.name,
      body: { metadata: { name }, stringData },
    });
  }

  async function install(): Promise<void> {
    const colon = image.lastIndexOf(':');
    const [frontend, meta, cluster] = ports;
    const sets = [
      `image.repository=${image.slice(0, colon)},image.tag=${image.slice(colon + 1)}`,
      `ports.frontend=${frontend},ports.meta=${meta},ports.cluster=${cluster}`,
      'replicas=1,hostNetwork=true,persistence.enabled=false,terminationGracePeriodSeconds=20,resources.requests.cpu=50m',
      'storage.existingSecret=database,cluster.existingSecret=servers,auth.existingSecret=callers,kubeconfig.existingSecret=kubeconfig',
      `sandboxNamespace=${namespace.name}`,
      'cluster.drainMs=0,settings.jwt.defaultRole=developer,settings.mounts.allow={/code}',
      'extraVolumes[0].name=code,extraVolumes[0].configMap.name=code',
      'extraVolumeMounts[0].name=code,extraVolumeMounts[0].mountPath=/code/hello',
    ];
    await helm(
      ['install', RELEASE, CHART, '--namespace', namespace.name, ...sets.flatMap(set => ['--set', set])],
      namespace.kubeconfig,
    );
  }

  async function isReady(): Promise<void> {
    const pod = await namespace.core.readNamespacedPod({ name: `${RELEASE}-0`, namespace: namespace.name });
    const why = JSON.stringify(pod.status?.containerStatuses ?? pod.status);
    const ready = pod.status?.conditions?.find(({ type }) => type === 'Ready')?.status;
    expect(ready, why).toBe('True');
  }

  async function ask(method: 'GET' | 'POST', address: string, body?: unknown) {
    const token = await new SignJWT({ sub: 'test' })
      .setProtectedHeader({ alg: 'HS256' })
      .setExpirationTime('1h')
      .sign(Buffer.from(KEY));
    const answer = await request(address, {
      method,
      headers: { 'x-auth': token, 'content-type': 'application/json' },
      ...(body !== undefined && { body: JSON.stringify(body) }),
    });
    return { status: answer.statusCode, body: (await answer.body.json()) as Record<string, unknown> };
  }

  test('the service is ready and requires a token from callers', async () => {
    expect((await request(`${url}/readyz`)).statusCode).toBe(200);
    expect((await request(`${url}/api/agent`)).statusCode).toBe(401);
    expect((await ask('GET', `${url}/api/agent`)).status).toBe(200);
  });

  test('a function runs in a pod when the service has only the rights of the chart', async () => {
    const registered = await ask('POST', `${metaUrl}/serverless/v1/functions`, {
      name: '0@demo@hello',
      kind: 'faas',
      runtime: 'python3.11',
      cpu: 300,
      memory: 128,
      handler: 'handler.handle',
      storageType: 'local',
      codePath: '/code/hello',
    });
    expect(registered).toMatchObject({ status: 200, body: { code: 0 } });
    const path = `/serverless/v1/functions/${registered.body.functionVersionUrn}/invocations`;
    // A call times out before a pod starts on a busy machine, so the test repeats the call.
    const call = async () =>
      expect(await ask('POST', url + path, { name: 'Ada' })).toEqual({ status: 200, body: { hello: 'Ada' } });
    await vi.waitFor(call, PATIENCE);
    const labelSelector = LABEL_INSTANCE;
    const { items } = await namespace.core.listNamespacedPod({ namespace: namespace.name, labelSelector });
    expect(items).toHaveLength(1);
  }, 180_000);

  test('the Role of the chart covers all needs of the server, and a ServiceAccount without it may do nothing', async () => {
    const look = async (text: string) => {
      const directory = await mkdtemp(join(tmpdir(), 'rookery-kubeconfig-'));
      await writeFile(join(directory, 'config'), text);
      const place = {
        kubeconfig: join(directory, 'config'),
        namespace: namespace.name,
        secret: `${RELEASE}-pods`,
        image,
        environment: {},
        pod: NO_POD_SETTINGS,
      };
      return await diagnose(place).finally(() => rm(directory, { recursive: true }));
    };
    expect(await look(kubeconfig)).toMatchObject({ missingRights: [], refusal: null });
    const { missingRights } = await look(await kubeconfigOf(namespace, 'default'));
    expect(missingRights).toHaveLength(RIGHTS.flatMap(({ verbs }) => verbs).length);
  });
});
