import type { Expose } from './address.ts';
import { parseCodeUrl } from './code-package.ts';
import type { DependencyMode } from './dependencies.ts';
import type { JsonObject } from './json.ts';
import type { MountSpec } from './mount.ts';
import type { RequestedSandboxType } from './sandbox-types.ts';
import type { Variables } from './secret.ts';

/** `agent` and `faas` can run here; `yrlib` and `custom` are stored and returned. */
export const FUNCTION_KINDS = ['agent', 'faas', 'yrlib', 'custom'] as const;
export type FunctionKind = (typeof FUNCTION_KINDS)[number];

/** Where the code is; `package`: what was uploaded to `/api/code`. */
export const STORAGE_TYPES = ['', 'local', 's3', 'copy', 'package'] as const;
export type StorageType = (typeof STORAGE_TYPES)[number];

/** The registration of a caller, under the names of the wire; every field is there, with its default when it was not sent. */
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
  /** The port that has an address of its own. */
  readonly expose: Expose | null;
}

export interface S3CodePath {
  readonly bucketId: string;
  readonly objectId: string;
  readonly bucketUrl: string;
  /** A secret: it is in no answer. */
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
  /** Milliseconds, 0 = not set. */
  readonly slaQuota: number;
  /** Milliseconds. */
  readonly scaleDownTime: number;
  readonly burstScaleNum: number;
}

/** One version of a function as it is stored. `$latest` is the editable one; published ones never change. */
export interface FunctionVersion {
  readonly tenant: string;
  readonly business: string;
  /** `$latest`, or what it was published as. */
  readonly version: string;
  /** Of the whole URN of this version. */
  readonly urn: string;
  readonly revisionId: string;
  readonly versionDesc: string;
  /** Of the function. */
  readonly createTime: string;
  /** `''` for the latest. */
  readonly publishTime: string;
  /** `''` until it is updated. */
  readonly updateTime: string;
  readonly spec: FunctionSpec;
}

/** The SHA-256 of the code package that it refers to; null when it refers to none. */
export function codePackageOf({
  storageType,
  codePath,
}: Pick<FunctionSpec, 'storageType' | 'codePath'>): string | null {
  return storageType === 'package' ? parseCodeUrl(codePath) : null;
}

/** The host path whose absence makes a version `unavailable`; `''` when its code is not on this host. */
export function hostCodePath(spec: FunctionSpec): string {
  return spec.storageType === 'local' || spec.storageType === 'copy' ? spec.codePath : '';
}
