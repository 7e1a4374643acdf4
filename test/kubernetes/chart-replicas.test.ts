import { randomBytes } from 'node:crypto';
import { networkInterfaces } from 'node:os';
import { join } from 'node:path';
import { SignJWT } from 'jose';
import { request } from 'undici';
import { afterAll, beforeAll, expect, test, vi } from 'vitest';
import { ROOT } from '../../scripts/command.ts';
import { LABEL_INSTANCE, LABEL_POOL } from '../../src/sandbox/kubernetes/labels.ts';
import { cli } from '../parts/cli.ts';
import { ForwardedPort } from '../parts/forwarded-port.ts';
import { CHART, helm } from '../parts/helm.ts';
import { KUBERNETES_START_MS, kubernetesImage, kubernetesNamespace, type TestNamespace } from '../parts/kubernetes.ts';
import { countRequests, kubeconfigOf } from '../parts/kubernetes-requests.ts';
import { startPostgres, type TestPostgres } from '../parts/postgres.ts';
import { describeWith } from '../probe.ts';

const RELEASE = 'rookery';
const KEY = randomBytes(32).toString('hex');
const START_MS = 240_000;
const TEST_MS = 240_000;
const PATIENCE = { timeout: 150_000, interval: 250 };
const FRONTEND = 8888;
const META = 31_182;
const POOL_PODS = 2;

describeWith(['kubernetes', 'helm', 'postgres'], 'the chart, installed with two servers', () => {
  let namespace: TestNamespace;
  let postgres: TestPostgres;
  const forwarded: ForwardedPort[] = [];

  beforeAll(async () => {
    namespace = await kubernetesNamespace();
    const image = await kubernetesImage();
    postgres = await startPostgres();
    const place = { namespace: namespace.name };
    const secret = (name: string, stringData: Record<string, string>) =>
      namespace.core.createNamespacedSecret({ ...place, body: { metadata: { name }, stringData } });
    const host = await hostForPods();
    const database = new URL(await postgres.database());
    database.port = `${await forward(host, Number(database.port))}`;
    database.hostname = host;
    await secret('database', { url: database.href });
    await secret('servers', { secret: randomBytes(48).toString('base64') });
    await secret('callers', { secret: KEY });
    const data = { 'handler.py': 'def handle(event, context):\n    return {"hello": event["name"]}\n' };
    await namespace.core.createNamespacedConfigMap({ ...place, body: { metadata: { name: 'code' }, data } });
    await install(image);
    const config = JSON.parse(await kubeconfigOf(namespace, RELEASE)) as {
      clusters: { cluster: { server: string; 'tls-server-name'?: string } }[];
    };
    for (const { cluster } of config.clusters) {
      const port = await forward(host, Number(new URL(cluster.server).port));
      cluster.server = `https://${host}:${port}`;
      cluster['tls-server-name'] = 'localhost';
    }
    await secret('kubeconfig', { kubeconfig: JSON.stringify(config) });
    await bothServers();
  }, KUBERNETES_START_MS + START_MS);

  afterAll(async () => {
    await namespace?.close();
    for (const port of forwarded) await port[Symbol.asyncDispose]();
    await postgres?.close();
  });

  /**
   * Returns an address of this machine that its pods can reach. Pods cannot reach a server on the loopback
   * interface.
   */
  async function hostForPods(): Promise<string> {
    const { items } = await namespace.core.listNode();
    const nodes = items.flatMap(({ status }) => status?.addresses ?? []).map(({ address }) => address);
    const own = Object.values(networkInterfaces()).flatMap(each => each?.map(({ address }) => address) ?? []);
    const host = own.find(address => nodes.includes(address));
    if (host === undefined)
      throw new Error('the node of the cluster is not this machine, and would not reach what listens here');
    return host;
  }

  async function forward(host: string, port: number): Promise<number> {
    const made = await ForwardedPort.open(host, port);
    forwarded.push(made);
    return made.port;
  }

  async function install(image: string): Promise<void> {
    const colon = image.lastIndexOf(':');
    const sets = [
      `image.repository=${image.slice(0, colon)},image.tag=${image.slice(colon + 1)}`,
      'replicas=2,persistence.enabled=false,terminationGracePeriodSeconds=20,resources.requests.cpu=50m',
      'storage.existingSecret=database,cluster.existingSecret=servers,auth.existingSecret=callers,kubeconfig.existingSecret=kubeconfig',
      `sandboxNamespace=${namespace.name},pools.tenants={test}`,
      'cluster.drainMs=0,settings.cluster.nodeLostMs=10000,settings.jwt.defaultRole=developer,settings.mounts.allow={/code}',
      'extraVolumes[0].name=code,extraVolumes[0].configMap.name=code',
      'extraVolumeMounts[0].name=code,extraVolumeMounts[0].mountPath=/code/hello',
    ];
    await helm(
      ['install', RELEASE, CHART, '--namespace', namespace.name, ...sets.flatMap(set => ['--set', set])],
      namespace.kubeconfig,
    );
  }

  /** Returns the addresses of the servers that are ready, ordered by name. */
  async function readyServers(): Promise<readonly { readonly name: string; readonly host: string }[]> {
    const labelSelector = `app.kubernetes.io/instance=${RELEASE}`;
    const { items } = await namespace.core.listNamespacedPod({ namespace: namespace.name, labelSelector });
    return items
      .filter(({ metadata, status }) => {
        const isReady = status?.conditions?.some(({ type, status: is }) => type === 'Ready' && is === 'True');
        return isReady === true && metadata?.deletionTimestamp === undefined;
      })
      .map(({ metadata, status }) => ({ name: metadata?.name ?? '', host: status?.podIP ?? '' }))
      .sort((a, b) => a.name.localeCompare(b.name));
  }

  async function bothServers() {
    return await vi.waitFor(
      async () => {
        const [first, second] = await readyServers();
        if (first === undefined || second === undefined) throw new Error('not every server is ready');
        return { first, second };
      },
      { ...PATIENCE, timeout: START_MS },
    );
  }

  const token = () =>
    new SignJWT({ sub: 'test' }).setProtectedHeader({ alg: 'HS256' }).setExpirationTime('1h').sign(Buffer.from(KEY));

  async function ask(method: 'GET' | 'POST' | 'DELETE', address: string, body?: unknown) {
    const answer = await request(address, {
      method,
      headers: { 'x-auth': await token(), 'content-type': 'application/json' },
      ...(body !== undefined && { body: JSON.stringify(body) }),
    });
    return { status: answer.statusCode, body: (await answer.body.json()) as Record<string, unknown> };
  }

  /** Runs `rookery` against one server and returns its output. */
  async function rookery(host: string, ...args: readonly string[]): Promise<string> {
    const environment = {
      ROOKERY_ADDRESS: `http://${host}:${FRONTEND}`,
      ROOKERY_META_ADDRESS: `http://${host}:${META}`,
      ROOKERY_TOKEN: await token(),
    };
    const { code, out, err } = await cli(args, { environment });
    if (code !== 0) throw new Error(err);
    return out.trim();
  }

  async function register(host: string, name: string): Promise<string> {
    const registered = await ask('POST', `http://${host}:${META}/serverless/v1/functions`, {
      name: `0@demo@${name}`,
      kind: 'faas',
      runtime: 'python3.11',
      cpu: 300,
      memory: 128,
      handler: 'handler.handle',
      storageType: 'local',
      codePath: '/code/hello',
    });
    expect(registered).toMatchObject({ status: 200, body: { code: 0 } });
    return `/serverless/v1/functions/${registered.body.functionVersionUrn}/invocations`;
  }

  test('an agent of uploaded code answers through either server, and survives the end of its own server', {
    timeout: TEST_MS,
  }, async () => {
    const { first, second } = await bothServers();
    const handlers = ['--handler', 'handler.handle', '--initializer', 'handler.initialize'];
    const small = ['--runtime', 'python3.11', '--cpu', '200', '--memory', '128', '--image', ''];
    const create = ['agent', 'create', 'hello', '--code', join(ROOT, 'examples/hello'), ...handlers, ...small];
    await rookery(first.host, ...create);
    const invoke = (host: string, name: string) =>
      rookery(host, 'agent', 'invoke', 'hello', JSON.stringify({ name })).then(text => JSON.parse(text) as object);
    expect(await invoke(first.host, 'Ada')).toEqual({ message: 'Hello, Ada!', calls: 1 });
    expect(await invoke(second.host, 'Grace')).toEqual({ message: 'Hello, Grace!', calls: 2 });
    expect(await rookery(second.host, 'agent', 'logs', 'hello')).toContain('call 2');
    await namespace.core.deleteNamespacedPod({ name: first.name, namespace: namespace.name, gracePeriodSeconds: 0 });
    // The agent keeps its memory, because another server adopted its running pod.
    let answer: object = {};
    await vi.waitFor(async () => {
      answer = await invoke(second.host, 'Alan');
    }, PATIENCE);
    expect(answer).toEqual({ message: 'Hello, Alan!', calls: 3 });
    const { first: again } = await bothServers();
    // A restarted server may not know the other one yet. A refused call did not run, so the test repeats it.
    await vi.waitFor(async () => {
      answer = await invoke(again.host, 'Ada');
    }, PATIENCE);
    expect(answer).toEqual({ message: 'Hello, Ada!', calls: 4 });
    await rookery(again.host, 'agent', 'delete', 'hello');
    await vi.waitFor(async () => {
      const { items } = await namespace.core.listNamespacedPod({
        namespace: namespace.name,
        labelSelector: LABEL_INSTANCE,
      });
      expect(items).toEqual([]);
    }, PATIENCE);
  });

  test('functions run in pods of a pool through either server, and a claim takes at most three requests', {
    timeout: TEST_MS,
  }, async () => {
    const { first, second } = await bothServers();
    const amounts = { cpu: '300m', memory: '128Mi' };
    const pool = { id: 'warm', size: POOL_PODS, reuse: true, resources: { requests: amounts, limits: amounts } };
    expect(await ask('POST', `http://${first.host}:${META}/serverless/v1/podpools`, { pools: [pool] })).toMatchObject({
      status: 200,
    });
    await vi.waitFor(async () => {
      const found = await ask('GET', `http://${second.host}:${META}/serverless/v1/podpools?id=warm`);
      expect(JSON.stringify(found.body)).toContain(`"ready_count":${POOL_PODS}`);
    }, PATIENCE);
    await using requests = await countRequests(namespace, RELEASE);
    const paths = await Promise.all(Array.from({ length: POOL_PODS }, (_, index) => register(first.host, `f${index}`)));
    const before = await requests.now();
    for (const [index, path] of paths.entries()) {
      const { host } = index % 2 === 0 ? first : second;
      const call = async () =>
        expect(await ask('POST', `http://${host}:${FRONTEND}${path}`, { name: 'Ada' })).toEqual({
          status: 200,
          body: { hello: 'Ada' },
        });
      await vi.waitFor(call, PATIENCE);
    }
    expect((await requests.now()) - before).toBeLessThanOrEqual(3 * POOL_PODS);
    const labelSelector = `${LABEL_INSTANCE},${LABEL_POOL}=warm`;
    const { items } = await namespace.core.listNamespacedPod({ namespace: namespace.name, labelSelector });
    expect(items).toHaveLength(POOL_PODS);
  });
});
