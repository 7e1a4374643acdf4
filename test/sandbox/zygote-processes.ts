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

/** The process whose parent is none of ours: a zygote, and nothing that it has forked. */
export function pidOf(title: string): number | null {
  const isChild = (pid: string) => commandLine(parentOf(pid)).startsWith('rookery: ');
  const [first] = pids().filter(pid => commandLine(pid) === title && !isChild(pid));
  return first === undefined ? null : Number(first);
}

/**
 * The zygotes of this data directory that run. What one forks bears its title at first: the init of an instance a moment longer than its start
 * takes to be answered.
 */
export function zygotePids(dataDir: string): readonly number[] {
  return zygoteTitles(dataDir).flatMap(title => pidOf(title) ?? []);
}

/** Of the zygotes that have begun in this data directory and have not ended cleanly. */
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
