import { readdir, rm, rmdir } from 'node:fs/promises';
import { join } from 'node:path';
import { messageOf } from '../../core/error.ts';
import type { Removals } from '../../lib/removals.ts';
import type { Logger } from '../../telemetry/logger.ts';
import { readState } from '../host/handle.ts';
import { isServed, socketOf } from './control-socket.ts';
import type { Programs } from './programs.ts';
import type { KnownLayers } from './shim.ts';

const OWNER = /^([0-9a-f]{8})(?:-\d+)?$/;

/**
 * Removes what ended servers of this data directory have left: programs without an instance, and their files.
 * Instances stay: their records decide. Never rejects.
 */
export async function sweep(
  programs: Programs,
  runDir: string,
  owner: string,
  removals: Removals,
  logger: Logger,
): Promise<void> {
  try {
    const names = await programs.list();
    // Read after the programs: a program that becomes an instance meanwhile is then in the list.
    const instances = await programsOfInstances(runDir);
    const files = await readdir(runDir).catch(() => []);
    const sockets = files.flatMap(file => /^([0-9a-f]{8})\.sock$/.exec(file)?.[1] ?? []);
    const alive = new Set([owner]);
    for (const other of sockets) {
      if (other !== owner && (await isServed(socketOf(runDir, other)))) alive.add(other);
    }
    const isLeft = (name: string) => {
      const found = OWNER.exec(name.slice(programs.prefix.length))?.[1];
      return name.startsWith(programs.prefix) && found !== undefined && !alive.has(found) && !instances.has(name);
    };
    for (const name of names.filter(isLeft)) {
      await programs.remove(name);
      logger.info({ program: name }, 'removed supervised program of an earlier server');
    }
    // The directory has the name of earlier versions, whose files are removed too.
    const workers = join(runDir, 'spares');
    for (const name of (await readdir(workers).catch(() => [])).filter(isLeft)) {
      await removals.remove(join(workers, name));
    }
    for (const other of sockets.filter(found => !alive.has(found))) await rm(socketOf(runDir, other), { force: true });
  } catch (error) {
    logger.warn({ error: messageOf(error) }, 'cannot remove all programs of earlier servers from supervisord');
  }
}

/**
 * Removes the control groups of killed shims, except those of instances. Never rejects.
 * The kernel refuses to remove a group in which a process runs.
 */
export async function sweepGroups(
  programs: Programs,
  runDir: string,
  owner: string,
  layers: KnownLayers,
): Promise<void> {
  const { prefix } = programs;
  const instances = await programsOfInstances(runDir);
  for (const parent of new Set(Object.values(layers.places).map(([, path]) => path))) {
    const names = await readdir(parent).catch(() => []);
    for (const name of names) {
      const isOwn = name.startsWith(`${prefix}${owner}-`);
      if (name.startsWith(prefix) && !isOwn && !instances.has(name))
        await rmdir(join(parent, name)).catch(() => undefined);
    }
  }
}

async function programsOfInstances(runDir: string): Promise<ReadonlySet<string>> {
  const directory = join(runDir, 'instances');
  const ids = await readdir(directory).catch(() => []);
  const states = await Promise.all(ids.map(id => readState(join(directory, id))));
  return new Set(states.flatMap(state => (state === null ? [] : [state.launcher])));
}
