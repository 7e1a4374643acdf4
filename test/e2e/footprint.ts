import { spawnSync } from 'node:child_process';
import { readdirSync, readFileSync, readlinkSync } from 'node:fs';
import type { Bed } from './agents.ts';

/** What a server and its sandboxes take of the machine. */
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

/** Workers are made again and keep-alive connections end in their own time: waits, bounded, until it is as wanted or until nothing changes. */
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

/** `''` when it ended while it was looked at. */
function read(pid: string, file: string): string {
  try {
    return readFileSync(`/proc/${pid}/${file}`, 'utf8');
  } catch {
    return '';
  }
}

/** Zygotes live in a root below the data directory, from which their standard input comes. */
function zygotesOf(dataDir: string): readonly string[] {
  return pids().filter(pid => {
    try {
      return readlinkSync(`/proc/${pid}/fd/0`).startsWith(`${dataDir}/`);
    } catch {
      return false;
    }
  });
}

/** They and everything below them. */
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

/** A zygote names its groups after itself, `<zygote>-<token>-<pid>-<number>`: other servers may have some beside them. */
function groupsOf(zygotes: readonly string[]): number {
  // `find` goes on where a group of somebody else vanishes while it looks.
  const wanted = zygotes.flatMap(pid => ['-o', '-name', `*-${pid}-*`]).slice(1);
  if (wanted.length === 0) return 0;
  const { stdout } = spawnSync('find', ['/sys/fs/cgroup', '-type', 'd', '(', ...wanted, ')'], { encoding: 'utf8' });
  return stdout.split('\n').filter(line => line !== '').length;
}
