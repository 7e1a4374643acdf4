import type { V1Volume, V1VolumeMount } from '@kubernetes/client-node';
import { failedPrecondition, invalidRequest, ServiceError } from '../../core/error.ts';
import { checkNodePath, type HostPathPolicy } from '../../core/host-path.ts';
import { POD } from './manager.ts';
import { normalOf } from './mounts.ts';
import type { PodSettings } from './pod-settings.ts';

/**
 * Volume sources that pods may use, for volumes of a pool or of the operator. Permitted are directories of
 * the node that the policy allows, claims, and volumes that start empty. Other sources would expose objects
 * of the namespace or the cluster to code. Examples are Secrets, the service's own among them, and tokens of
 * service accounts.
 */
const SOURCES: ReadonlySet<string> = new Set([
  'hostPath',
  'persistentVolumeClaim',
  'emptyDir',
  'ephemeral',
  'downwardAPI',
]);

/** Prefix of the names of this driver's own volumes. */
const OWN_NAME = 'rookery';
const OWN_PLACES = [POD.home, POD.run, POD.secretDir];

/**
 * Returns the reason why these volumes are not permitted, or null. Checks text only, because the paths are
 * those of nodes.
 */
export function refusedVolumes(
  volumes: readonly V1Volume[],
  mounts: readonly V1VolumeMount[],
  policy: HostPathPolicy,
): string | null {
  try {
    for (const volume of volumes) checkVolume(volume, policy);
    const names = new Set(volumes.map(({ name }) => name));
    for (const mount of mounts) checkMount(mount, names);
    return null;
  } catch (error) {
    if (error instanceof ServiceError) return error.message;
    throw error;
  }
}

function checkVolume({ name, ...volume }: V1Volume, policy: HostPathPolicy): void {
  if (name === OWN_NAME || name.startsWith(`${OWN_NAME}-`)) {
    throw invalidRequest(
      `volumes: the name ${name} belongs to the platform: expected one that does not begin with ${OWN_NAME}`,
    );
  }
  const source = Object.keys(volume).find(key => volume[key as keyof typeof volume] != null) ?? '';
  if (!SOURCES.has(source)) {
    throw invalidRequest(
      `volumes: the volume ${name} is a ${source}, which is not given to sandboxes: expected ${[...SOURCES].join(', ')}`,
    );
  }
  if (volume.hostPath != null) checkNodePath('mount source', volume.hostPath.path, policy);
}

/** Checks that a mount uses a named volume. Another volume of the pod contains the installation's secret. */
function checkMount({ name, mountPath }: V1VolumeMount, names: ReadonlySet<string>): void {
  if (!names.has(name)) throw invalidRequest(`volume_mounts: there is no volume ${name} in volumes`);
  if (OWN_PLACES.some(place => mountPath === place || mountPath.startsWith(`${place}/`))) {
    throw invalidRequest(`volume_mounts: ${name} cannot be mounted at ${mountPath}: what runs the code is there`);
  }
}

/** Returns the reason why the pod settings are not permitted, or null. */
export function refusedSettings({ volumes, volumeMounts: mounts }: PodSettings, policy: HostPathPolicy): string | null {
  const refusal = refusedVolumes(volumes, mounts, policy);
  return refusal === null ? null : `kubernetes.pod: ${refusal.replace(/^volume_mounts:/, 'volumeMounts:')}`;
}

/**
 * Returns the part of a template that the settings define. Fails with `failed_precondition` when a volume
 * mount of the settings is at one of `targets`.
 */
export function setPart(
  { nodeSelector, tolerations: borne, runtimeClass, volumes: more, volumeMounts: mounts }: PodSettings,
  targets: readonly string[] = [],
) {
  const taken = mounts.find(({ mountPath }) => targets.includes(normalOf(mountPath)));
  if (taken !== undefined) {
    throw failedPrecondition(
      `mount target ${taken.mountPath} has the volume ${taken.name} of kubernetes.pod.volumeMounts`,
    );
  }
  return {
    ...(Object.keys(nodeSelector).length > 0 && { nodeSelector }),
    ...(runtimeClass !== null && { runtimeClassName: runtimeClass }),
    ...{ tolerations: borne, volumes: more, volumeMounts: mounts },
  };
}
