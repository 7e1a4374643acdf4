import type { MountSpec } from './instance.ts';

/** Directory of a service instance's code inside its sandbox (decisions §6). */
export const CODE_TARGET = '/opt/function/code';

const SHA256 = /^[0-9a-f]{64}$/;
/** The pattern in OpenAPI. */
export const SHA256_PATTERN = SHA256.source;
const SCHEME = 'code://';
export const CODE_URL_SHAPE = `${SCHEME} and the 64 lower-case hexadecimal digits of the SHA-256 of a code package`;

export function isSha256(text: string): boolean {
  return SHA256.test(text);
}

export function codeUrl(sha256: string): string {
  return SCHEME + sha256;
}

/** Returns true if a text names a code package instead of a host path. */
export function isCodeUrl(text: string): boolean {
  return text.startsWith(SCHEME);
}

/** Returns the SHA-256 that a code URL names, or null for any other text. */
export function parseCodeUrl(text: string): string | null {
  const sha256 = isCodeUrl(text) ? text.slice(SCHEME.length) : '';
  return isSha256(sha256) ? sha256 : null;
}

/** Returns the mount of a function's code for an agent that is made from the function. */
export function codeMount(url: string): MountSpec {
  return { source: url, target: CODE_TARGET, readonly: true };
}

/** Separates mounts of code packages from all other mounts. */
export function splitMounts(mounts: readonly MountSpec[]): {
  readonly packages: readonly MountSpec[];
  readonly others: readonly MountSpec[];
} {
  if (!mounts.some(({ source }) => isCodeUrl(source))) return { packages: [], others: mounts };
  return {
    packages: mounts.filter(({ source }) => isCodeUrl(source)),
    others: mounts.filter(({ source }) => !isCodeUrl(source)),
  };
}
