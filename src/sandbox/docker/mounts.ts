import { readFile, realpath } from 'node:fs/promises';
import { posix } from 'node:path';
import { failedPrecondition, messageOf } from '../../core/error.ts';
import { checkHostPath, type HostPathPolicy } from '../../core/host-path.ts';
import type { MountSpec } from '../../core/instance.ts';
import { openPath } from '../../lib/opened-path.ts';
import { assertNoLinks } from '../../lib/own-paths.ts';
import type { SandboxSpec } from '../driver.ts';

const WRITABLE_BY_ALL = 0o002;
/** Trees that the kernel provides in a container. Mounts are permitted only below /dev/shm. */
const KERNEL_TREES = ['/proc', '/dev'];
const SHARED_MEMORY = '/dev/shm';

/** Mount whose source has just been checked. */
export interface CheckedMount {
  readonly source: string;
  readonly target: string;
  readonly readonly: boolean;
  /** Uid that alone may write to the source. Null: all users may write, or the platform owns the source. */
  readonly ownerUid: number | null;
}

/**
 * Resolves the sources of the spec's mounts and checks them again at the moment of mounting. `socketPath` is
 * the daemon's socket when it is a file; mounting it is refused too. Fails with `failed_precondition`.
 */
export async function checkMounts(
  spec: SandboxSpec,
  policy: HostPathPolicy,
  socketPath: string | null,
): Promise<readonly CheckedMount[]> {
  if (spec.mounts.length === 0 && spec.platformMounts === undefined) return [];
  const socket = socketPath === null ? null : await realpath(socketPath).catch(() => socketPath);
  const whole = socket === null ? policy : { ...policy, closed: [...policy.closed, socket] };
  const asked = spec.mounts.map(mount => checkMount(mount, whole));
  const ours = (spec.platformMounts ?? []).map(async ({ source, target, readonly }) => {
    await assertNoLinks(source);
    return { source, target, readonly, ownerUid: null };
  });
  return await Promise.all([...asked, ...ours]);
}

/**
 * Checks one mount. The daemon takes no file descriptor, so `verifyMounts` compares the result with the
 * daemon's mount later.
 */
async function checkMount(mount: MountSpec, policy: HostPathPolicy): Promise<CheckedMount> {
  const { target, readonly } = mount;
  try {
    const opened = await checkHostPath('mount source', mount.source, policy, openPath);
    await opened.close();
    const { resolved, uid, mode } = opened;
    return { source: resolved, target, readonly, ownerUid: (mode & WRITABLE_BY_ALL) === 0 ? uid : null };
  } catch (error) {
    throw failedPrecondition(messageOf(error), { cause: error });
  }
}

/**
 * Refuses mounts that would hide the platform's own directories, `ours`, in a container. Links in the image
 * are not followed. Fails with `failed_precondition`.
 */
export function checkTargets(mounts: readonly MountSpec[], ours: readonly string[]): void {
  for (const { target, readonly } of mounts) {
    const normal = posix.normalize(`/${target}`).replace(/(.)\/$/, '$1');
    if (normal === '/') throw failedPrecondition(`mount target must be a path below /: ${target}`);
    const isIn = (tree: string) => normal === tree || normal.startsWith(`${tree}/`);
    const tree = KERNEL_TREES.find(isIn);
    if (tree !== undefined && !isIn(SHARED_MEMORY)) {
      throw failedPrecondition(`mount target ${target} is in ${tree}, which the sandbox needs`);
    }
    // The daemon creates the platform's directories in a mount above them, which only a read-only mount
    // prevents.
    const hidden = ours.find(path => isIn(path) || (readonly && path.startsWith(`${normal}/`)));
    if (hidden !== undefined)
      throw failedPrecondition(`mount target ${target} hides ${hidden}, which the sandbox needs`);
  }
}

/** Returns a warning for each writable mount that the container's user does not own. */
export function ownerWarnings(mounts: readonly CheckedMount[], user: string, uid: number, image: string): string[] {
  const name = user === '' ? 'root' : (user.split(':', 1)[0] ?? user);
  return mounts
    .filter(mount => !mount.readonly && mount.ownerUid !== null && mount.ownerUid !== uid)
    .map(
      mount =>
        `${mount.source} belongs to uid ${mount.ownerUid} and ${name} has uid ${uid} in ${image}: writing to it may be denied`,
    );
}

interface MountEntry {
  readonly device: string;
  /** Path of the mount's root in its file system. */
  readonly root: string;
  readonly mountPoint: string;
}

/**
 * Fails with `failed_precondition` unless the daemon mounted the checked sources. The daemon resolves paths
 * itself, and a link may have replaced a part meanwhile. Compares the file system and the path in it. Skipped
 * when the server may not see the container's mounts (an ordinary user).
 */
export async function verifyMounts(pid: number, mounts: readonly CheckedMount[]): Promise<void> {
  if (mounts.length === 0) return;
  const [inside, host] = await Promise.all([readMounts(pid), readMounts('self')]);
  if (inside === null || host === null) return;
  const seen = inside.map(({ device, root }) => `${device} ${root}`);
  for (const mount of mounts) {
    const expected = placeOf(mount.source, host);
    if (expected === null) continue;
    const found = seen.indexOf(expected);
    if (found === -1) throw failedPrecondition(`mount source has changed while it was mounted: ${mount.source}`);
    // Each mount of the container matches one mount of the request.
    seen.splice(found, 1);
  }
}

/** Returns the file system of a resolved host path and the path in it. */
function placeOf(path: string, host: readonly MountEntry[]): string | null {
  let around: MountEntry | null = null;
  for (const entry of host) {
    const isAround = path === entry.mountPoint || path.startsWith(withSlash(entry.mountPoint));
    // A later mount at the same point covers an earlier one.
    if (isAround && entry.mountPoint.length >= (around?.mountPoint.length ?? 0)) around = entry;
  }
  if (around === null) return null;
  const below = path.slice(around.mountPoint === '/' ? 0 : around.mountPoint.length);
  return `${around.device} ${`${around.root === '/' ? '' : around.root}${below}` || '/'}`;
}

function withSlash(path: string): string {
  return path.endsWith('/') ? path : `${path}/`;
}

async function readMounts(pid: number | 'self'): Promise<readonly MountEntry[] | null> {
  let text: string;
  try {
    text = await readFile(`/proc/${pid}/mountinfo`, 'utf8');
  } catch {
    return null;
  }
  return text
    .split('\n')
    .filter(line => line !== '')
    .map(line => {
      const [, , device = '', root = '', mountPoint = ''] = line.split(' ');
      return { device, root: decodeOctal(root), mountPoint: decodeOctal(mountPoint) };
    });
}

/** Decodes blanks and similar characters, which mountinfo writes in octal. */
function decodeOctal(path: string): string {
  return path.replace(/\\([0-7]{3})/g, (_whole, octal: string) => String.fromCharCode(Number.parseInt(octal, 8)));
}
