import { DOCKER } from '../sandbox/docker/definition.ts';
import { KUBERNETES } from '../sandbox/kubernetes/definition.ts';
import { PROCESS } from '../sandbox/process/definition.ts';
import { SUPERVISOR } from '../sandbox/supervisor/definition.ts';

/**
 * The drivers. A new one is a folder in `sandbox/` and a row here: the values of `sandbox_type`, the checks of requests, the settings,
 * `doctor` and the documents come from it. This file alone reaches out of `core/`; a `definition.ts` has nothing but words and settings in it.
 */
export const DRIVERS = {
  process: PROCESS,
  docker: DOCKER,
  supervisor: SUPERVISOR,
  kubernetes: KUBERNETES,
} as const;

type Named = Exclude<keyof typeof DRIVERS, 'process'>;
/** The value in a request: `''` is the default executor. */
export type RequestedSandboxType = '' | Named;
type Installed = {
  [D in keyof typeof DRIVERS]: (typeof DRIVERS)[D]['create'] extends null ? never : D;
}[keyof typeof DRIVERS];

type OfClusters = {
  [D in keyof typeof DRIVERS]: (typeof DRIVERS)[D] extends { readonly isCluster: true } ? D : never;
}[keyof typeof DRIVERS];

const ALL = Object.keys(DRIVERS) as (keyof typeof DRIVERS)[];

/** Values of `sandbox_type`. The process sandbox has no name of its own there: a host's default executor is one by `''`. */
export const SANDBOX_TYPES = ALL.filter(type => type !== 'process') as readonly Named[];

/** Those that this installation can make. */
export const INSTALLED_SANDBOX_TYPES = ALL.filter(type => DRIVERS[type].create !== null) as readonly Installed[];

const OF_IMAGES: ReadonlySet<string> = new Set(ALL.filter(type => DRIVERS[type].rootfs === 'image'));

/** Those whose sandboxes are on machines of a cluster: they live on when the machine of the service is lost. */
export const CLUSTER_SANDBOX_TYPES = ALL.filter(type => 'isCluster' in DRIVERS[type]) as readonly OfClusters[];

/** Whether its sandboxes are on machines of a cluster; else on that of the service. */
export function runsInCluster(sandboxType: string): boolean {
  return (CLUSTER_SANDBOX_TYPES as readonly string[]).includes(sandboxType);
}

/** Whether its sandboxes run an image; else they run on the files of the host. */
export function runsImages(sandboxType: string): boolean {
  return OF_IMAGES.has(sandboxType);
}
