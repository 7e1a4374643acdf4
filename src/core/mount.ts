import { failedPrecondition, invalidRequest, type ServiceError } from './error.ts';

/** A host directory or file that stands inside the sandbox. */
export interface MountSpec {
  /** Absolute host path. */
  readonly source: string;
  /** Path inside the sandbox; not validated by the specification. */
  readonly target: string;
  readonly readonly: boolean;
}

/** What else is unsafe on this host, beside the fixed list of the specification. Resolved absolute paths. */
export interface MountPolicy {
  /** The server's data directory: it, what is below it, and any parent of it are unsafe. */
  readonly dataDir: string;
  /** The docker socket's resolved path: any parent of it is unsafe (and it itself by its name). */
  readonly dockerSocket: string;
}

/** Forbidden themselves, with everything below them. (`/` is forbidden only itself.) */
const FORBIDDEN_TREES = ['/etc', '/proc', '/sys', '/dev', '/boot'];

/**
 * The rule of the specification on the text as it was sent; no file is looked at.
 * `noun` is `workspace` or `mount source`. Fails with `invalid_request`.
 */
export function checkSourceText(noun: string, path: string): void {
  if (!path.startsWith('/') || path.includes('\0')) {
    throw invalidRequest(`${noun} must be an absolute path: ${path}`);
  }
  if (path.includes('..') || path.includes('docker.sock') || isForbiddenTree(normalize(path))) {
    throw invalidRequest(`unsafe ${noun}: ${path}`);
  }
}

/**
 * The same rule on the resolved path (symlinks followed), with the host's own policy. Used at create and again at
 * mount time. `path` is the text as sent, for the error. Fails with `invalid_request`.
 */
export function checkSourceResolved(noun: string, path: string, resolved: string, policy: MountPolicy): void {
  const unsafe =
    isForbiddenTree(resolved) ||
    resolved.includes('docker.sock') ||
    isWithin(resolved, policy.dataDir) ||
    isWithin(policy.dataDir, resolved) ||
    isWithin(policy.dockerSocket, resolved);
  if (unsafe) throw invalidRequest(`unsafe ${noun}: ${path}`);
}

/**
 * Both rules in order for a workspace and mounts, and that each source exists.
 * `realpath` answers null for a path that does not exist. Fails with `invalid_request` for a bad one and with
 * `failed_precondition` (`mount source does not exist: <p>`) for a missing one.
 */
export async function checkSources(
  workspace: string,
  mounts: readonly MountSpec[],
  policy: MountPolicy,
  realpath: (path: string) => Promise<string | null>,
): Promise<void> {
  const sources = mounts.map(mount => ({ noun: 'mount source', path: mount.source }));
  if (workspace !== '') sources.unshift({ noun: 'workspace', path: workspace });
  for (const { noun, path } of sources) checkSourceText(noun, path);
  let missing: ServiceError | undefined;
  for (const { noun, path } of sources) {
    checkSourceResolved(noun, path, normalize(path), policy);
    const resolved = await realpath(path);
    if (resolved !== null) checkSourceResolved(noun, path, resolved, policy);
    else missing ??= failedPrecondition(`${noun} does not exist: ${path}`);
  }
  if (missing) throw missing;
}

/**
 * A policy as `checkSourceResolved` needs it: `dataDir` and `dockerSocket` with the symlinks above them followed, also
 * when they do not exist (yet).
 */
export async function resolveMountPolicy(
  policy: MountPolicy,
  realpath: (path: string) => Promise<string | null>,
): Promise<MountPolicy> {
  const resolve = async (path: string): Promise<string> => {
    const parts = normalize(path).split('/');
    for (let kept = parts.length; kept > 1; kept--) {
      const resolved = await realpath(parts.slice(0, kept).join('/'));
      if (resolved !== null) return normalize([resolved, ...parts.slice(kept)].join('/'));
    }
    return normalize(path);
  };
  return { dataDir: await resolve(policy.dataDir), dockerSocket: await resolve(policy.dockerSocket) };
}

function isForbiddenTree(path: string): boolean {
  return path === '/' || FORBIDDEN_TREES.some(tree => isWithin(path, tree));
}

/** True when `path` is `tree` or below it. Both absolute and normalized. */
function isWithin(path: string, tree: string): boolean {
  return path === tree || path.startsWith(tree === '/' ? '/' : `${tree}/`);
}

/** `//` and `/./` removed, no trailing slash. `..` never reaches this. */
function normalize(path: string): string {
  return `/${path
    .split('/')
    .filter(part => part !== '' && part !== '.')
    .join('/')}`;
}
