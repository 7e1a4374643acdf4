import { stat } from 'node:fs/promises';
import type Docker from 'dockerode';
import type { PortMapping, SandboxFacts } from '../../core/instance.ts';
import type { SandboxSpec } from '../driver.ts';
import type { StartedContainer } from './container-starter.ts';
import type { DaemonFacts } from './daemon.ts';
import { ownerWarnings } from './mounts.ts';

/** Returns the facts about the container for the caller of the start. */
export async function factsOf(
  spec: SandboxSpec,
  started: StartedContainer,
  daemon: DaemonFacts,
): Promise<SandboxFacts> {
  const { inspected, mounts, warnings } = started;
  const networks = Object.values(inspected.NetworkSettings.Networks ?? {});
  const uid = await uidOf(inspected.State.Pid);
  const { user, imageUrl } = spec.rootfs;
  return {
    sandboxId: started.id,
    nodeIp: '127.0.0.1',
    sandboxIp: networks.find(network => network.IPAddress !== '')?.IPAddress ?? '',
    portMappings: portMappings(spec, inspected),
    isolation: daemon.isolation,
    warnings: [
      ...daemon.degraded,
      ...warnings,
      ...(uid === null ? [] : ownerWarnings(mounts, user, uid, imageUrl)),
      ...(spec.network === 'none' && spec.ports.length > 0
        ? ['ports are not published: the sandbox has no network']
        : []),
    ],
  };
}

/** Returns the mappings in the order of the request, because the daemon has an order of its own. */
function portMappings({ ports }: SandboxSpec, inspected: Docker.ContainerInspectInfo): readonly PortMapping[] {
  const published: Record<string, readonly { HostIp: string; HostPort: string }[] | null> =
    inspected.NetworkSettings.Ports ?? {};
  return ports.flatMap(({ protocol, port }) =>
    (published[`${port}/${protocol}`] ?? []).map(({ HostIp: hostIp, HostPort: hostPort }) => ({
      protocol,
      containerPort: port,
      hostIp,
      hostPort: Number(hostPort),
    })),
  );
}

/** Returns the host uid of a container's first process, or null when it is not visible. */
async function uidOf(pid: number): Promise<number | null> {
  try {
    return (await stat(`/proc/${pid}`)).uid;
  } catch {
    return null;
  }
}
