import type { V1Toleration, V1Volume, V1VolumeMount } from '@kubernetes/client-node';
import type { Kind } from '../../core/kind.ts';
import { labelMap, tolerations, volumeMounts, volumes } from '../../core/kubernetes-shapes.ts';
import { ofKind, optionalText, type SettingValues } from '../../core/setting.ts';

/** Name of a cluster object in Kubernetes. */
export const OBJECT_NAME = /^[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?$/;

/**
 * Settings for every pod that is created for its instance. No request has a field for them. Pools have their
 * own.
 */
export const POD_SETTINGS = {
  'pod.nodeSelector': ofKind(labelMap as Kind<Readonly<Record<string, string>>>, {
    ...{ default: {}, type: 'map of texts', shape: 'a map of labels of nodes' },
    doc: 'Labels that a node must have for a pod outside pools. Pools have their own (`node_selector`).',
    example: '{"kubernetes.io/arch": amd64}',
  }),
  'pod.tolerations': ofKind(tolerations as Kind<unknown[]> as Kind<readonly V1Toleration[]>, {
    ...{ default: [], type: 'list of tolerations', shape: 'a list of tolerations as Kubernetes has them' },
    doc: 'Taints that a pod outside pools tolerates. Pools have their own (`tolerations`).',
    example: '[{key: sandboxes, operator: Exists, effect: NoSchedule}]',
  }),
  'pod.runtimeClass': optionalText({
    default: null,
    defaultText: 'that of the cluster',
    pattern: OBJECT_NAME,
    shape: 'the name of a RuntimeClass',
    doc: 'The runtime class of pods outside pools, such as gVisor. Pools have their own (`runtime_class_name`).',
    example: 'gvisor',
  }),
  'pod.volumes': ofKind(volumes as Kind<readonly V1Volume[]>, {
    ...{ default: [], type: 'list of volumes', shape: 'a list of volumes as Kubernetes has them' },
    doc: 'Volumes of every pod outside pools: `persistentVolumeClaim`, `emptyDir`, `ephemeral`, `downwardAPI`, and `hostPath` inside `mounts.allow`. Pools have their own.',
    example: '[{name: models, persistentVolumeClaim: {claimName: models, readOnly: true}}]',
  }),
  'pod.volumeMounts': ofKind(volumeMounts as Kind<readonly V1VolumeMount[]>, {
    ...{ default: [], type: 'list of volume mounts', shape: 'a list of volume mounts as Kubernetes has them' },
    doc: 'The mount paths of `kubernetes.pod.volumes`. A request’s mount at the same path is refused.',
    example: '[{name: models, mountPath: /models, readOnly: true}]',
  }),
} as const;

export type PodSettings = SettingValues<{
  readonly [P in keyof typeof POD_SETTINGS as P extends `pod.${infer Name}` ? Name : never]: (typeof POD_SETTINGS)[P];
}>;
