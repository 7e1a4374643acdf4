import { createHash } from 'node:crypto';
import type { S3Object } from './s3-source.ts';

/** Location of a function version's code. */
export type CodeSource =
  /** Directory of this host. `orInImage`: if this host has no such directory, the code is in the image. */
  | { readonly storage: 'local'; readonly path: string; readonly orInImage?: boolean }
  | { readonly storage: 'copy'; readonly path: string }
  /** Uploaded package, which agents can mount too. */
  | { readonly storage: 'package'; readonly tenant: string; readonly sha256: string }
  /** Path inside the sandbox that a mount of the function provides. */
  | { readonly storage: 'inside'; readonly path: string }
  | {
      readonly storage: 's3';
      readonly object: S3Object;
      /** Part of the cache key: one download per revision. */
      readonly revision: string;
    };

export type PackageSource = Extract<CodeSource, { readonly storage: 'package' }>;
/** Packages whose files are in one directory. */
export interface LayersSource {
  readonly storage: 'layers';
  readonly tenant: string;
  readonly sha256s: readonly string[];
}
export type CachedSource = Extract<CodeSource, { readonly storage: 's3' | 'package' }> | LayersSource;

/**
 * Returns the cache key. A new revision is a new entry, so an object that was replaced under its name is
 * downloaded again. A package is identified by its content.
 */
export function cacheKey(source: CachedSource): string {
  return createHash('sha256')
    .update(JSON.stringify(partsOf(source)))
    .digest('hex');
}

function partsOf(source: CachedSource): readonly string[] {
  if (source.storage === 'package') return ['package', source.tenant, source.sha256];
  if (source.storage === 'layers') return ['layers', source.tenant, ...source.sha256s];
  const { object, revision } = source;
  return [object.bucketUrl, object.bucketId, object.objectId, object.sha512, object.token, revision];
}
