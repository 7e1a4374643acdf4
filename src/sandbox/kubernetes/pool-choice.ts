import type { V1Volume, V1VolumeMount } from '@kubernetes/client-node';
import type { MountSpec, PoolPreference } from '../../core/instance.ts';
import { parseQuantity } from '../../core/kubernetes-formats.ts';
import type { PoolSpec } from '../../core/pool.ts';
import { MEBIBYTE } from '../../core/units.ts';

/** Requirements of an instance for a pool's pod. */
export interface Needs {
  readonly cpuMillis: number;
  readonly memoryMb: number;
  /** `''` accepts any image. */
  readonly imageUrl: string;
  /**
   * Mounts that the pod itself must have. Code, which the driver puts into a pod at the claim, does not
   * count.
   */
  readonly mounts: readonly MountSpec[];
  readonly pool?: PoolPreference;
}

/** Pools in the order of attempts; if there is none, `reason` is a sentence that says why. */
export type Choice =
  | { readonly pools: readonly PoolSpec[]; readonly reason: '' }
  | { readonly pools: readonly []; readonly reason: string };

const DEFAULT_GROUP = 'default';

/**
 * Returns the fitting pools for an instance. If the instance names a pool, only that pool counts. With
 * labels, pools with one of them come first, in the order of the labels, then all others. Otherwise only
 * pools of the group `default` count. Smaller pools come first.
 */
export function choosePools(needs: Needs, pools: readonly PoolSpec[], defaultImage: string): Choice {
  const { id = '', labels = [] } = needs.pool ?? {};
  const misfit = (pool: PoolSpec) => misfitOf(needs, pool, defaultImage);
  if (id !== '') {
    const named = pools.find(pool => pool.id === id);
    const reason = named === undefined ? 'there is no such pool' : misfit(named);
    return named === undefined || reason !== null ? none(`pool ${id} was not used: ${reason}`) : found([named]);
  }
  const candidates = labels.length > 0 ? pools : pools.filter(pool => pool.group === DEFAULT_GROUP);
  const fitting = candidates.filter(pool => canHavePods(pool) && misfit(pool) === null).sort(bySize);
  if (fitting.length > 0) return found(labels.length > 0 ? byLabels(fitting, labels) : fitting);
  const where = labels.length > 0 ? 'there is no pool' : `there is no pool in the group ${DEFAULT_GROUP}`;
  const [first] = candidates.filter(canHavePods).sort(bySize);
  return none(
    first === undefined
      ? `${where} that has pods`
      : `no pool fits it; the smallest, ${first.id}, does not: ${misfit(first)}`,
  );
}

/** Returns the reason why an instance cannot use a pod of a pool, or null. */
export function misfitOf({ cpuMillis, memoryMb, imageUrl, mounts }: Needs, pool: PoolSpec, defaultImage: string) {
  const { cpu, memory } = sizeOf(pool);
  if (cpu < cpuMillis) return `its pods have ${cpu} millicores of CPU, and ${cpuMillis} were asked for`;
  if (memory < memoryMb * MEBIBYTE)
    return `its pods have ${Math.floor(memory / MEBIBYTE)} MiB of memory, and ${memoryMb} were asked for`;
  const image = imageOf(pool, defaultImage);
  if (imageUrl !== '' && imageUrl !== image) return `its pods run the image ${image}, and ${imageUrl} was asked for`;
  const foreign = mounts.find(mount => !hasMount(pool, mount));
  if (foreign !== undefined)
    return `its pods do not have the mount of ${foreign.source} at ${foreign.target}${foreign.readonly ? ' (read-only)' : ''}`;
  return null;
}

export function imageOf(pool: PoolSpec, defaultImage: string): string {
  return pool.image === '' ? defaultImage : pool.image;
}

/** Returns true if the pool adds pods for waiting creates. */
export function grows(pool: PoolSpec): boolean {
  return pool.max_size > pool.size;
}

/** Matches `key`, `key=value`, or the value of any label. */
export function hasLabel(pool: PoolSpec, label: string): boolean {
  const own = pool.labels ?? {};
  const equals = label.indexOf('=');
  if (equals !== -1) {
    const key = label.slice(0, equals);
    return Object.hasOwn(own, key) && own[key] === label.slice(equals + 1);
  }
  return Object.hasOwn(own, label) || Object.values(own).includes(label);
}

/**
 * Returns false for a pool of size 0 that never grows. Instances name such a pool to get a pod of their own.
 */
function canHavePods(pool: PoolSpec): boolean {
  return pool.max_size > 0 || pool.horizontal_pod_autoscaler_spec !== '';
}

function byLabels(pools: readonly PoolSpec[], labels: readonly string[]): PoolSpec[] {
  const preferred = labels.flatMap(label => pools.filter(pool => hasLabel(pool, label)));
  return [...new Set([...preferred, ...pools])];
}

function bySize(a: PoolSpec, b: PoolSpec): number {
  const [left, right] = [sizeOf(a), sizeOf(b)];
  return left.cpu - right.cpu || left.memory - right.memory || (a.id < b.id ? -1 : 1);
}

/** Returns the resources that a pod is guaranteed to have. */
function sizeOf({ resources: { requests } }: PoolSpec): { readonly cpu: number; readonly memory: number } {
  return {
    cpu: Math.round((parseQuantity('cpu', requests.cpu ?? '') ?? 0) * 1000),
    memory: parseQuantity('memory', requests.memory ?? '') ?? 0,
  };
}

function hasMount(pool: PoolSpec, { source, target, readonly }: MountSpec): boolean {
  const volumes = listOf<V1Volume>(pool.volumes).filter(volume => volume.hostPath?.path === source);
  return listOf<V1VolumeMount>(pool.volume_mounts).some(
    mount =>
      mount.mountPath === target &&
      (mount.readOnly ?? false) === readonly &&
      (mount.subPath ?? '') === '' &&
      volumes.some(volume => volume.name === mount.name),
  );
}

/** Parses a JSON field of a pool, which was checked when the pool was created. */
export function listOf<T>(json: string): readonly T[] {
  return json === '' ? [] : (JSON.parse(json) as T[]);
}

function found(pools: readonly PoolSpec[]): Choice {
  return { pools, reason: '' };
}

function none(reason: string): Choice {
  return { pools: [], reason };
}
