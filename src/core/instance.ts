import type { Expose } from './address.ts';
import type { DependencyMode } from './dependencies.ts';
import type { Durable } from './durable.ts';
import { invalidRequest } from './error.ts';
import type { HttpProfileName } from './http-profiles.ts';
import type { RestartPolicy } from './restart-policy.ts';
import type { DriverName } from './sandbox-types.ts';
import type { Variables } from './secret.ts';
import type { BuiltTemplate } from './template.ts';

/**
 * The fully resolved description of an instance, which leaves nothing to a driver. `core/agent.ts` makes one
 * from an agent create request, `registry/functions.ts` from a function version.
 */
export interface InstanceSpec {
  readonly tenant: string;
  readonly namespace: string;
  /** Unique in tenant and namespace while the instance exists. */
  readonly name: string;
  /** The driver: `sandbox_type` of the request, with the default executor already resolved. */
  readonly sandboxType: SandboxType;
  /** The runtime value as sent (`python3.11`, `go`, …). */
  readonly runtime: string;
  /** Contract of the server of runtime `http`. Absent: `http`. */
  readonly httpProfile?: HttpProfileName;
  /** Code directory inside the sandbox; `''`: none was given. */
  readonly codePath: string;
  /** `module.function`; `''`: none was given. */
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
  /** The template of a sandbox that is made without code, such as `base`. Absent: none. */
  readonly template?: string;
  /** Settings of a template that the tenant has built; its files are one of the mounts. Absent: none. */
  readonly built?: BuiltTemplate;
  readonly ports: readonly PortSpec[];
  /** The port with an address of its own. Absent: none. */
  readonly expose?: Expose;
  readonly cpuMillis: number;
  readonly memoryMb: number;
  /** Variables of the caller and the function. `instances/sandbox-spec.ts` adds the platform's own names. */
  readonly env: Variables;
  /** Absolute host path; `''`: none. Mounted at `/home/<user>`, or at `/workspace` without a user. */
  readonly workspace: string;
  readonly mounts: readonly MountSpec[];
  /** Mounts whose sources the platform itself chose: a function's code that the service copied or fetched. */
  readonly platformMounts?: readonly MountSpec[];
  /** Dependencies to install for the code. Absent: none. */
  readonly dependencies?: DependencyMode;
  /** The session context that the instance serves (function service). Absent: none. */
  readonly sessionContext?: string;
  /** Longest duration of a call, waiting included. */
  readonly callTimeoutMs: number;
  readonly initTimeoutMs: number;
  /** The registered pre_stop time; 0: none was registered. */
  readonly preStopTimeoutMs: number;
  /** Calls that run at the same time: 1 for agents. */
  readonly concurrency: number;
  /** Reaction when the sandbox exits on its own. Absent: none. */
  readonly restartPolicy?: RestartPolicy;
  /** Labels by which lists select agents. Absent: none. */
  readonly labels?: Labels;
  /** Time to live from the first start, as created. Absent: no end. `Instance.expiresAtMs` is in force. */
  readonly ttlMs?: number;
  /** Longest time without use. Absent: no bound. */
  readonly idleMs?: number;
  /** Action at the end of either time. Absent: `delete`. */
  readonly onExpiry?: OnExpiry;
  /** True if a request to one of its ports resumes the agent while it is PAUSED. */
  readonly resumeOnTraffic?: boolean;
  /** True if requests to its ports by the E2B protocol need the sandbox's traffic token. */
  readonly hasPrivatePorts?: boolean;
  /** The agent's state is saved before a call is answered. Absent: it has none. */
  readonly durable?: Durable;
  /** Settings that the next start of a durable agent takes. Absent: no change waits. */
  readonly next?: InstanceSpec;
  /** Pools of sandboxes to prefer, where pools exist. Absent: any pool that fits. */
  readonly pool?: PoolPreference;
  /** The function version that the instance was made from; three times `''` in inline mode. */
  readonly functionName: string;
  readonly functionVersion: string;
  readonly functionUrn: string;
}

/** Names and values that a client attaches to an agent. */
export type Labels = Readonly<Record<string, string>>;

/** The end of an agent whose time is over. */
export type OnExpiry = 'delete' | 'pause';

export type SandboxType = DriverName | 'fake';

/** Pools to take an instance from. */
export interface PoolPreference {
  /** The only allowed pool; `''`: `labels` decide. */
  readonly id: string;
  /**
   * Labels of preferred pools, in this order; after them any pool that fits. A label is `key`, `key=value`,
   * or the value of some label.
   */
  readonly labels: readonly string[];
}

/** The owner of an instance, which requests it and is notified when it changes. */
export type OwnerKind = 'agent' | 'function' | 'job' | 'build';

/**
 * States: `CREATING → RUNNING → STOPPING → removed`, or `RUNNING → FAILED` when the sandbox
 * exits on its own. `PAUSED`: the sandbox exists, and none of its processes runs until the resume.
 * `SLEEPING`: a durable agent has no sandbox, and its next use starts one with the saved state.
 */
export type InstanceStatus = 'CREATING' | 'RUNNING' | 'PAUSED' | 'SLEEPING' | 'STOPPING' | 'FAILED';

/** An instance as all components except its driver see it. */
export interface Instance {
  /** UUID that the service chose. */
  readonly id: string;
  readonly spec: InstanceSpec;
  readonly status: InstanceStatus;
  /** A sentence: the reason for FAILED, or why the state of a RUNNING instance is unknown. `''` otherwise. */
  readonly statusReason: string;
  /** Reason why the code could not be loaded, which every call reports. `''`: the code was loaded. */
  readonly loadError: string;
  /** Number of restarts, without the starts that ended a sleep. */
  readonly restarts: number;
  /** Number of starts that ended a sleep. Absent: none. */
  readonly wakes?: number;
  /** Time of the next start by the policy of a FAILED instance; 0: none. */
  readonly restartAtMs: number;
  readonly createdAtMs: number;
  /** Start of the current sandbox; 0 before that. */
  readonly startedAtMs: number;
  readonly nodeId: string;
  readonly labels: Labels;
  /** Time of the action `onExpiry`; 0: never. Has no effect while the instance is PAUSED. */
  readonly expiresAtMs: number;
  readonly onExpiry: OnExpiry;
  /** Start of the pause; 0: the instance is not PAUSED. */
  readonly pausedAtMs: number;
  /** Start of the sleep. Absent: the instance is not SLEEPING. */
  readonly sleptAtMs?: number;
  /** The saved state. Absent: the agent is not durable, or the instance was not read from storage. */
  readonly savedState?: SavedState;
  readonly sandbox: SandboxFacts;
}

/** Facts about the saved state of a durable agent. */
export interface SavedState {
  /** Number of saves. */
  readonly version: number;
  /** Size of its JSON. */
  readonly bytes: number;
  /** 0: nothing was saved. */
  readonly savedAtMs: number;
  /** Time of the next delivery of an alarm. Absent: there is none. */
  readonly nextAlarmAtMs?: number;
}

/** A driver's facts about a sandbox that it started. Plain JSON, stored with the record. */
export interface SandboxFacts {
  /** The driver's own name for the sandbox (a pid, a container id); `''` before the start. */
  readonly sandboxId: string;
  readonly nodeIp: string;
  /** `''` when the sandbox shares the host's network. */
  readonly sandboxIp: string;
  readonly portMappings: readonly PortMapping[];
  /**
   * Isolation from the host: one word for each layer that is active (`mount`, `pid`, `user`, `cgroup.memory`
   * …).
   */
  readonly isolation: readonly string[];
  /** Requests that this machine cannot meet, as sentences. */
  readonly warnings: readonly string[];
  /** Machine and pool that a cluster chose. Absent: the machine of the service. */
  readonly placement?: Placement;
}

/** A sandbox's place in a cluster. */
export interface Placement {
  /** The cluster's own name for the machine. */
  readonly nodeName: string;
  /** The pool that supplied the sandbox. Null: the sandbox was made for its instance. */
  readonly poolId: string | null;
  /** A sentence that says why no pool supplied the sandbox; `''` if a pool did. */
  readonly whyNoPool: string;
}

/** The address where the runtime of an instance listens. */
export type RuntimeEndpoint =
  | { readonly kind: 'unix'; readonly path: string }
  | { readonly kind: 'tcp'; readonly host: string; readonly port: number }
  /** Behind the manager of a pod. Both sides prove that they know `key` (hex). */
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

/** A host directory or file that appears inside the sandbox. */
export interface MountSpec {
  /** Absolute host path. */
  readonly source: string;
  /** Path inside the sandbox. The specification does not validate it. */
  readonly target: string;
  readonly readonly: boolean;
}

/** A port on which the code listens inside the sandbox. The system allocates the host's port. */
export interface PortSpec {
  readonly protocol: 'tcp' | 'udp';
  readonly port: number;
}

/** OpenAPI schemas of a list of port items and of a single item. */
export const PORTS_SCHEMA = { uniqueItems: true } as const;
export const PORT_SCHEMA = {
  pattern: '^((tcp|udp):)?([1-9][0-9]{0,3}|[1-5][0-9]{4}|6[0-4][0-9]{3}|65[0-4][0-9]{2}|655[0-2][0-9]|6553[0-5])$',
  description: '`[<proto>:]<port>`',
} as const;

const PORT_ITEM = /^(?:(tcp|udp):)?([1-9][0-9]{0,4})$/;

/**
 * Reads port items `[<proto>:]<port>`: `tcp` (default) or `udp`, 1 to 65535, no duplicates. `field` is the
 * path of the list in the request, for the error. Fails with `invalid_request`.
 */
export function parsePorts(items: readonly string[], field: string): PortSpec[] {
  const seen = new Set<string>();
  return items.map((item, index) => {
    const match = PORT_ITEM.exec(item);
    const port = Number(match?.[2]);
    if (!match || port > 65_535) {
      throw invalidRequest(
        `invalid request body: ${field}[${index}] must be [tcp:|udp:]<port> with a port from 1 to 65535, got "${item}"`,
      );
    }
    const protocol = match[1] === 'udp' ? 'udp' : 'tcp';
    const text = formatPort({ protocol, port });
    if (seen.has(text)) throw invalidRequest(`invalid request body: ${field}[${index}] repeats ${text}`);
    seen.add(text);
    return { protocol, port };
  });
}

/** Returns a port as `tcp:22`. */
export function formatPort(port: PortSpec): string {
  return `${port.protocol}:${port.port}`;
}
