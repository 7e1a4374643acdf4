import type { MountSpec } from './mount.ts';
import type { PortSpec } from './port.ts';
import type { DRIVERS } from './sandbox-types.ts';

/**
 * What an instance is, fully resolved: nothing in it is optional or left to a driver. Made from an agent create
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
  readonly cpuMillis: number;
  readonly memoryMb: number;
  /** What the caller and the function set; the platform's own names are added by `instances/sandbox-spec.ts`. */
  readonly env: Readonly<Record<string, string>>;
  /** Absolute host path, `''` when none: mounted at `/home/<user>`, or `/workspace` without a user. */
  readonly workspace: string;
  readonly mounts: readonly MountSpec[];
  /** Mounts whose sources the platform itself chose: a function's code that it copied or fetched. */
  readonly platformMounts?: readonly MountSpec[];
  /** The session context that its instance is for (function service); absent = none. */
  readonly sessionContext?: string;
  /** The bound of one call, waiting included. */
  readonly callTimeoutMs: number;
  readonly initTimeoutMs: number;
  /** The registered pre_stop time; 0 when none was registered. */
  readonly preStopTimeoutMs: number;
  /** How many calls run at once: 1 for agents. */
  readonly concurrency: number;
  /** The function version that it was made from; `''`s in inline mode. */
  readonly functionName: string;
  readonly functionVersion: string;
  readonly functionUrn: string;
}

export type SandboxType = keyof typeof DRIVERS | 'fake';

/** What an instance is for: who asked for it, and hears what becomes of it. */
export type OwnerKind = 'agent' | 'function' | 'job' | 'build';

/** `CREATING → RUNNING → STOPPING → gone`; `RUNNING → FAILED` when the sandbox ends by itself. */
export type InstanceStatus = 'CREATING' | 'RUNNING' | 'STOPPING' | 'FAILED';

/** An instance as everyone but its driver sees it. */
export interface Instance {
  /** UUID, chosen by the service. */
  readonly id: string;
  readonly spec: InstanceSpec;
  readonly status: InstanceStatus;
  /** Why it is FAILED, a sentence; `''` otherwise. */
  readonly statusReason: string;
  /** Why its code could not be loaded, `''` when it could: every call reports it. */
  readonly loadError: string;
  readonly restarts: number;
  readonly createdAtMs: number;
  /** When the sandbox that it has now started; 0 before that. */
  readonly startedAtMs: number;
  readonly nodeId: string;
  readonly sandbox: SandboxFacts;
}

/** What a driver tells about a sandbox that it started; plain JSON, kept with the row. */
export interface SandboxFacts {
  /** The driver's own name of it (a pid, a container id); `''` before it started. */
  readonly sandboxId: string;
  readonly nodeIp: string;
  /** `''` when it shares the host's network. */
  readonly sandboxIp: string;
  readonly portMappings: readonly PortMapping[];
  /** How far it is isolated from the host: one word per layer that holds (`mount`, `pid`, `user`, `cgroup.memory` …). */
  readonly isolation: readonly string[];
  /** What was asked for and cannot be done on this machine, as sentences. */
  readonly warnings: readonly string[];
}

/** Where the runtime of an instance listens. */
export type RuntimeEndpoint =
  | { readonly kind: 'unix'; readonly path: string }
  | { readonly kind: 'tcp'; readonly host: string; readonly port: number };

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
