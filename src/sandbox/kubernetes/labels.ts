/** Label of all objects of an installation. Several installations may share a namespace. */
export const LABEL_INSTALLATION = 'rookery.io/installation';
/** Id of a pool: on its ReplicaSet and on its pods, also after they left its selector. */
export const LABEL_POOL = 'rookery.io/pool';
/** `true` while the selector of its pool includes a pod. */
export const LABEL_MEMBER = 'rookery.io/member';
/** Id of the instance in a pod. */
export const LABEL_INSTANCE = 'rookery.io/instance';
/** Id of the replica of this service that owns the instance. */
export const LABEL_NODE = 'rookery.io/node';
/** `true`: the pod was taken out of its pool and is never claimed again. */
export const LABEL_RETIRED = 'rookery.io/retired';

/** JSON of the `PoolSpec`, on a ReplicaSet. */
export const ANNOTATION_SPEC = 'rookery.io/spec';
/** Time of a pod's claim (RFC 3339). */
export const ANNOTATION_CLAIMED_AT = 'rookery.io/claimed-at';
/** Deletion cost: a ReplicaSet that shrinks deletes the pods with the lowest cost first. */
export const ANNOTATION_DELETION_COST = 'controller.kubernetes.io/pod-deletion-cost';
export const CLAIMED_DELETION_COST = '1000000';

/** Returns the part of the installation's id that object names contain. */
export function shortId(installationId: string): string {
  return installationId.replaceAll('-', '').slice(0, 8);
}

/** Returns the default name of the installation's Secret. */
export function secretName(installationId: string): string {
  return `rookery-${shortId(installationId)}`;
}

export function replicaSetName(installationId: string, poolId: string): string {
  return `rookery-${shortId(installationId)}-${poolId}`;
}

/** Returns the name of a pod that is created for one instance. */
export function ownPodName(instanceId: string): string {
  return `rookery-${instanceId}`;
}

/** Time since which a used pod is free again (RFC 3339). */
export const ANNOTATION_RETURNED_AT = 'rookery.io/returned-at';
/** Hash of the template from which a pod was created; on a ReplicaSet the current template's. */
export const ANNOTATION_TEMPLATE = 'rookery.io/template';
/** Deletion cost of retired pods, which are deleted before all others. */
export const RETIRED_DELETION_COST = '-1000000';
