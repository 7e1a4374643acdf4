import type { CodeSource } from '../code/code-source.ts';
import type { Expose } from '../core/address.ts';
import type { DependencyMode } from '../core/dependencies.ts';
import type { HttpProfileName } from '../core/http-profiles.ts';
import type { MountSpec, PortSpec, SandboxType } from '../core/instance.ts';
import type { JsonObject } from '../core/json.ts';
import type { Variables } from '../core/secret.ts';
import type { ScalingPolicy } from './policy.ts';

/** Definition of a function version: all that its instances and calls need. */
export interface FunctionDefinition {
  /** The functionVersionUrn. */
  readonly urn: string;
  readonly tenant: string;
  readonly name: string;
  readonly version: string;
  /** Revision of the version. Instances of another revision take no calls of this one. */
  readonly revisionId: string;
  readonly sandboxType: SandboxType;
  readonly runtime: string;
  /** Absent: `http`. */
  readonly httpProfile?: HttpProfileName;
  readonly handler: string;
  readonly initializer: string;
  readonly preStop: string;
  readonly code: CodeSource;
  readonly dependencies?: DependencyMode;
  /** SHA-256 of the code packages that are its layers for AWS Lambda. Absent: none. */
  readonly lambdaLayers?: readonly string[];
  readonly rootfs: { readonly type: 'host' | 'image'; readonly imageUrl: string; readonly user: string };
  readonly ports: readonly PortSpec[];
  readonly mounts: readonly MountSpec[];
  readonly environment: Variables;
  readonly cpuMillis: number;
  readonly memoryMb: number;
  /** Canonical JSON of its custom resources; `''` for none. */
  readonly customResources: string;
  readonly timeoutMs: number;
  readonly initTimeoutMs: number;
  readonly preStopTimeoutMs: number;
  /** Port that has an address. Absent: no port has one. */
  readonly expose?: Expose;
  /** The JSON Schema that every event must fit. Absent: events are not checked. */
  readonly inputSchema?: JsonObject;
  readonly usesSessionContext: boolean;
  /** Pool from which its instances are taken. `''`: any pool that fits. */
  readonly poolId: string;
  /**
   * Scaling rules without `labels`. The reservations define the labels, and they change without a new
   * revision.
   */
  readonly scaling: Omit<ScalingPolicy, 'labels'>;
}

/** Part of the registry that the calls of functions read. */
export interface FunctionCatalog {
  /**
   * Returns the version that a URN names, or null when none exists or the text names no version. Fails with
   * `failed_precondition` (200400) for a kind that cannot be invoked.
   */
  find(urn: string): Promise<FunctionDefinition | null>;
  /** Returns the reserved instances of a version: label → bounds over all clusters. */
  labels(urn: string): Promise<ReadonlyMap<string, { readonly min: number; readonly max: number }>>;
  /**
   * Returns the versions that keep instances without a call, because of a minimum or a reservation with one.
   * `functionUrn` limits them to one function; null: all functions.
   */
  warm(functionUrn: string | null): Promise<readonly string[]>;
  /**
   * Calls `listener` after a function was registered, changed or deleted. The first argument is its
   * functionUrn without a version; null: any function may have changed. With `mayBeWarm` false, `warm` would
   * return no version of the function.
   */
  onChange(listener: (functionUrn: string | null, mayBeWarm: boolean) => void): () => void;
}
