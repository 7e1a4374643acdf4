import { failedPrecondition, invalidRequest, type ServiceError } from './error.ts';
import type { MountSpec } from './instance.ts';
import { LIMITS } from './limits.ts';

/**
 * Restricts the host paths that a caller may name, in addition to the fixed list of the specification. The
 * policy covers mount sources, workspaces, code paths and files of jobs. Paths are resolved and absolute.
 */
export interface HostPathPolicy {
  /**
   * Unsafe paths. Everything below them is unsafe, and so is every parent, because access to a parent
   * includes the path.
   */
  readonly closed: readonly string[];
  /** The only allowed trees (setting `mounts.allow`). Null: everything that is not unsafe. */
  readonly allow: readonly string[] | null;
}

/** The file or directory at a path, after following links. */
export interface FoundPath {
  /** The path without any link. */
  readonly resolved: string;
  readonly kind: 'file' | 'directory' | 'other';
  /** Closes the file, if `find` keeps it open. */
  close?(): Promise<void>;
}

/** Finds a path. Returns null for a path that does not exist. */
export type FindPath<F extends FoundPath = FoundPath> = (path: string) => Promise<F | null>;

/** Directories that are forbidden with everything below them. `/` is forbidden only itself. */
export const FORBIDDEN_TREES: readonly string[] = ['/etc', '/proc', '/sys', '/dev', '/boot'];

/** Forbidden anywhere in a path. */
const ENGINE_SOCKET = 'docker.sock';

/**
 * State and sockets of container engines, and of services that start programs for any client that can write
 * there.
 */
export const ENGINE_STATE: readonly string[] = [
  ...['docker', 'docker.sock', 'docker.pid', 'containerd', 'podman', 'crio', 'containers', 'libpod', 'buildkit'],
  ...['runc', 'crun', 'k3s', 'netns', 'lxc', 'dbus', 'systemd', 'user'],
]
  .flatMap(name => [`/run/${name}`, `/var/run/${name}`])
  .concat(
    [
      'docker',
      'containerd',
      'containers',
      'kubelet',
      'buildkit',
      'nerdctl',
      'rancher',
      'lxc',
      'lxd',
      'incus',
      'machines',
    ].map(name => `/var/lib/${name}`),
    ['/var/snap/docker', '/var/snap/lxd'],
  );

/**
 * State of users' own engines, and their registry logins. Everything below is forbidden; the surrounding home
 * is allowed.
 */
const USERS_ENGINES: readonly string[] = [
  '/.docker',
  '/.local/share/docker',
  '/.local/share/containers',
  '/.local/share/containerd',
];

/**
 * Checks the text of a path by the rule of the specification, without reading the file system. `noun` is
 * `workspace`, `mount source` or `code path`. Fails with `invalid_request`.
 */
export function checkPathText(noun: string, path: string): void {
  if (!path.startsWith('/') || path.includes('\0')) {
    throw invalidRequest(`${noun} must be an absolute path: ${path}`);
  }
  if (path.length > LIMITS.hostPathChars) {
    throw invalidRequest(`${noun} must have at most ${LIMITS.hostPathChars} characters: ${path.slice(0, 80)}…`);
  }
  if (path.includes('..') || path.includes(ENGINE_SOCKET) || isForbiddenTree(normalize(path))) {
    throw unsafe(noun, path);
  }
}

/**
 * Checks a host path that a caller names: its text, its resolved path, and the kind of file. `find` resolves
 * or opens the path. If `find` opens the path, later changes of the path do not affect the checked file.
 * Fails with `invalid_request` (`unsafe …`), and with `failed_precondition` for a path that does not exist.
 */
export async function checkHostPath<F extends FoundPath>(
  noun: string,
  path: string,
  policy: HostPathPolicy,
  find: FindPath<F>,
): Promise<F> {
  checkPathText(noun, path);
  if (isClosed(normalize(path), policy)) throw unsafe(noun, path);
  // Refuse before searching, so that the answer does not reveal which files exist.
  if (policy.allow?.length === 0) throw notAllowed(noun, path);
  const found = await find(path);
  if (found === null) {
    // Missing paths pass the same checks. Otherwise the answer would reveal which names exist in closed
    // directories.
    checkResolved(noun, path, await resolveMissing(path, find), policy);
    throw failedPrecondition(`${noun} does not exist: ${path}`);
  }
  try {
    checkResolved(noun, path, found.resolved, policy);
    if (found.kind === 'other') throw invalidRequest(`unsafe ${noun}: ${path} (it is neither a file nor a directory)`);
  } catch (error) {
    await found.close?.();
    throw error;
  }
  return found;
}

/**
 * Checks a path of another machine (a node of a cluster) by its text alone. Fails with `invalid_request`
 * (`unsafe …`).
 */
export function checkNodePath(noun: string, path: string, policy: HostPathPolicy): void {
  checkPathText(noun, path);
  checkResolved(noun, path, normalize(path), policy);
}

/** Checks a workspace and mounts. An unsafe path is reported before a missing one, in any order. */
export async function checkSources(
  workspace: string,
  mounts: readonly MountSpec[],
  policy: HostPathPolicy,
  find: FindPath,
): Promise<void> {
  const sources = mounts.map(mount => ({ noun: 'mount source', path: mount.source }));
  if (workspace !== '') sources.unshift({ noun: 'workspace', path: workspace });
  for (const { noun, path } of sources) checkPathText(noun, path);
  let missing: ServiceError | undefined;
  for (const { noun, path } of sources) {
    try {
      await checkHostPath(noun, path, policy, find);
    } catch (error) {
      if ((error as ServiceError).code !== 'failed_precondition') throw error;
      missing ??= error as ServiceError;
    }
  }
  if (missing) throw missing;
}

/**
 * Returns a policy with all links resolved, also for paths that do not exist yet. A closed path counts under
 * its written and its resolved name.
 */
export async function resolvePolicy(policy: HostPathPolicy, find: FindPath): Promise<HostPathPolicy> {
  const resolve = (paths: readonly string[]) => Promise.all(paths.map(path => resolveMissing(path, find)));
  const named = [...ENGINE_STATE, ...policy.closed];
  const closed = [...new Set([...named.map(normalize), ...(await resolve(named))])];
  return { closed, allow: policy.allow === null ? null : await resolve(policy.allow) };
}

/**
 * Returns the whole rule as data, for a program without a list of its own (`runtimes/native/src/mounts.c`).
 * `closed` also closes the parents of each path; among the forbidden trees that adds only `/`. `closedNames`
 * are whole names inside a path; `closedTexts` match any part of a resolved path.
 */
export function completePolicy({ closed, allow }: HostPathPolicy): object {
  return { closed: [...FORBIDDEN_TREES, ...closed], closedNames: USERS_ENGINES, closedTexts: [ENGINE_SOCKET], allow };
}

function checkResolved(noun: string, path: string, resolved: string, policy: HostPathPolicy): void {
  if (isClosed(resolved, policy)) throw unsafe(noun, path);
  if (policy.allow !== null && !policy.allow.some(prefix => isWithin(resolved, prefix))) throw notAllowed(noun, path);
}

function isClosed(path: string, { closed }: HostPathPolicy): boolean {
  return (
    isForbiddenTree(path) ||
    path.includes(ENGINE_SOCKET) ||
    USERS_ENGINES.some(names => `${path}/`.includes(`${names}/`)) ||
    closed.some(tree => isWithin(path, tree) || isWithin(tree, path))
  );
}

/** Returns the resolved path of a missing file, from its nearest existing parent. */
async function resolveMissing(path: string, find: FindPath): Promise<string> {
  const parts = normalize(path).split('/');
  for (let kept = parts.length; kept > 1; kept--) {
    const found = await find(parts.slice(0, kept).join('/'));
    await found?.close?.();
    if (found) return normalize([found.resolved, ...parts.slice(kept)].join('/'));
  }
  return normalize(path);
}

const RULE =
  `Not given to a sandbox are /, what is in ${FORBIDDEN_TREES.slice(0, -1).join(', ')} and ${FORBIDDEN_TREES.at(-1)}, sockets and state of ` +
  'container engines, the data directory, the ' +
  'configuration and the secrets of the service, directories that hold one of them, and paths with ".." in them. Name another directory, or copy ' +
  'what is needed into one.';

function unsafe(noun: string, path: string): ServiceError {
  return invalidRequest(`unsafe ${noun}: ${path}`, { advice: RULE });
}

function notAllowed(noun: string, path: string): ServiceError {
  return invalidRequest(`unsafe ${noun}: ${path} (mounts.allow does not name it)`, {
    advice:
      'Only what the setting mounts.allow names, and what is below it, is given to a sandbox: ask the operator for a place there. ' +
      'Code can come without one: upload it as a package (--upload of the command line, or code://<sha256> in a request).',
  });
}

function isForbiddenTree(path: string): boolean {
  return path === '/' || FORBIDDEN_TREES.some(tree => isWithin(path, tree));
}

/** Returns true if `path` is `tree` or below it. Both are absolute and normalized. */
export function isWithin(path: string, tree: string): boolean {
  return path === tree || path.startsWith(tree === '/' ? '/' : `${tree}/`);
}

/** Removes `//`, `/./` and a trailing slash. Earlier checks refuse `..`. */
function normalize(path: string): string {
  return `/${path
    .split('/')
    .filter(part => part !== '' && part !== '.')
    .join('/')}`;
}
