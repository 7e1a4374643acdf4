import type { Readable } from 'node:stream';
import { failedPrecondition, unavailable } from '../../core/error.ts';
import { poll } from '../../lib/backoff.ts';
import type { SandboxStats } from '../driver.ts';
import { inspectExit } from './container-exits.ts';
import { type Engine, statusOf } from './engine.ts';

/** File or directory at a path in a container, with links followed. The container need not run. */
export interface InsideStat {
  readonly isDirectory: boolean;
  readonly isFile: boolean;
  /** Permission bits only. */
  readonly mode: number;
}

/** Bits in the daemon's file modes that describe the type of a file, as Go's `os.FileMode` defines them. */
const TYPE_BITS = 0x8f28_0000;
const DIRECTORY_BIT = 0x8000_0000;
const LINK_BIT = 0x0800_0000;
const MOST_LINKS = 8;
const BLOCK_BYTES = 512;
const STAT_HEADER = 'x-docker-container-path-stat';

/** Returns the status of a path in a container, or null when the path does not exist. */
export async function statInside(engine: Engine, container: string, path: string): Promise<InsideStat | null> {
  let at = path;
  for (let links = 0; links < MOST_LINKS; links++) {
    const asked = at;
    let headers: Record<string, string | undefined>;
    try {
      const answer = (await engine.request('look at a file of a container', docker =>
        docker.getContainer(container).infoArchive({ path: asked }),
      )) as { headers: Record<string, string | undefined>; destroy?(): void };
      headers = answer.headers;
      answer.destroy?.();
    } catch (error) {
      const status = statusOf(error);
      if (status === 404 || status === 400) return null;
      throw error;
    }
    const text = Buffer.from(headers[STAT_HEADER] ?? '', 'base64').toString();
    const { mode, linkTarget } = JSON.parse(text) as { mode: number; linkTarget: string };
    if ((mode & LINK_BIT) === 0) {
      const type = (mode & TYPE_BITS) >>> 0;
      return { isDirectory: type === DIRECTORY_BIT, isFile: type === 0, mode: mode & 0o777 };
    }
    at = linkTarget;
  }
  return null;
}

/** Returns true when a directory in a container has at least one entry. */
export async function hasEntries(engine: Engine, container: string, directory: string): Promise<boolean> {
  const archive = (await engine.request('look at a directory of a container', docker =>
    docker.getContainer(container).getArchive({ path: `${directory.replace(/\/+$/, '')}/.` }),
  )) as Readable;
  let bytes = Buffer.alloc(0);
  try {
    for await (const chunk of archive) {
      bytes = Buffer.concat([bytes, chunk as Buffer]);
      // The directory itself is the first entry. An archive ends with blocks of zeros.
      if (bytes.length >= 2 * BLOCK_BYTES) return bytes[BLOCK_BYTES] !== 0;
    }
    return false;
  } finally {
    archive.destroy();
  }
}

/** Fields of the daemon's answer that the driver reads. */
interface ContainerStats {
  readonly memory_stats?: {
    readonly usage?: number;
    readonly stats?: { readonly total_inactive_file?: number; readonly inactive_file?: number };
  };
  readonly cpu_stats?: { readonly cpu_usage?: { readonly total_usage?: number } };
  readonly pids_stats?: { readonly current?: number };
}

const NANOS_PER_MICRO = 1000;

/** Number of times that a running container is asked for its use, and the pause in between, milliseconds. */
const STATS_TRIES = 20;
const STATS_PAUSE_MS = 100;

/**
 * Returns a container's current resource use. Fails with `failed_precondition` when it does not run, and with
 * `unavailable` when the daemon cannot read the use of a running container.
 */
export async function readStats(engine: Engine, container: string): Promise<SandboxStats> {
  const stats = await poll(STATS_TRIES, STATS_PAUSE_MS, async () => {
    const found = await requestStats(engine, container);
    if (found.memory_stats?.usage !== undefined) return found;
    // The daemon also answers without numbers when it failed to read those of a running container, for
    // example while processes start and end in it.
    if ((await inspectExit(engine, container)) !== 'running') throw failedPrecondition('the sandbox does not run');
    return undefined;
  });
  if (stats === undefined) throw unavailable('the docker daemon reports no usage of the container');
  const usage = stats.memory_stats?.usage ?? 0;
  const cache = stats.memory_stats?.stats?.total_inactive_file ?? stats.memory_stats?.stats?.inactive_file ?? 0;
  return {
    memoryBytes: Math.max(0, usage - cache),
    cpuMicros: Math.floor((stats.cpu_stats?.cpu_usage?.total_usage ?? 0) / NANOS_PER_MICRO),
    processes: stats.pids_stats?.current ?? 0,
  };
}

async function requestStats(engine: Engine, container: string): Promise<ContainerStats> {
  // Without `one-shot` the daemon measures for a second to compute a rate.
  const options = { stream: false as const, 'one-shot': true };
  try {
    return (await engine.request('tell what a container uses', docker =>
      docker.getContainer(container).stats(options),
    )) as ContainerStats;
  } catch (error) {
    if (statusOf(error) === 404) throw failedPrecondition('the sandbox does not run', { cause: error });
    throw error;
  }
}

/** Time limit for a removal that another request has begun. */
const REMOVAL_TIMEOUT_MS = 20_000;

/**
 * Removes a container with its anonymous volumes; kills it if it runs. Succeeds when the container does not
 * exist.
 */
export async function removeContainer(engine: Engine, container: string): Promise<void> {
  try {
    await engine.request('remove the container', docker =>
      docker.getContainer(container).remove({ force: true, v: true }),
    );
  } catch (error) {
    const status = statusOf(error);
    if (status === 404) return;
    // 409: another request is removing the container.
    if (status !== 409) throw error;
    await waitRemoved(engine, container);
  }
}

async function waitRemoved(engine: Engine, container: string): Promise<void> {
  try {
    await engine.request(
      'wait for the removal of the container',
      docker => docker.getContainer(container).wait({ condition: 'removed' }),
      REMOVAL_TIMEOUT_MS,
    );
  } catch (error) {
    if (statusOf(error) === 404) return;
    throw unavailable(`the container is still being removed: ${container}`, { cause: error });
  }
}
