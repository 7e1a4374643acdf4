import type { Stats } from 'node:fs';
import { copyFile, lstat, mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { basename, dirname, join } from 'node:path';
import type { MountSpec } from '../../core/instance.ts';
import { assertNoLinks } from '../host/own-source.ts';
import { archiveOf } from './code-archive.ts';
import { type PodCode, type PodManager, type PodOrder, type PodStarted, TakesNoCode } from './manager.ts';
import { normalOf } from './mounts.ts';

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
