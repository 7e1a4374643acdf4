import { failedPrecondition } from '../../core/error.ts';
import type { HostPathPolicy } from '../../core/host-path.ts';
import { normalOf } from './mounts.ts';
import type { PodSettings } from './pod-settings.ts';
import { refusedVolumes } from './pool-volumes.ts';

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
