import { randomBytes } from 'node:crypto';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { FlowcontrolApiserverV1Api, RbacAuthorizationV1Api } from '@kubernetes/client-node';
import { vi } from 'vitest';
import { KubernetesApi } from '../../src/sandbox/kubernetes/cluster.ts';
import { RIGHTS } from '../../src/sandbox/kubernetes/rights.ts';
import type { TestNamespace } from './kubernetes.ts';

const PATIENCE = { timeout: 60_000, interval: 250 };
/** Priority level that other service accounts have too. */
const PRIORITY = 'workload-low';

/** Counts the requests of a single account at the API server; requests of other accounts do not count. */
export interface RequestCount extends AsyncDisposable {
  /**
   * Returns the requests dispatched so far, watches included:
   * `apiserver_flowcontrol_dispatched_requests_total`.
   */
  now(): Promise<number>;
}

/** Starts counting requests of `account` in a namespace. Resolves when the API server counts. */
export async function countRequests(namespace: TestNamespace, account: string): Promise<RequestCount> {
  const flows = namespace.config.makeApiClient(FlowcontrolApiserverV1Api);
  const name = `rookery-test-${randomBytes(4).toString('hex')}`;
  const metrics = await KubernetesApi.open({ kubeconfig: namespace.kubeconfig, namespace: null, environment: {} });
  const every = { verbs: ['*'], apiGroups: ['*'], resources: ['*'], namespaces: ['*'], clusterScope: true };
  await flows.createFlowSchema({
    body: {
      metadata: { name },
      spec: {
        priorityLevelConfiguration: { name: PRIORITY },
        // Precedes all other flow schemas except those of the cluster's administrators.
        matchingPrecedence: 100,
        rules: [
          {
            subjects: [{ kind: 'ServiceAccount', serviceAccount: { name: account, namespace: namespace.name } }],
            resourceRules: [every],
            nonResourceRules: [{ verbs: ['*'], nonResourceURLs: ['*'] }],
          },
        ],
      },
    },
  });
  const close = async () => {
    await flows.deleteFlowSchema({ name }).catch(() => undefined);
    metrics.close();
  };
  const now = async () => {
    const text = await textOf(metrics);
    const line = text
      .split('\n')
      .find(each => each.startsWith('apiserver_flowcontrol_dispatched_requests_total{') && each.includes(`"${name}"`));
    return Number(line?.split(' ').at(-1) ?? 0);
  };
  const directory = mkdtempSync(join(tmpdir(), 'rookery-account-'));
  try {
    const kubeconfig = join(directory, 'kubeconfig');
    writeFileSync(kubeconfig, await kubeconfigOf(namespace, account), { mode: 0o600 });
    const asking = await KubernetesApi.open({ kubeconfig, namespace: namespace.name, environment: {} });
    const path = `/api/v1/namespaces/${namespace.name}/pods`;
    await vi.waitFor(async () => {
      await asking.request('list pods', { path, query: { limit: 1 } });
      if ((await now()) === 0) throw new Error('the API server does not count the requests of the account yet');
    }, PATIENCE);
    asking.close();
  } catch (error) {
    await close();
    throw error;
  } finally {
    rmSync(directory, { recursive: true });
  }
  return { now, [Symbol.asyncDispose]: close };
}

async function textOf(cluster: KubernetesApi): Promise<string> {
  const message = await cluster.stream('tell its metrics', { path: '/metrics' }, AbortSignal.timeout(30_000));
  const parts: Buffer[] = [];
  for await (const part of message) parts.push(part as Buffer);
  return Buffer.concat(parts).toString();
}

/** A service account with exactly the rights of the service, and its kubeconfig. */
export interface ServiceAccount extends AsyncDisposable {
  readonly name: string;
  readonly kubeconfig: string;
}

export async function serviceAccount(namespace: TestNamespace): Promise<ServiceAccount> {
  const name = 'service';
  const place = { namespace: namespace.name };
  const rbac = namespace.config.makeApiClient(RbacAuthorizationV1Api);
  await namespace.core.createNamespacedServiceAccount({ ...place, body: { metadata: { name } } });
  const rules = RIGHTS.map(({ group, resource, verbs }) => ({
    apiGroups: [group],
    resources: [resource],
    verbs: [...verbs],
  }));
  await rbac.createNamespacedRole({ ...place, body: { metadata: { name }, rules } });
  await rbac.createNamespacedRoleBinding({
    ...place,
    body: {
      metadata: { name },
      roleRef: { apiGroup: 'rbac.authorization.k8s.io', kind: 'Role', name },
      subjects: [{ kind: 'ServiceAccount', name, namespace: namespace.name }],
    },
  });
  const directory = mkdtempSync(join(tmpdir(), 'rookery-account-'));
  const kubeconfig = join(directory, 'kubeconfig');
  writeFileSync(kubeconfig, await kubeconfigOf(namespace, name), { mode: 0o600 });
  return { name, kubeconfig, [Symbol.asyncDispose]: async () => rmSync(directory, { recursive: true }) };
}

/** Returns a kubeconfig that is valid for an hour. */
export async function kubeconfigOf(namespace: TestNamespace, account: string): Promise<string> {
  const { status } = await namespace.core.createNamespacedServiceAccountToken({
    name: account,
    namespace: namespace.name,
    body: { spec: { audiences: [], expirationSeconds: 3600 } },
  });
  const cluster = namespace.config.getCurrentCluster();
  return JSON.stringify({
    apiVersion: 'v1',
    kind: 'Config',
    'current-context': 'here',
    contexts: [{ name: 'here', context: { cluster: 'here', user: 'here', namespace: namespace.name } }],
    clusters: [{ name: 'here', cluster: { server: cluster?.server, 'certificate-authority-data': cluster?.caData } }],
    users: [{ name: 'here', user: { token: status?.token } }],
  });
}
