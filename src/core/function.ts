import type { Expose } from './address.ts';
import { parseCodeUrl } from './code-package.ts';
import type { DependencyMode } from './dependencies.ts';
import type { JsonObject } from './json.ts';
import type { MountSpec } from './mount.ts';
import type { RequestedSandboxType } from './sandbox-types.ts';
import type { Variables } from './secret.ts';

/**
 * The kinds of functions. `agent` and `faas` can run here; `yrlib` and `custom` are only stored and returned.
 */
export const FUNCTION_KINDS = ['agent', 'faas', 'yrlib', 'custom'] as const;
export type FunctionKind = (typeof FUNCTION_KINDS)[number];

/** The place of the code. `package`: a package that was uploaded to `/api/code`. */
export const STORAGE_TYPES = ['', 'local', 's3', 'copy', 'package'] as const;
export type StorageType = (typeof STORAGE_TYPES)[number];

/**
 * The registration of a caller, under the names of the wire. Fields that were not sent have their defaults.
 */
export interface FunctionSpec {
  readonly name: string;
  readonly kind: FunctionKind;
  readonly runtime: string;
  /** Millicores. */
  readonly cpu: number;
  /** MB. */
  readonly memory: number;
  /** Seconds. */
  readonly timeout: number;
  readonly handler: string;
  readonly environment: Variables;
  readonly description: string;
  readonly storageType: StorageType;
  readonly codePath: string;
  readonly dependencies: DependencyMode;
  readonly s3CodePath: S3CodePath | null;
  readonly extendedHandler: { readonly initializer: string; readonly pre_stop: string };
  /** Seconds. */
  readonly extendedTimeout: { readonly initializer: number; readonly pre_stop: number };
  readonly sandboxType: RequestedSandboxType;
  readonly rootfs: FunctionRootfs | null;
  readonly minInstance: number;
  readonly maxInstance: number;
  readonly concurrentNum: number;
  readonly customResources: Readonly<Record<string, number>> | null;
  readonly tags: Readonly<Record<string, string>> | null;
  readonly layers: readonly unknown[] | null;
  readonly device: JsonObject;
  readonly poolId: string;
  /** Seconds. */
  readonly idleTime: number;
  readonly autoScaleConfig: AutoScaleConfig | null;
  readonly schedulePolicies: readonly unknown[] | null;
  readonly enableSessionCtx: boolean;
  readonly enableAgentSession: boolean;
  readonly isFuncPublic: boolean;
  /** The port with an address of its own. */
  readonly expose: Expose | null;
}

export interface S3CodePath {
  readonly bucketId: string;
  readonly objectId: string;
  readonly bucketUrl: string;
  /** A secret, which no answer contains. */
  readonly token: string;
  readonly sha512: string;
}

export interface FunctionRootfs {
  readonly type: string;
  readonly imageurl: string;
  readonly user: string;
  readonly ports: readonly string[];
  readonly path: string;
  readonly readonly: boolean;
  readonly mounts: readonly MountSpec[];
}

export interface AutoScaleConfig {
  /** Milliseconds; 0: not set. */
  readonly slaQuota: number;
  /** Milliseconds. */
  readonly scaleDownTime: number;
  readonly burstScaleNum: number;
}

/** A stored version of a function. `$latest` can be edited; published versions never change. */
export interface FunctionVersion {
  readonly tenant: string;
  readonly business: string;
  /** `$latest`, or the number under which the version was published. */
  readonly version: string;
  /** The whole URN of this version. */
  readonly urn: string;
  readonly revisionId: string;
  readonly versionDesc: string;
  /** Creation time of the function. */
  readonly createTime: string;
  /** `''` for the latest version. */
  readonly publishTime: string;
  /** `''` until the first update. */
  readonly updateTime: string;
  readonly spec: FunctionSpec;
}

/** Returns the SHA-256 of the code package that a function uses, or null. */
export function codePackageOf({
  storageType,
  codePath,
}: Pick<FunctionSpec, 'storageType' | 'codePath'>): string | null {
  return storageType === 'package' ? parseCodeUrl(codePath) : null;
}

/**
 * Returns the host path whose absence makes a version `unavailable`; `''` when the code is not on this host.
 */
export function hostCodePath(spec: FunctionSpec): string {
  return spec.storageType === 'local' || spec.storageType === 'copy' ? spec.codePath : '';
}
