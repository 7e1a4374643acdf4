import type { Stats } from 'node:fs';
import { copyFile, lstat, mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { basename, dirname, join, posix } from 'node:path';
import type { V1Volume, V1VolumeMount } from '@kubernetes/client-node';
import { failedPrecondition, messageOf } from '../../core/error.ts';
import { checkHostPath, type FoundPath, type HostPathPolicy } from '../../core/host-path.ts';
import type { MountSpec } from '../../core/instance.ts';
import { findPath } from '../../lib/opened-path.ts';
import { assertNoLinks } from '../../lib/own-paths.ts';
import { archiveOf } from './code-archive.ts';
import { POD, type PodCode, type PodManager, type PodOrder, type PodStarted, TakesNoCode } from './manager.ts';

const CLOSED_TARGETS = ['/proc', '/sys', '/dev', POD.home, POD.run];
/** Part of /dev that may be mounted over. */
const SHARED_MEMORY = '/dev/shm';

/**
 * Converts the spec's mounts to directories of the node. Checks each path and its prefix as text, because the
 * path is the node's and this process does not see the node's links. If this machine has the path too, the
 * policy also applies to its resolved path. This machine may be a node or share its directories. Fails with
 * `failed_precondition`.
 */
export async function hostPathVolumes(
  mounts: readonly MountSpec[],
  policy: HostPathPolicy,
  typeOf: (source: string) => 'Directory' | 'File',
): Promise<{ readonly volumes: readonly V1Volume[]; readonly volumeMounts: readonly V1VolumeMount[] }> {
  const volumes: V1Volume[] = [];
  const volumeMounts: V1VolumeMount[] = [];
  for (const [index, { source, target, readonly }] of mounts.entries()) {
    checkTarget(target);
    try {
      await checkHostPath('mount source', source, policy, asOnNode);
    } catch (error) {
      throw failedPrecondition(messageOf(error), { cause: error });
    }
    // Volumes of the operator cannot have such a name.
    const name = `rookery-mount-${index}`;
    volumes.push({ name, hostPath: { path: source, type: typeOf(source) } });
    volumeMounts.push({ name, mountPath: normalOf(target), ...(readonly && { readOnly: true }) });
  }
  return { volumes, volumeMounts };
}

async function asOnNode(path: string): Promise<FoundPath> {
  return (await findPath(path)) ?? { resolved: path, kind: 'directory' };
}

/** Fails with `failed_precondition` for a target that would hide directories that the pod needs. */
export function checkTarget(target: string): void {
  const normal = normalOf(target);
  if (normal === '/') throw failedPrecondition(`mount target must be a path below /: ${target}`);
  const isIn = (path: string) => normal === path || normal.startsWith(`${path}/`);
  const tree = CLOSED_TARGETS.find(isIn);
  if (tree !== undefined && !isIn(SHARED_MEMORY))
    throw failedPrecondition(`mount target ${target} is in ${tree}, which the sandbox needs`);
  // Kubernetes refuses mount paths with a colon.
  if (normal.includes(':'))
    throw failedPrecondition(`mount target ${target} has a colon, which Kubernetes does not accept`);
}

export function normalOf(target: string): string {
  return posix.normalize(`/${target}`).replace(/(.)\/$/, '$1');
}

/** Size limit for archives in an order. The manager of the pod does nothing else while it unpacks them. */
const MAX_WITH_ORDER_BYTES = 256 * 1024;

/** Packs the directories as archives for an order; null when they are too large or a source is a file. */
export async function packPlatformMounts(mounts: readonly MountSpec[]): Promise<readonly PodCode[] | null> {
  const packed: PodCode[] = [];
  let leftBytes = MAX_WITH_ORDER_BYTES;
  for (const { source, target, readonly } of outerFirst(mounts)) {
    if (!(await kindOf(source)).isDirectory()) return null;
    const archive = await archiveOf(source, leftBytes);
    if (archive === null) return null;
    leftBytes -= archive.length;
    packed.push({ target: normalOf(target), readonly, archive: archive.toString('base64') });
  }
  return packed;
}

/**
 * Starts an instance with these directories. `code` is sent with the order; null sends them through `put`.
 */
export async function startWithMounts(
  manager: PodManager,
  order: Omit<PodOrder, 'code'>,
  mounts: readonly MountSpec[],
  code: readonly PodCode[] | null,
  signal: AbortSignal,
): Promise<PodStarted> {
  if (code !== null) {
    try {
      return await manager.start({ ...order, code }, signal);
    } catch (error) {
      // The pod is older than an upgrade, and so is its manager, which has not received anything yet.
      if (!(error instanceof TakesNoCode)) throw error;
    }
  }
  await putPlatformMounts(manager, mounts, order.user, signal);
  return await manager.start(order, signal);
}

/**
 * Copies directories of this host into a pod that cannot mount them. A file is sent as a directory that
 * contains only this file.
 */
async function putPlatformMounts(
  manager: PodManager,
  mounts: readonly MountSpec[],
  user: string,
  signal: AbortSignal,
): Promise<void> {
  for (const { source, target, readonly } of outerFirst(mounts)) {
    if ((await kindOf(source)).isDirectory()) {
      await manager.put(source, { target: normalOf(target), readonly, user }, signal);
      continue;
    }
    const directory = await mkdtemp(join(tmpdir(), 'rookery-put-'));
    try {
      await copyFile(source, join(directory, basename(normalOf(target))));
      await manager.put(directory, { target: dirname(normalOf(target)), readonly, user }, signal);
    } finally {
      await rm(directory, { recursive: true, force: true });
    }
  }
}

/** Sorts outer targets first, because `put` replaces the contents of its target. */
function outerFirst(mounts: readonly MountSpec[]): readonly MountSpec[] {
  return [...mounts].sort((a, b) => normalOf(a.target).length - normalOf(b.target).length);
}

async function kindOf(source: string): Promise<Stats> {
  await assertNoLinks(source);
  return await lstat(source);
}

/**
 * Returns the outermost directories that must be writable in the pod. Fails with `failed_precondition` when a
 * source is missing or leads through a symbolic link, so before a pod is created.
 */
export async function directoriesOf(mounts: readonly MountSpec[]): Promise<readonly string[]> {
  const targets = await Promise.all(
    mounts.map(async ({ source, target }) => {
      const isDirectory = (await kindOf(source)).isDirectory();
      return isDirectory ? normalOf(target) : dirname(normalOf(target));
    }),
  );
  return targets.filter(target => !targets.some(other => other !== target && target.startsWith(`${other}/`)));
}
