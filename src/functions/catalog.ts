import type { Expose } from '../core/address.ts';
import type { DependencyMode } from '../core/dependencies.ts';
import type { SandboxType } from '../core/instance.ts';
import type { MountSpec } from '../core/mount.ts';
import type { PortSpec } from '../core/port.ts';
import type { Variables } from '../core/secret.ts';
import type { CodeSource } from './code/code-store.ts';
import type { ServicePolicy } from './policy.ts';

/** One version of a function as the function service runs it. */
export interface ServedFunction {
  /** The functionVersionUrn. */
  readonly urn: string;
  readonly tenant: string;
  readonly name: string;
  readonly version: string;
  /** Instances of another revision never take a call of this one. */
  readonly revisionId: string;
  readonly sandboxType: SandboxType;
  readonly runtime: string;
  readonly handler: string;
  readonly initializer: string;
  readonly preStop: string;
  readonly code: CodeSource;
  readonly dependencies?: DependencyMode;
  readonly rootfs: { readonly type: 'host' | 'image'; readonly imageUrl: string; readonly user: string };
  readonly ports: readonly PortSpec[];
  readonly mounts: readonly MountSpec[];
  readonly environment: Variables;
  readonly cpuMillis: number;
  readonly memoryMb: number;
  /** Canonical JSON of its custom resources, `''` when none. */
  readonly customResources: string;
  readonly timeoutMs: number;
  readonly initTimeoutMs: number;
  readonly preStopTimeoutMs: number;
  /** The port that has an address. Absent: none. */
  readonly expose?: Expose;
  readonly usesSessionContext: boolean;
  /** The pool that its instances are taken from; `''`: any that fits. */
  readonly poolId: string;
  /** Without `labels`: those are the reservations', which change without a new revision. */
  readonly scaling: Omit<ServicePolicy, 'labels'>;
}

/** The registry as far as the function service needs it. */
export interface FunctionCatalog {
  /**
   * The version that a URN names, null when there is none (also for a text that is no version of a function).
   * Fails with `failed_precondition` (200400) for one of a kind that cannot be invoked.
   */
  find(urn: string): Promise<ServedFunction | null>;
  /** Reserved instances of a version: label → bounds over all clusters. */
  labels(urn: string): Promise<ReadonlyMap<string, { readonly min: number; readonly max: number }>>;
  /** Every version (of one function; null: of all) that has instances without a call: a minimum, or a reservation with one. */
  warm(functionUrn: string | null): Promise<readonly string[]>;
  /**
   * Tells the functionUrn (without a version) of every function that was registered, changed or deleted, after the fact; null: any may have
   * been. With `mayBeWarm` false, `warm` would answer nothing of it.
   */
  onChange(listener: (functionUrn: string | null, mayBeWarm: boolean) => void): () => void;
}
