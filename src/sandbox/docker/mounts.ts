import { readFile, realpath } from 'node:fs/promises';
import { posix } from 'node:path';
import { failedPrecondition, messageOf } from '../../core/error.ts';
import { checkHostPath, type HostPathPolicy } from '../../core/host-path.ts';
import type { MountSpec } from '../../core/mount.ts';
import { openPath } from '../../lib/opened-path.ts';
import type { SandboxSpec } from '../driver.ts';

const WRITABLE_BY_ALL = 0o002;
/** What the kernel shows there, and the part of it that is for whoever wants it. */
const KERNEL_TREES = ['/proc', '/dev'];
const SHARED_MEMORY = '/dev/shm';

/** A mount whose source has been checked now. */
export interface CheckedMount {
  readonly source: string;
  readonly target: string;
  readonly readonly: boolean;
  /** Who alone may write to it; null: anybody, or it is the platform's own. */
  readonly ownerUid: number | null;
}

/**
 * The spec's mounts with resolved sources, checked again at the moment of mounting. `socketPath`: the daemon's own socket, when it is a
 * file, which nobody may mount either. Fails with `failed_precondition`.
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
  const ours = (spec.platformMounts ?? []).map(async mount => ({ ...(await resolveMount(mount)), ownerUid: null }));
  return await Promise.all([...asked, ...ours]);
}

/** The daemon takes no descriptor: what was checked here is compared with what it mounted (`verifyMounts`). */
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

async function resolveMount(mount: MountSpec): Promise<Omit<CheckedMount, 'ownerUid'>> {
  try {
    return { source: await realpath(mount.source), target: mount.target, readonly: mount.readonly };
  } catch {
    throw failedPrecondition(`mount source does not exist: ${mount.source}`);
  }
}

/**
 * The platform's own mounts of a container must be seen there: `ours` are its directories. Links in the image are not followed. Fails
 * with `failed_precondition`.
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
    // The daemon makes them in a mount above ours: only one that is read-only has none.
    const hidden = ours.find(path => isIn(path) || (readonly && path.startsWith(`${normal}/`)));
    if (hidden !== undefined)
      throw failedPrecondition(`mount target ${target} hides ${hidden}, which the sandbox needs`);
  }
}

/** The warning when the owner of a writable directory is somebody else than the container's user. */
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
  /** Of its file system. */
  readonly root: string;
  readonly mountPoint: string;
}

/**
 * Whether the daemon mounted what was checked: it resolves the paths itself, and a link may have been put into one meanwhile. Compares
 * file system and path in it. Fails with `failed_precondition`. Without a view on the container's mounts (an ordinary user) it is not checked.
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
    // Each stands for one mount.
    seen.splice(found, 1);
  }
}

/** File system and path in it, of a resolved host path. */
function placeOf(path: string, host: readonly MountEntry[]): string | null {
  let around: MountEntry | null = null;
  for (const entry of host) {
    const isAround = path === entry.mountPoint || path.startsWith(withSlash(entry.mountPoint));
    // Of two at the same place the later one is seen.
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

/** Blanks and the like are octal there. */
function decodeOctal(path: string): string {
  return path.replace(/\\([0-7]{3})/g, (_whole, octal: string) => String.fromCharCode(Number.parseInt(octal, 8)));
}
