import type { Finding } from './doctor-checks.ts';

/** What was found of a cluster (`Diagnosis` of `sandbox/kubernetes/diagnosis.ts`). */
export interface ClusterFacts {
  readonly server: string;
  readonly namespace: string;
  readonly version: string | { readonly problem: string };
  readonly missingRights: readonly { readonly right: string; readonly without: string }[];
  readonly refusal: string | null;
  readonly reachable: { readonly address: string; readonly problem: string | null } | null;
}

interface Chosen {
  /** Whether instances run there unless they say otherwise: then nothing may be missing. */
  readonly isNeeded: boolean;
  /** The setting `kubernetes.image`; null: the image of this version, by a name without a registry. */
  readonly image: string | null;
}

/** Four rows: the cluster, what the service may do there, whether pods are taken, and whether they are reached. */
export function kubernetesFindings(facts: ClusterFacts, { isNeeded, image }: Chosen): readonly Finding[] {
  const { server, namespace, version, missingRights, refusal, reachable } = facts;
  const bad = isNeeded ? 'fail' : 'warn';
  const cluster = { name: 'cluster', text: `${server}, namespace ${namespace}` };
  if (typeof version !== 'string') return [{ ...cluster, status: bad, notes: [version.problem] }];
  return [
    { name: cluster.name, status: 'ok', text: `Kubernetes ${version} at ${cluster.text}`, notes: [] },
    rightsFinding(missingRights, namespace, bad),
    podsFinding(refusal, image, bad),
    addressesFinding(reachable, bad),
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
