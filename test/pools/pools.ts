import { randomBytes } from 'node:crypto';
import type { V1Pod, V1ReplicaSet } from '@kubernetes/client-node';
import pino from 'pino';
import type { Pool, PoolSpec } from '../../src/core/pool.ts';
import { PoolController } from '../../src/pools/controller.ts';
import type { PoolRegistry } from '../../src/registry/pools.ts';
import { type ClaimSpec, Claims, type ClaimsOptions } from '../../src/sandbox/kubernetes/claims.ts';
import { KubernetesApi } from '../../src/sandbox/kubernetes/cluster.ts';
import type { PodTemplate } from '../../src/sandbox/kubernetes/pod-template.ts';
import { KubernetesPools, type PoolBackendOptions } from '../../src/sandbox/kubernetes/pool-backend.ts';
import { templateOf } from '../../src/sandbox/kubernetes/replica-set.ts';
import { Watched } from '../../src/sandbox/kubernetes/watched.ts';
import type { TestNamespace } from '../parts/kubernetes.ts';
import { testRegistry } from '../registry/registry.ts';

/** Image of a program that does nothing until it is terminated. */
export const PAUSE = 'local/pause:1';
const LOG = pino({ level: process.env.TEST_LOG ?? 'silent' });

/** A replica of the service, as the cluster sees it. */
export interface TestNode {
  readonly cluster: KubernetesApi;
  readonly pods: Watched<V1Pod>;
  readonly sets: Watched<V1ReplicaSet>;
  readonly backend: KubernetesPools;
  readonly claims: Claims;
  close(): Promise<void>;
}

/** Returns a new id of an installation. */
export const newInstallation = () => randomBytes(8).toString('hex');

/** Starts the parts of one replica that read the cluster, manage pods of pools and claim them. */
export async function testNode(
  namespace: Pick<TestNamespace, 'kubeconfig' | 'name'>,
  installationId: string,
  {
    nodeId = 'node-a',
    backend = {},
    claims = {},
  }: {
    nodeId?: string;
    backend?: Partial<PoolBackendOptions>;
    claims?: Partial<ClaimsOptions>;
  } = {},
): Promise<TestNode> {
  const cluster = await KubernetesApi.open({
    kubeconfig: namespace.kubeconfig,
    namespace: namespace.name,
    environment: {},
  });
  const watch = <T extends V1Pod | V1ReplicaSet>(noun: string, group: string) =>
    new Watched<T>({
      ...{ cluster, noun, logger: LOG, labelSelector: `rookery.io/installation=${installationId}` },
      path: `/${group}/v1/namespaces/${namespace.name}/${noun}`,
    });
  const pods = watch<V1Pod>('pods', 'api');
  const sets = watch<V1ReplicaSet>('replicasets', 'apis/apps');
  await Promise.all([pods.open(), sets.open()]);
  const shared = {
    cluster,
    pods,
    replicaSets: sets,
    installationId,
    nodeId,
    secretName: 'unused',
    defaultImage: PAUSE,
  };
  const mountPolicy = { closed: [], allow: null };
  const made = new KubernetesPools({ ...shared, mountPolicy, makeTemplate: pausing, logger: LOG, ...backend });
  const claiming = new Claims({ ...shared, ...claims });
  return {
    ...{ cluster, pods, sets, backend: made, claims: claiming },
    async close() {
      claiming.close();
      await Promise.all([pods.close(), sets.close()]);
      cluster.close();
    },
  };
}

/** Returns the product's pods with a program in them that every node has. */
export function pausing(spec: PoolSpec, options: Parameters<typeof templateOf>[1]): PodTemplate {
  const { metadata, spec: made } = templateOf(spec, options);
  const containers = made.containers.map(({ name, image, resources, env }) => ({ name, image, resources, env }));
  const { initContainers: _none, volumes: _volumes, ...rest } = made;
  return { metadata, spec: { ...rest, containers, terminationGracePeriodSeconds: 1 } as PodTemplate['spec'] };
}

export interface TestPools extends TestNode {
  readonly pools: PoolRegistry;
  create(id: string, fields?: Record<string, unknown>): Promise<void>;
  record(id: string): Promise<Pool | undefined>;
}

/** Starts one replica with pool records and the controller. */
export async function testPools(
  namespace: Pick<TestNamespace, 'kubeconfig' | 'name'>,
  options: Parameters<typeof testNode>[2] = {},
): Promise<TestPools> {
  const installationId = newInstallation();
  const node = await testNode(namespace, installationId, options);
  const registry = await testRegistry();
  const { pools } = registry.registry;
  const controller = new PoolController({
    records: pools,
    backend: async () => node.backend,
    isHeld: () => true,
    log: LOG,
  });
  pools.actedOnBy(node.backend);
  pools.onChange(() => controller.requestPass());
  controller.start();
  return {
    ...node,
    pools,
    async create(id, fields = {}) {
      const made = await pools.create([{ id, resources: RESOURCES, ...fields }]);
      if (made.problems.length > 0) throw new Error(made.problems.join(';'));
    },
    record: async id => (await pools.list({ id, group: '' }, 1, 1)).pools[0],
    async close() {
      await controller.close();
      await node.close();
      await registry[Symbol.asyncDispose]();
    },
  };
}

const RESOURCES = { requests: { cpu: '1m', memory: '8Mi' }, limits: { cpu: '100m', memory: '32Mi' } };

/** Returns a claim that fits every pool of the tests. */
export function asked(instanceId: string, changes: Partial<ClaimSpec> = {}): ClaimSpec {
  return { instanceId, cpuMillis: 1, memoryMb: 8, imageUrl: '', mounts: [], ...changes };
}
