import { failedPrecondition, invalidRequest, type ServiceError } from './error.ts';
import { LIMITS } from './limits.ts';
import type { MountSpec } from './mount.ts';

/**
 * Which paths of this host a caller may name, beside the fixed list of the specification: as the source of a mount, as a workspace, as the place
 * of code, as a file of a job. Resolved absolute paths.
 */
export interface HostPathPolicy {
  /** Each is unsafe itself, with everything below it and with every parent of it: who has the parent has it too. */
  readonly closed: readonly string[];
  /** Only these and what is below them (setting `mounts.allow`); null: everything that is not unsafe. */
  readonly allow: readonly string[] | null;
}

/** The file or directory at a path, links followed. */
export interface FoundPath {
  /** Where it is, without any link. */
  readonly resolved: string;
  readonly kind: 'file' | 'directory' | 'other';
  /** For what is held open until then. */
  close?(): Promise<void>;
}

/** Null for a path that does not exist. */
export type FindPath<F extends FoundPath = FoundPath> = (path: string) => Promise<F | null>;

/** Forbidden themselves, with everything below them. (`/` is forbidden only itself.) */
const FORBIDDEN_TREES = ['/etc', '/proc', '/sys', '/dev', '/boot'];

/** Where container engines, and what starts programs for anybody who can write there, keep their state and their sockets. */
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

/** The same of users' own engines, and their logins to registries: closed with what is below, but the home around them may be named. */
const USERS_ENGINES = /\/(\.docker|\.local\/share\/(docker|containers|containerd))(\/|$)/;

/**
 * The rule of the specification on the text as it was sent; no file is looked at.
 * `noun` is `workspace`, `mount source` or `code path`. Fails with `invalid_request`.
 */
export function checkPathText(noun: string, path: string): void {
  if (!path.startsWith('/') || path.includes('\0')) {
    throw invalidRequest(`${noun} must be an absolute path: ${path}`);
  }
  if (path.length > LIMITS.hostPathChars) {
    throw invalidRequest(`${noun} must have at most ${LIMITS.hostPathChars} characters: ${path.slice(0, 80)}…`);
  }
  if (path.includes('..') || path.includes('docker.sock') || isForbiddenTree(normalize(path))) {
    throw unsafe(noun, path);
  }
}

/**
 * The one rule for every host path that a caller names: its text, then where it leads, then what stands there. `find` looks, or opens: what it
 * opened is what was checked, whatever happens to the path afterwards. Fails with `invalid_request` (`unsafe …`), and with
 * `failed_precondition` for a path that does not exist.
 */
export async function checkHostPath<F extends FoundPath>(
  noun: string,
  path: string,
  policy: HostPathPolicy,
  find: FindPath<F>,
): Promise<F> {
  checkPathText(noun, path);
  if (isClosed(normalize(path), policy)) throw unsafe(noun, path);
  // Not even looked for: the answer tells nothing of what there is.
  if (policy.allow?.length === 0) throw notAllowed(noun, path);
  const found = await find(path);
  if (found === null) {
    // As strict as for one that is there: the answer must not tell which names exist where nobody may look.
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
 * The rule for a path of another machine (a node of a cluster): nothing can be looked for there, so its text alone counts. Fails with
 * `invalid_request` (`unsafe …`).
 */
export function checkNodePath(noun: string, path: string, policy: HostPathPolicy): void {
  checkPathText(noun, path);
  checkResolved(noun, path, normalize(path), policy);
}

/** The rule for a workspace and mounts. An unsafe one answers before one that does not exist, wherever it stands. */
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

/** A policy of these paths, the links in them followed, also when they do not exist (yet). A closed one counts under both its names. */
export async function resolvePolicy(policy: HostPathPolicy, find: FindPath): Promise<HostPathPolicy> {
  const resolve = (paths: readonly string[]) => Promise.all(paths.map(path => resolveMissing(path, find)));
  const named = [...ENGINE_STATE, ...policy.closed];
  const closed = [...new Set([...named.map(normalize), ...(await resolve(named))])];
  return { closed, allow: policy.allow === null ? null : await resolve(policy.allow) };
}

function checkResolved(noun: string, path: string, resolved: string, policy: HostPathPolicy): void {
  if (isClosed(resolved, policy)) throw unsafe(noun, path);
  if (policy.allow !== null && !policy.allow.some(prefix => isWithin(resolved, prefix))) throw notAllowed(noun, path);
}

function isClosed(path: string, { closed }: HostPathPolicy): boolean {
  return (
    isForbiddenTree(path) ||
    path.includes('docker.sock') ||
    USERS_ENGINES.test(path) ||
    closed.some(tree => isWithin(path, tree) || isWithin(tree, path))
  );
}

/** Where a path would be, by the nearest of its parents that is there. */
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
  'Not given to a sandbox are /, what is in /etc, /proc, /sys, /dev and /boot, sockets and state of container engines, the data directory, the ' +
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

/** True when `path` is `tree` or below it. Both absolute and normalized. */
export function isWithin(path: string, tree: string): boolean {
  return path === tree || path.startsWith(tree === '/' ? '/' : `${tree}/`);
}

/** `//` and `/./` removed, no trailing slash. `..` never reaches this. */
function normalize(path: string): string {
  return `/${path
    .split('/')
    .filter(part => part !== '' && part !== '.')
    .join('/')}`;
}
