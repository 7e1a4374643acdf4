import { failedPrecondition } from '../../core/error.ts';
import type { KubernetesApi } from './cluster.ts';

/**
 * Rights that this driver needs from the API server, in one namespace. The Role of `deploy/chart` grants
 * exactly these, and `rookery doctor` checks each.
 */
export const RIGHTS: readonly {
  readonly group: string;
  readonly resource: string;
  readonly verbs: readonly string[];
  /** True when the right is needed only for the installation's Secret. */
  readonly isOfOurSecret?: true;
  /** Consequence when the right is missing. */
  readonly without: string;
}[] = [
  {
    group: '',
    resource: 'pods',
    verbs: ['get', 'list', 'watch', 'create', 'patch', 'delete'],
    without: 'no instance can run',
  },
  { group: '', resource: 'pods/log', verbs: ['get'], without: 'instances have no logs' },
  { group: '', resource: 'secrets', verbs: ['get'], isOfOurSecret: true, without: 'no pod can be reached' },
  { group: '', resource: 'secrets', verbs: ['create'], without: 'no pod can be reached' },
  { group: '', resource: 'events', verbs: ['list', 'create'], without: 'pools do not say why they wait' },
  {
    group: 'apps',
    resource: 'replicasets',
    verbs: ['list', 'watch', 'create', 'patch', 'delete'],
    without: 'there are no pools',
  },
  {
    group: 'autoscaling',
    resource: 'horizontalpodautoscalers',
    verbs: ['create', 'patch', 'delete'],
    without: 'pools with an autoscaler do not scale',
  },
  { group: 'batch', resource: 'jobs', verbs: ['create', 'delete'], without: 'no job runs here' },
];

/** Right that the account lacks. */
export interface MissingRight {
  readonly resource: string;
  readonly verb: string;
  /** Consequence of the missing right. */
  readonly without: string;
}

/**
 * Returns the rights that the service's account lacks, according to the API server. `secret` is the name of
 * the installation's Secret; null: unknown. Each request takes at most `timeoutMs`. Fails as
 * `KubernetesApi.request` does.
 */
export async function missingRights(
  cluster: Pick<KubernetesApi, 'request' | 'namespace'>,
  secret: string | null,
  timeoutMs: number,
): Promise<readonly MissingRight[]> {
  const asked = RIGHTS.flatMap(({ group, resource, verbs, without, isOfOurSecret }) =>
    verbs.map(async verb => {
      const [plural, subresource] = resource.split('/');
      const named = isOfOurSecret && secret !== null ? { name: secret } : {};
      const resourceAttributes = { namespace: cluster.namespace, group, resource: plural, subresource, verb, ...named };
      const review = await cluster.request<{ status?: { allowed?: boolean } }>('say what this service may do', {
        method: 'POST',
        path: '/apis/authorization.k8s.io/v1/selfsubjectaccessreviews',
        body: { apiVersion: 'authorization.k8s.io/v1', kind: 'SelfSubjectAccessReview', spec: { resourceAttributes } },
        timeoutMs,
      });
      return review.status?.allowed === true ? [] : [{ resource, verb, without }];
    }),
  );
  return (await Promise.all(asked)).flat();
}

const PROBE_MS = 5_000;
/** Resources without which no instance can run. */
const NEEDED: ReadonlySet<string> = new Set(['pods', 'secrets']);

/**
 * Checks that the API server answers and grants the driver's rights. `secret` is the Secret of the
 * installation. Fails with a `ServiceError` that names the missing parts. Returns a sentence for each feature
 * that does not work.
 */
export async function probeCluster(cluster: KubernetesApi, secret: string): Promise<readonly string[]> {
  const missing = await missingRights(cluster, secret, PROBE_MS);
  const fatal = missing.filter(({ resource }) => NEEDED.has(resource));
  if (fatal.length > 0) {
    throw failedPrecondition(
      `the account of the kubeconfig may not, in the namespace ${cluster.namespace}: ${fatal.map(({ verb, resource }) => `${verb} ${resource}`).join(', ')} (the Role of the chart allows it)`,
    );
  }
  return missing.map(({ verb, resource, without }) => `${without}: the account may not ${verb} ${resource}`);
}
