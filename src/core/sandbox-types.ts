/** Facts about a driver that the rules of requests need. */
interface DriverTraits {
  /** The files that sandboxes use: those of the service's host, or an image that the request names. */
  readonly rootfs: 'host' | 'image';
  /**
   * True if sandboxes run on machines of a cluster.
   * - Mounts then refer to those machines, and the service transfers code to them.
   * - Pools may keep sandboxes ready.
   * - Another replica adopts the sandboxes when the machine of the service fails.
   */
  readonly isCluster: boolean;
  /** True if sandboxes without code are made from images, with accounts of their own. */
  readonly hasImageSandboxes?: true;
  /** True if a start takes milliseconds, so that a create starts the sandbox before its record is durable. */
  readonly isCheap: boolean;
}

/**
 * The drivers by the names that records carry, in the order of their settings. `sandbox/definitions.ts`
 * defines each driver; the compiler compares both tables. A new driver needs an entry in each table and a
 * folder in `sandbox/`.
 */
export const SANDBOX_FACTS = {
  process: { rootfs: 'host', isCluster: false, isCheap: true },
  docker: { rootfs: 'image', isCluster: false, isCheap: false, hasImageSandboxes: true },
  supervisor: { rootfs: 'host', isCluster: false, isCheap: true },
  kubernetes: { rootfs: 'image', isCluster: true, isCheap: false },
} as const satisfies Readonly<Record<string, DriverTraits>>;

/** The name of a driver. */
export type DriverName = keyof typeof SANDBOX_FACTS;
type Named = Exclude<DriverName, 'process'>;
/** The value of `sandbox_type` in a request; `''` is the default executor. */
export type RequestedSandboxType = '' | Named;
type ClusterDriver = {
  [D in DriverName]: (typeof SANDBOX_FACTS)[D] extends { readonly isCluster: true } ? D : never;
}[DriverName];

/** The names of all drivers. */
export const DRIVER_NAMES = Object.keys(SANDBOX_FACTS) as readonly DriverName[];

/** Values of `sandbox_type`. The process sandbox has no value: on a host, `''` selects it. */
export const SANDBOX_TYPES = DRIVER_NAMES.filter(name => name !== 'process') as readonly Named[];

/** Drivers whose sandboxes run on machines of a cluster and outlive the machine of the service. */
export const CLUSTER_SANDBOX_TYPES = DRIVER_NAMES.filter(
  name => SANDBOX_FACTS[name].isCluster,
) as readonly ClusterDriver[];

/** Drivers whose sandboxes start in milliseconds. */
export const CHEAP_SANDBOX_TYPES: readonly DriverName[] = DRIVER_NAMES.filter(name => SANDBOX_FACTS[name].isCheap);

/** The driver that makes sandboxes without code from images. */
export const IMAGE_SANDBOX_TYPE = 'docker' satisfies {
  [D in DriverName]: (typeof SANDBOX_FACTS)[D] extends { readonly hasImageSandboxes: true } ? D : never;
}[DriverName];

/**
 * Returns true if sandboxes of this type run in a cluster instead of on the machine of the service.
 */
export function runsInCluster(sandboxType: string): boolean {
  return (CLUSTER_SANDBOX_TYPES as readonly string[]).includes(sandboxType);
}

/** Returns true if sandboxes of this type run an image instead of the files of the host. */
export function runsImages(sandboxType: string): boolean {
  return DRIVER_NAMES.some(name => name === sandboxType && SANDBOX_FACTS[name].rootfs === 'image');
}
