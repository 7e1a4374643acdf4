import type { SandboxFacts } from '../../core/instance.ts';
import type { SandboxSpec } from '../driver.ts';
import type { StartedPod } from './pod-starter.ts';
import { addressOf } from './pod-state.ts';

/** Isolation that every node gives to this driver's containers. */
export const ISOLATION = [
  ...['mount', 'pid', 'ipc', 'uts', 'net', 'seccomp', 'no_new_privs', 'capabilities'],
  ...['cgroup.memory', 'cgroup.cpu'],
];

/** Returns what the caller of a start learns about the pod. */
export function factsOf(spec: SandboxSpec, { pod, started, poolId, whyNoPool }: StartedPod): SandboxFacts {
  const podIp = addressOf(pod);
  return {
    sandboxId: pod.metadata?.name ?? '',
    nodeIp: pod.status?.hostIP ?? '',
    sandboxIp: podIp,
    // The network of a cluster is flat, so ports are reached at the pod's own address.
    portMappings: spec.ports.map(({ protocol, port }) => ({
      protocol,
      containerPort: port,
      hostIp: podIp,
      hostPort: port,
    })),
    isolation: ISOLATION,
    warnings: [...started.warnings, ...(poolId === null ? [`it has a pod of its own: ${whyNoPool}`] : [])],
    placement: { nodeName: pod.spec?.nodeName ?? '', poolId, whyNoPool },
  };
}
