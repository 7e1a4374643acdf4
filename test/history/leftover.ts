import { readdirSync, readFileSync, readlinkSync } from 'node:fs';
import { join } from 'node:path';

const TICKS_PER_SECOND = 100;
const LOG_CHARS = 2_000;

/** Describes a process that should have ended: its command, age, parent, wait state and output. */
export function describeProcess(pid: number): string {
  const [state = '?', parent = '0', ...fields] = statOf(pid);
  const upSeconds = Number(read('/proc/uptime').split(' ')[0]);
  const ageSeconds = upSeconds - Number(fields[17]) / TICKS_PER_SECOND;
  const facts = [
    `pid ${pid}`,
    `state ${state}`,
    `${ageSeconds.toFixed(1)} s old`,
    `child of ${parent} (${titleOf(Number(parent))})`,
    `named ${read(`/proc/${pid}/comm`).trim()}`,
    `waits in ${read(`/proc/${pid}/wchan`) || 'nothing'}`,
    `writes to ${linkOf(pid, 1)}`,
    `${descriptorsOf(pid)} descriptors`,
  ];
  return `${titleOf(pid)} (${facts.join(', ')})`;
}

/** Returns the files of zygotes in this data directory, and the content of their logs. */
export function describeZygotes(dataDir: string): string {
  const run = join(dataDir, 'run');
  const names = list(run).filter(name => /^(py|program)/.test(name));
  const logs = names.filter(name => name.endsWith('.log'));
  return [
    `in run: ${names.join(', ') || 'nothing of a zygote'}`,
    ...logs.map(name => `${name}: ${read(join(run, name)).slice(-LOG_CHARS)}`),
  ].join('\n');
}

/** Returns the fields of `/proc/<pid>/stat` from the state on, as proc(5) counts them. */
function statOf(pid: number): readonly string[] {
  const stat = read(`/proc/${pid}/stat`);
  return stat
    .slice(stat.lastIndexOf(')') + 2)
    .trim()
    .split(' ');
}

function titleOf(pid: number): string {
  return read(`/proc/${pid}/cmdline`).replaceAll('\0', ' ').trim();
}

function descriptorsOf(pid: number): number {
  return list(`/proc/${pid}/fd`).length;
}

function list(directory: string): readonly string[] {
  try {
    return readdirSync(directory);
  } catch {
    return [];
  }
}

function read(path: string): string {
  try {
    return readFileSync(path, 'utf8');
  } catch {
    return '';
  }
}

function linkOf(pid: number, descriptor: number): string {
  try {
    return readlinkSync(`/proc/${pid}/fd/${descriptor}`);
  } catch {
    return 'nothing';
  }
}
