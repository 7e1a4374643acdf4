import { readdirSync, readFileSync } from 'node:fs';
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
  return {
    processes: ownProcesses(dataDir),
    mounts: readFileSync('/proc/self/mounts', 'utf8').split('\n').length,
    groups: groupsOf('/sys/fs/cgroup'),
    files: readdirSync(dataDir, { recursive: true }).length,
    descriptors: readdirSync(`/proc/${pid}/fd`).length,
  };
}

/** Spares are made again and keep-alive connections end in their own time: waits, bounded, until `wanted` or until nothing changes. */
export async function settled(bed: Bed, wanted?: Footprint): Promise<Footprint> {
  await bed.disconnect();
  let last = footprint(bed);
  for (let calm = 0, looks = 0; calm < 5 && looks < 200; looks++) {
    if (wanted && JSON.stringify(last) === JSON.stringify(wanted)) return last;
    await bed.disconnect();
    await new Promise(resolve => setTimeout(resolve, 50));
    const now = footprint(bed);
    calm = !wanted && JSON.stringify(now) === JSON.stringify(last) ? calm + 1 : 0;
    last = now;
  }
  return last;
}

/** Processes of this server's launchers: they are in its data directory's run files by name, so count those of our own titles. */
function ownProcesses(dataDir: string): number {
  const launchers = new Set<string>();
  const children = new Map<string, string[]>();
  for (const pid of readdirSync('/proc').filter(name => /^\d+$/.test(name))) {
    try {
      const parent = /^PPid:\s+(\d+)$/m.exec(readFileSync(`/proc/${pid}/status`, 'utf8'))?.[1] ?? '';
      children.set(parent, [...(children.get(parent) ?? []), pid]);
      if (readFileSync(`/proc/${pid}/environ`, 'utf8').includes(dataDir)) launchers.add(pid);
      if (readFileSync(`/proc/${pid}/cmdline`, 'utf8').includes(dataDir)) launchers.add(pid);
    } catch {
      // It ended while it was looked at.
    }
  }
  const counted = new Set<string>();
  const count = (pid: string) => {
    if (counted.has(pid)) return;
    counted.add(pid);
    for (const child of children.get(pid) ?? []) count(child);
  };
  for (const pid of launchers) count(pid);
  return counted.size;
}

function groupsOf(root: string): number {
  try {
    return readdirSync(root, { recursive: true, withFileTypes: true }).filter(
      entry => entry.isDirectory() && entry.parentPath.includes('rookery'),
    ).length;
  } catch {
    return 0;
  }
}
