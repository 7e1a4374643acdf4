import { posix } from 'node:path';
import type { V1Volume, V1VolumeMount } from '@kubernetes/client-node';
import { failedPrecondition, messageOf } from '../../core/error.ts';
import { checkHostPath, type FoundPath, type HostPathPolicy } from '../../core/host-path.ts';
import type { MountSpec } from '../../core/instance.ts';
import { findPath } from '../../lib/opened-path.ts';
import { POD } from './manager.ts';

const CLOSED_TARGETS = ['/proc', '/sys', '/dev', POD.home, POD.run];
/** Part of /dev that may be mounted over. */
const SHARED_MEMORY = '/dev/shm';

/**
 * Converts the spec's mounts to directories of the node. Checks each path and its prefix as text, because the
 * path is the node's and this process does not see the node's links. If this machine has the path too, the
 * policy also applies to its resolved path. This machine may be a node or share its directories. Fails with
 * `failed_precondition`.
 */
export async function hostPathVolumes(
  mounts: readonly MountSpec[],
  policy: HostPathPolicy,
  typeOf: (source: string) => 'Directory' | 'File',
): Promise<{ readonly volumes: readonly V1Volume[]; readonly volumeMounts: readonly V1VolumeMount[] }> {
  const volumes: V1Volume[] = [];
  const volumeMounts: V1VolumeMount[] = [];
  for (const [index, { source, target, readonly }] of mounts.entries()) {
    checkTarget(target);
    try {
      await checkHostPath('mount source', source, policy, asOnNode);
    } catch (error) {
      throw failedPrecondition(messageOf(error), { cause: error });
    }
    // Volumes of the operator cannot have such a name.
    const name = `rookery-mount-${index}`;
    volumes.push({ name, hostPath: { path: source, type: typeOf(source) } });
    volumeMounts.push({ name, mountPath: normalOf(target), ...(readonly && { readOnly: true }) });
  }
  return { volumes, volumeMounts };
}

async function asOnNode(path: string): Promise<FoundPath> {
  return (await findPath(path)) ?? { resolved: path, kind: 'directory' };
}

/** Fails with `failed_precondition` for a target that would hide directories that the pod needs. */
export function checkTarget(target: string): void {
  const normal = normalOf(target);
  if (normal === '/') throw failedPrecondition(`mount target must be a path below /: ${target}`);
  const isIn = (path: string) => normal === path || normal.startsWith(`${path}/`);
  const tree = CLOSED_TARGETS.find(isIn);
  if (tree !== undefined && !isIn(SHARED_MEMORY))
    throw failedPrecondition(`mount target ${target} is in ${tree}, which the sandbox needs`);
  // Kubernetes refuses mount paths with a colon.
  if (normal.includes(':'))
    throw failedPrecondition(`mount target ${target} has a colon, which Kubernetes does not take`);
}

export function normalOf(target: string): string {
  return posix.normalize(`/${target}`).replace(/(.)\/$/, '$1');
}
