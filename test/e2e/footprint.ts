import { spawnSync } from 'node:child_process';
import { readdirSync, readFileSync, readlinkSync } from 'node:fs';
import type { Bed } from './agents.ts';

/** Resources of the machine that a server and its sandboxes use. */
export interface Footprint {
  readonly processes: number;
  readonly mounts: number;
  readonly groups: number;
  readonly files: number;
  readonly descriptors: number;
}

export function footprint(bed: Bed): Footprint {
  const { pid, dataDir } = bed.server;
  const zygotes = zygotesOf(dataDir);
  return {
    processes: processesOf(zygotes),
    mounts: readFileSync('/proc/self/mounts', 'utf8')
      .split('\n')
      .filter(line => line.includes(dataDir)).length,
    groups: groupsOf(zygotes),
    files: readdirSync(dataDir, { recursive: true }).length,
    descriptors: readdirSync(`/proc/${pid}/fd`).length,
  };
}

/**
 * Returns the footprint once it is as wanted or stays unchanged. Waits 200 rounds of 50 ms at most, since
 * workers are replaced and connections time out.
 */
export async function settled(bed: Bed, isWanted?: (now: Footprint) => boolean): Promise<Footprint> {
  await bed.disconnect();
  let last = footprint(bed);
  for (let calm = 0, looks = 0; calm < 5 && looks < 200; looks++) {
    if (isWanted?.(last)) return last;
    await bed.disconnect();
    await new Promise(resolve => setTimeout(resolve, 50));
    const now = footprint(bed);
    calm = !isWanted && JSON.stringify(now) === JSON.stringify(last) ? calm + 1 : 0;
    last = now;
  }
  return last;
}

const pids = () => readdirSync('/proc').filter(name => /^\d+$/.test(name));

/** Returns a file of a process, or `''` when the process has ended. */
function read(pid: string, file: string): string {
  try {
    return readFileSync(`/proc/${pid}/${file}`, 'utf8');
  } catch {
    return '';
  }
}

/** Returns the pids of zygotes, whose standard input is a file below the data directory. */
function zygotesOf(dataDir: string): readonly string[] {
  return pids().filter(pid => {
    try {
      return readlinkSync(`/proc/${pid}/fd/0`).startsWith(`${dataDir}/`);
    } catch {
      return false;
    }
  });
}

/** Returns the number of zygotes and their descendants. */
function processesOf(zygotes: readonly string[]): number {
  const children = new Map<string, string[]>();
  for (const pid of pids()) {
    const parent = /^PPid:\s+(\d+)$/m.exec(read(pid, 'status'))?.[1] ?? '';
    children.set(parent, [...(children.get(parent) ?? []), pid]);
  }
  const counted = new Set<string>();
  const count = (pid: string) => {
    counted.add(pid);
    for (const child of children.get(pid) ?? []) if (!counted.has(child)) count(child);
  };
  for (const pid of zygotes) count(pid);
  return counted.size;
}

/**
 * Returns the number of control groups of zygotes. Names `<zygote>-<token>-<pid>-<number>` tell them from
 * those of other servers.
 */
function groupsOf(zygotes: readonly string[]): number {
  // `find` continues when a group of another server vanishes during the search.
  const wanted = zygotes.flatMap(pid => ['-o', '-name', `*-${pid}-*`]).slice(1);
  if (wanted.length === 0) return 0;
  const { stdout } = spawnSync('find', ['/sys/fs/cgroup', '-type', 'd', '(', ...wanted, ')'], { encoding: 'utf8' });
  return stdout.split('\n').filter(line => line !== '').length;
}
