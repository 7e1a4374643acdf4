import type { Cluster } from './cluster.ts';

/** What this part asks of the API server, in one namespace: the Role of `deploy/chart` gives this and no more, and `rookery doctor` tries each. */
export const RIGHTS: readonly {
  readonly group: string;
  readonly resource: string;
  readonly verbs: readonly string[];
  /** What does not work without it. */
  readonly without: string;
}[] = [
  {
    group: '',
    resource: 'pods',
    verbs: ['get', 'list', 'watch', 'create', 'patch', 'delete'],
    without: 'no instance can run',
  },
  { group: '', resource: 'pods/log', verbs: ['get'], without: 'instances have no logs' },
  { group: '', resource: 'secrets', verbs: ['get', 'create'], without: 'no pod can be reached' },
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

/** One that the account lacks. */
export interface MissingRight {
  readonly resource: string;
  readonly verb: string;
  /** What does not work. */
  readonly without: string;
}

/** What the account of the service may not do, as the API server says. Each question takes `timeoutMs` at most. Fails as `Cluster.request` does. */
export async function missingRights(
  cluster: Pick<Cluster, 'request' | 'namespace'>,
  timeoutMs: number,
): Promise<readonly MissingRight[]> {
  const asked = RIGHTS.flatMap(({ group, resource, verbs, without }) =>
    verbs.map(async verb => {
      const [plural, subresource] = resource.split('/');
      const resourceAttributes = { namespace: cluster.namespace, group, resource: plural, subresource, verb };
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
