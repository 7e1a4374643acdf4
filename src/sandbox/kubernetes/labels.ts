/** Labels of everything that we make in a cluster: several installations may share a namespace. */
export const LABEL_INSTALLATION = 'rookery.io/installation';
/** Id of a pool: on its ReplicaSet, and on its pods also after they left its selector. */
export const LABEL_POOL = 'rookery.io/pool';
/** `true` while a pod is in the selector of its pool. */
export const LABEL_MEMBER = 'rookery.io/member';
/** Id of the instance that a pod is for. */
export const LABEL_INSTANCE = 'rookery.io/instance';
/** Id of the replica of this service that owns the instance. */
export const LABEL_NODE = 'rookery.io/node';
/** `true`: taken out of its pool, and never claimed again. */
export const LABEL_RETIRED = 'rookery.io/retired';

/** JSON of the `PoolSpec`, on a ReplicaSet. */
export const ANNOTATION_SPEC = 'rookery.io/spec';
/** When a pod was claimed (RFC 3339). */
export const ANNOTATION_CLAIMED_AT = 'rookery.io/claimed-at';
/** A ReplicaSet that shrinks ends the pods with the lowest cost first. */
export const ANNOTATION_DELETION_COST = 'controller.kubernetes.io/pod-deletion-cost';
export const CLAIMED_DELETION_COST = '1000000';

/** The part of the installation's id that names carry. */
export function shortId(installationId: string): string {
  return installationId.replaceAll('-', '').slice(0, 8);
}

export function secretName(installationId: string): string {
  return `rookery-${shortId(installationId)}`;
}

export function replicaSetName(installationId: string, poolId: string): string {
  return `rookery-${shortId(installationId)}-${poolId}`;
}

/** Of a pod that is made for one instance. */
export function ownPodName(instanceId: string): string {
  return `rookery-${instanceId}`;
}

/** That the pod was used and is free since (RFC 3339). */
export const ANNOTATION_RETURNED_AT = 'rookery.io/returned-at';
/** Of which template a pod was made; on a ReplicaSet the present one. */
export const ANNOTATION_TEMPLATE = 'rookery.io/template';
/** Ended before all others. */
export const RETIRED_DELETION_COST = '-1000000';
