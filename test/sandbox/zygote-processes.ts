import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';

export function pids(): readonly string[] {
  return readdirSync('/proc').filter(name => /^\d+$/.test(name));
}

export function commandLine(pid: string): string {
  try {
    return readFileSync(`/proc/${pid}/cmdline`, 'utf8').replaceAll('\0', ' ').trim();
  } catch {
    return '';
  }
}

/** Returns the process with this title whose parent is no process of Rookery: a zygote, not its forks. */
export function pidOf(title: string): number | null {
  const isChild = (pid: string) => commandLine(parentOf(pid)).startsWith('rookery: ');
  const [first] = pids().filter(pid => commandLine(pid) === title && !isChild(pid));
  return first === undefined ? null : Number(first);
}

/**
 * Returns the running zygotes of this data directory. A fork keeps the title of its zygote at first; the init
 * of an instance keeps it slightly longer than its start takes.
 */
export function zygotePids(dataDir: string): readonly number[] {
  return zygoteTitles(dataDir).flatMap(title => pidOf(title) ?? []);
}

/** Returns the titles of zygotes that have started in this data directory and have not ended cleanly. */
export function zygoteTitles(dataDir: string): readonly string[] {
  const names = readdirSync(join(dataDir, 'run')).filter(name => name.endsWith('.lock'));
  return names.map(name => `rookery: zygote ${name.slice(0, -'.lock'.length)}`);
}

function parentOf(pid: string): string {
  try {
    const stat = readFileSync(`/proc/${pid}/stat`, 'latin1');
    return stat.slice(stat.lastIndexOf(')') + 2).split(' ')[1] ?? '';
  } catch {
    return '';
  }
}
