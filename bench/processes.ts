import { readdirSync, readFileSync } from 'node:fs';

/** Reads numbers about processes from /proc. A process that has ended counts as 0. */

interface Stat {
  readonly pid: number;
  readonly parent: number;
  readonly cpuTicks: number;
}

/** Ticks per second of `getconf CLK_TCK`, which is 100 on every Linux that Node.js supports. */
const TICKS_PER_SECOND = 100;

function read(path: string): string {
  try {
    return readFileSync(path, 'utf8');
  } catch {
    return '';
  }
}

function stat(pid: number): Stat | null {
  const text = read(`/proc/${pid}/stat`);
  // The name in parentheses may contain any character. The fields after it have fixed positions.
  const fields = text.slice(text.lastIndexOf(')') + 2).split(' ');
  if (fields.length < 20) return null;
  return { pid, parent: Number(fields[1]), cpuTicks: Number(fields[11]) + Number(fields[12]) };
}

function allStats(): readonly Stat[] {
  return readdirSync('/proc')
    .filter(name => /^\d+$/.test(name))
    .map(name => stat(Number(name)))
    .filter(found => found !== null);
}

/** Returns the given processes and all their descendants. */
export function familyOf(roots: readonly number[]): ReadonlySet<number> {
  const children = new Map<number, number[]>();
  for (const { pid, parent } of allStats()) children.set(parent, [...(children.get(parent) ?? []), pid]);
  const family = new Set<number>();
  const left = [...roots];
  for (let pid = left.pop(); pid !== undefined; pid = left.pop()) {
    if (family.has(pid)) continue;
    family.add(pid);
    left.push(...(children.get(pid) ?? []));
  }
  return family;
}

export function parentOf(pid: number): number {
  return stat(pid)?.parent ?? 0;
}

/** Returns the memory, in MiB, that only the given processes use and that the kernel frees when they end. */
export function privateMb(pids: Iterable<number>): number {
  let kilobytes = 0;
  for (const pid of pids) {
    for (const [, amount] of read(`/proc/${pid}/smaps_rollup`).matchAll(/^Private_(?:Clean|Dirty): +(\d+) kB$/gm)) {
      kilobytes += Number(amount);
    }
  }
  return kilobytes / 1024;
}

/** Returns the processor time, in seconds, that the given processes have used since their start. */
export function cpuSeconds(pids: Iterable<number>): number {
  let ticks = 0;
  for (const pid of pids) ticks += stat(pid)?.cpuTicks ?? 0;
  return ticks / TICKS_PER_SECOND;
}
