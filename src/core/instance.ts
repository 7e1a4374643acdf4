import type { Expose } from './address.ts';
import type { DependencyMode } from './dependencies.ts';
import type { MountSpec } from './mount.ts';
import type { PortSpec } from './port.ts';
import type { RestartPolicy } from './restart-policy.ts';
import type { DRIVERS } from './sandbox-types.ts';
import type { Variables } from './secret.ts';

/**
 * The description of an instance, fully resolved: nothing in it is optional or left to a driver. Made from an agent create
 * request (`core/agent.ts`) or from a function version (`registry/functions.ts`).
 */
export interface InstanceSpec {
  readonly tenant: string;
  readonly namespace: string;
  /** Unique in tenant + namespace while the instance lives. */
  readonly name: string;
  /** Which driver: the `sandbox_type` of the request, with the default executor already resolved. */
  readonly sandboxType: SandboxType;
  /** The runtime value as it was sent (`python3.11`, `go`, …). */
  readonly runtime: string;
  /** Code directory inside the sandbox, `''` when none was given. */
  readonly codePath: string;
  /** `module.function`, `''` when none was given. */
  readonly handler: string;
  readonly initializer: string;
  readonly preStop: string;
  readonly rootfs: {
    /** `host`: the host's own files (process, supervisor). `image`: the image (docker, kubernetes). */
    readonly type: 'host' | 'image';
    readonly imageUrl: string;
    /** `''` is root. */
    readonly user: string;
  };
  readonly ports: readonly PortSpec[];
  /** The port that has an address of its own. Absent: none. */
  readonly expose?: Expose;
  readonly cpuMillis: number;
  readonly memoryMb: number;
  /** The variables of the caller and the function; the platform's own names are added by `instances/sandbox-spec.ts`. */
  readonly env: Variables;
  /** Absolute host path, `''` when none: mounted at `/home/<user>`, or `/workspace` without a user. */
  readonly workspace: string;
  readonly mounts: readonly MountSpec[];
  /** Mounts whose sources the platform itself chose: a function's code that it copied or fetched. */
  readonly platformMounts?: readonly MountSpec[];
  /** What is installed for its code. Absent: nothing. */
  readonly dependencies?: DependencyMode;
  /** The session context that its instance is for (function service); absent = none. */
  readonly sessionContext?: string;
  /** The bound of one call, waiting included. */
  readonly callTimeoutMs: number;
  readonly initTimeoutMs: number;
  /** The registered pre_stop time; 0 when none was registered. */
  readonly preStopTimeoutMs: number;
  /** How many calls run at once: 1 for agents. */
  readonly concurrency: number;
  /** What follows when its sandbox ends by itself; absent: nothing. */
  readonly restartPolicy?: RestartPolicy;
  /** Pools of sandboxes to take one from, where there are pools. Absent: any that fits. */
  readonly pool?: PoolPreference;
  /** The function version that it was made from; `''`s in inline mode. */
  readonly functionName: string;
  readonly functionVersion: string;
  readonly functionUrn: string;
}

export type SandboxType = keyof typeof DRIVERS | 'fake';

/** Pools that an instance should be taken from. */
export interface PoolPreference {
  /** This pool or none; `''`: `labels` count. */
  readonly id: string;
  /** Pools with one of these labels, in this order, then any that fits. A label is `key`, `key=value`, or the value of some label. */
  readonly labels: readonly string[];
}

/** The owner of an instance: it asked for it, and hears what becomes of it. */
export type OwnerKind = 'agent' | 'function' | 'job' | 'build';

/** `CREATING → RUNNING → STOPPING → gone`; `RUNNING → FAILED` when the sandbox ends by itself. */
export type InstanceStatus = 'CREATING' | 'RUNNING' | 'STOPPING' | 'FAILED';

/** An instance as everyone but its driver sees it. */
export interface Instance {
  /** UUID, chosen by the service. */
  readonly id: string;
  readonly spec: InstanceSpec;
  readonly status: InstanceStatus;
  /** Why it is FAILED, or, of a RUNNING one, why nobody can tell whether it runs; a sentence. `''` otherwise. */
  readonly statusReason: string;
  /** Why its code could not be loaded, `''` when it could: every call reports it. */
  readonly loadError: string;
  readonly restarts: number;
  /** When it is FAILED and its policy starts it again; 0: it does not. */
  readonly restartAtMs: number;
  readonly createdAtMs: number;
  /** When the sandbox that it has now started; 0 before that. */
  readonly startedAtMs: number;
  readonly nodeId: string;
  readonly sandbox: SandboxFacts;
}

/** A driver's facts about a sandbox that it started; plain JSON, kept with the row. */
export interface SandboxFacts {
  /** The driver's own name of it (a pid, a container id); `''` before it started. */
  readonly sandboxId: string;
  readonly nodeIp: string;
  /** `''` when it shares the host's network. */
  readonly sandboxIp: string;
  readonly portMappings: readonly PortMapping[];
  /** How far it is isolated from the host: one word per layer that holds (`mount`, `pid`, `user`, `cgroup.memory` …). */
  readonly isolation: readonly string[];
  /** Requests that this machine cannot meet, as sentences. */
  readonly warnings: readonly string[];
  /** Where a cluster put it. Absent: on the machine of the service. */
  readonly placement?: Placement;
}

/** A sandbox's place in a cluster. */
export interface Placement {
  /** The cluster's own name of the machine. */
  readonly nodeName: string;
  /** The pool that it was taken from; null: it was made for its instance. */
  readonly poolId: string | null;
  /** Why it was not taken from a pool, a sentence; `''` when it was. */
  readonly whyNoPool: string;
}

/** Where the runtime of an instance listens. */
export type RuntimeEndpoint =
  | { readonly kind: 'unix'; readonly path: string }
  | { readonly kind: 'tcp'; readonly host: string; readonly port: number }
  /** Behind the manager of a pod; `key` (hex) is what both sides prove to know. */
  | { readonly kind: 'pod'; readonly host: string; readonly port: number; readonly key: string };

export interface PortMapping {
  readonly protocol: 'tcp' | 'udp';
  readonly containerPort: number;
  readonly hostIp: string;
  readonly hostPort: number;
}

export const NO_SANDBOX: SandboxFacts = {
  sandboxId: '',
  nodeIp: '',
  sandboxIp: '',
  portMappings: [],
  isolation: [],
  warnings: [],
};
