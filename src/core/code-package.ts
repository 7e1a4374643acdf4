import type { MountSpec } from './mount.ts';

/** Where the code of a service instance stands inside its sandbox (decisions §6). */
export const CODE_TARGET = '/opt/function/code';

const SHA256 = /^[0-9a-f]{64}$/;
/** How OpenAPI shows it. */
export const SHA256_PATTERN = SHA256.source;
const SCHEME = 'code://';
export const CODE_URL_SHAPE = `${SCHEME} and the 64 lower-case hexadecimal digits of the SHA-256 of a code package`;

export function isSha256(text: string): boolean {
  return SHA256.test(text);
}

export function codeUrl(sha256: string): string {
  return SCHEME + sha256;
}

/** Whether a text means a code package, and no path of the host. */
export function isCodeUrl(text: string): boolean {
  return text.startsWith(SCHEME);
}

/** The SHA-256 that it names; null for what is no such URL. */
export function parseCodeUrl(text: string): string | null {
  const sha256 = isCodeUrl(text) ? text.slice(SCHEME.length) : '';
  return isSha256(sha256) ? sha256 : null;
}

/** What a function's code is mounted as in an agent that is made from it. */
export function codeMount(url: string): MountSpec {
  return { source: url, target: CODE_TARGET, readonly: true };
}

/** The mounts whose sources are code packages, and all others. */
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
