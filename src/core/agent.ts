import type { InstanceSpec, SandboxType } from './instance.ts';
import type { MountSpec } from './mount.ts';

/**
 * An agent create request after its checks (everything that can be checked without looking at a disk or a registry).
 * `inline` carries the whole spec; `registered` carries what the caller adds to the function version.
 */
export type AgentCreateRequest = {
  readonly tenant: string;
  readonly namespace: string;
  readonly name: string;
  readonly workspace: string;
  readonly envVars: Readonly<Record<string, string>>;
  readonly mounts: readonly MountSpec[];
} & ({ readonly mode: 'inline'; readonly spec: InstanceSpec } | { readonly mode: 'registered'; readonly urn: string });

/** `sandbox_type` of a request → driver; `''` is the default executor of this installation. */
export interface ExecutorDefaults {
  readonly defaultSandboxType: SandboxType;
}
