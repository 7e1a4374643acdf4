import type { Stats } from 'node:fs';
import { copyFile, mkdtemp, rm, stat } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { basename, dirname, join } from 'node:path';
import { failedPrecondition } from '../../core/error.ts';
import type { MountSpec } from '../../core/mount.ts';
import { archiveOf } from './code-archive.ts';
import { type PodCode, type PodManager, type PodOrder, type PodStarted, TakesNoCode } from './manager.ts';
import { normalOf } from './mounts.ts';

/** What comes with the order of an instance may weigh: the manager of the pod does nothing else while it unpacks it. */
const MAX_WITH_ORDER_BYTES = 256 * 1024;

/** The directories as archives for the order of an instance; null when they are too large for that, or one is a file. */
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

/** Starts an instance with these directories, of which `code` comes with the order; null: nothing does. */
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
      // A pool of before an upgrade: it has not been told anything yet.
      if (!(error instanceof TakesNoCode)) throw error;
    }
  }
  await putPlatformMounts(manager, mounts, order.user, signal);
  return await manager.start(order, signal);
}

/** Directories of this host that a pod of another machine cannot mount: they are put into it. A file goes into a directory of its own. */
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

/** What is put into a directory takes the place of what was there. */
function outerFirst(mounts: readonly MountSpec[]): readonly MountSpec[] {
  return [...mounts].sort((a, b) => normalOf(a.target).length - normalOf(b.target).length);
}

async function kindOf(source: string): Promise<Stats> {
  const kind = await stat(source).catch(() => undefined);
  if (kind === undefined) throw failedPrecondition(`mount source does not exist: ${source}`);
  return kind;
}

/** The outermost directories that a pod must be able to write to for them. */
export async function directoriesOf(mounts: readonly MountSpec[]): Promise<readonly string[]> {
  const targets = await Promise.all(
    mounts.map(async ({ source, target }) => {
      const isFile = await stat(source).then(
        found => !found.isDirectory(),
        () => false,
      );
      return isFile ? dirname(normalOf(target)) : normalOf(target);
    }),
  );
  return targets.filter(target => !targets.some(other => other !== target && target.startsWith(`${other}/`)));
}
