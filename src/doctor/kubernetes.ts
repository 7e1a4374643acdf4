import type { Finding } from './checks.ts';

/** Facts about a cluster (`Diagnosis` of `sandbox/kubernetes/diagnosis.ts`). */
export interface ClusterFacts {
  readonly server: string;
  readonly namespace: string;
  readonly version: string | { readonly problem: string };
  readonly missingRights: readonly { readonly right: string; readonly without: string }[];
  readonly refusal: string | null;
  readonly reachable: { readonly address: string; readonly problem: string | null } | null;
}

interface Chosen {
  /** True if instances run in the cluster by default, so that every problem is a failure. */
  readonly isNeeded: boolean;
  /** Setting `kubernetes.image`; null: the image of this version, by a name without a registry. */
  readonly image: string | null;
  /** Tenants that may change pools, and images that pools may name; null: authentication is off. */
  readonly pools: { readonly tenants: readonly string[]; readonly images: readonly string[] } | null;
}

/**
 * Returns five findings: cluster, rights, acceptance of pods, connections to pods, and the permission to
 * change pools.
 */
export function kubernetesFindings(facts: ClusterFacts, { isNeeded, image, pools }: Chosen): readonly Finding[] {
  const { server, namespace, version, missingRights, refusal, reachable } = facts;
  const bad = isNeeded ? 'fail' : 'warn';
  const cluster = { name: 'cluster', text: `${server}, namespace ${namespace}` };
  if (typeof version !== 'string') return [{ ...cluster, status: bad, notes: [version.problem] }];
  return [
    { name: cluster.name, status: 'ok', text: `Kubernetes ${version} at ${cluster.text}`, notes: [] },
    rightsFinding(missingRights, namespace, bad),
    podsFinding(refusal, image, bad),
    addressesFinding(reachable, bad),
    poolsFinding(pools),
  ];
}

function rightsFinding(missing: ClusterFacts['missingRights'], namespace: string, bad: 'fail' | 'warn'): Finding {
  const name = 'cluster rights';
  if (missing.length === 0) return { name, status: 'ok', text: `all that is needed in ${namespace}`, notes: [] };
  const notes = missing.map(({ right, without }) => `It may not ${right}: ${without}.`);
  return {
    name,
    status: bad,
    text: `${missing.length} missing in ${namespace}`,
    notes: [...notes, 'The Role of deploy/chart gives all of them.'],
  };
}

function podsFinding(refusal: string | null, image: string | null, bad: 'fail' | 'warn'): Finding {
  const name = 'cluster pods';
  if (refusal !== null) return { name, status: bad, text: 'a pod of an instance would be refused', notes: [refusal] };
  const text = 'a pod of an instance would be taken';
  if (image !== null) return { name, status: 'ok', text: `${text}; image ${image}`, notes: [] };
  const note =
    'kubernetes.image is not set: every node has to have the image of this version (scripts/image.sh) already.';
  return { name, status: 'warn', text, notes: [note] };
}

function addressesFinding(reachable: ClusterFacts['reachable'], bad: 'fail' | 'warn'): Finding {
  const name = 'cluster addresses';
  if (reachable === null) {
    const note =
      'The service has to reach the addresses of pods, port 8710: from outside of the cluster it needs a route to them.';
    return { name, status: 'ok', text: 'not known: no pod of an instance runs', notes: [note] };
  }
  const { address, problem } = reachable;
  if (problem === null) return { name, status: 'ok', text: `the pod at ${address} is reached`, notes: [] };
  return { name, status: bad, text: `the pod at ${address} is not reached on port 8710`, notes: [problem] };
}

function poolsFinding(pools: Chosen['pools']): Finding {
  const name = 'cluster pools';
  if (pools === null) {
    const note = 'Authentication is off: every caller may create pools, with any image.';
    return { name, status: 'ok', text: 'every caller may change them', notes: [note] };
  }
  const { tenants, images } = pools;
  const notes = [`Images that a pool may name (pools.images): ${images.join(', ')}.`];
  const text = `developers of ${tenants.join(', ')} may change them`;
  if (tenants.length > 0) return { name, status: 'ok', text, notes };
  const none =
    'pools.tenants is empty: name the tenant of the operator there, so that its developers can create pools.';
  return { name, status: 'ok', text: 'no tenant may change them', notes: [none, ...notes] };
}
