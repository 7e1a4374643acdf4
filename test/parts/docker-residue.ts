import { spawnSync } from 'node:child_process';
import { existsSync, readdirSync, readFileSync, rmdirSync } from 'node:fs';
import { join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';

const RUN_TIMEOUT_MS = 20_000;

/** Kernel objects that a test's Docker daemon leaves when it ends. */
export interface Residue {
  /** Directory that contains all files of the daemon. */
  readonly directory: string;
  readonly bridge: string;
  /** The parent cgroup of its containers, as a name at the top of each hierarchy. */
  readonly cgroup: string;
  /** The start of every address that the daemon assigns: `10.123.`. */
  readonly addresses: string;
}

/** Removes processes, mounts, interfaces, firewall rules and cgroups. Ignores those that are missing. */
export async function removeResidue({ directory, bridge, cgroup, addresses }: Residue): Promise<void> {
  await killProcesses(shims(directory, cgroup));
  unmountBelow(directory);
  const bridges = bridgesWith(addresses);
  for (const name of [bridge, ...bridges]) run('ip', ['link', 'delete', name]);
  removeRules([bridge, ...bridges], addresses);
  removeCgroups(cgroup);
}

/** Kills processes and waits until they have ended. */
export async function killProcesses(pids: readonly number[]): Promise<void> {
  for (const pid of pids) kill(pid);
  const giveUpAt = Date.now() + RUN_TIMEOUT_MS;
  while (pids.some(isAlive) && Date.now() < giveUpAt) await delay(10);
}

/** Returns true if a process runs. A zombie does not count. */
export function isAlive(pid: number): boolean {
  const stat = readOr(`/proc/${pid}/stat`);
  return stat !== '' && !/^[ZX]/.test(stat.slice(stat.lastIndexOf(')') + 2));
}

/**
 * Returns the shims of containers that outlived their daemon. A shim names the daemon's directory, or its
 * namespace in a containerd of the machine.
 */
function shims(directory: string, namespace: string): readonly number[] {
  const found: number[] = [];
  for (const pid of readdirSync('/proc').filter(name => /^\d+$/.test(name))) {
    const command = readOr(`/proc/${pid}/cmdline`).split('\0');
    if (!command[0]?.includes('containerd') || !command.some(part => part.startsWith(directory) || part === namespace))
      continue;
    const children = readOr(`/proc/${pid}/task/${pid}/children`).split(' ').filter(Boolean);
    found.push(...children.map(Number), Number(pid));
  }
  return found;
}

function unmountBelow(directory: string): void {
  const points = readOr('/proc/self/mountinfo')
    .split('\n')
    .map(line => line.split(' ')[4] ?? '')
    .filter(point => point.startsWith(`${directory}/`));
  for (const point of points.reverse()) run('umount', ['-l', point]);
}

function bridgesWith(addresses: string): readonly string[] {
  const { output } = run('ip', ['-o', '-4', 'address']);
  return output
    .split('\n')
    .filter(line => line.includes(` inet ${addresses}`))
    .map(line => line.split(/\s+/)[1] ?? '')
    .filter(name => name !== '');
}

/**
 * Removes rules that name the daemon's interfaces or addresses. Removes the chains that all daemons share
 * when no daemon has a network in them.
 */
function removeRules(interfaces: readonly string[], addresses: string): void {
  const isOurs = (rule: string) =>
    interfaces.some(name => rule.includes(` ${name} `)) ||
    rule.includes(` ${addresses}`) ||
    /-[io] br-[0-9a-f]{12}/.test(rule);
  for (const table of ['filter', 'nat']) {
    const rules = rulesOf(table);
    const stale = rules.filter(rule => rule.startsWith('-A ') && isOurs(`${rule} `) && !namesLiveBridge(rule));
    for (const rule of stale) run('iptables', ['-w', '-t', table, '-D', ...words(rule).slice(1)]);
  }
  const isShared = rulesOf('filter').some(rule => /^-A FORWARD -o \S+ -j DOCKER$/.test(rule));
  if (isShared) return;
  for (const table of ['filter', 'nat']) {
    const rules = rulesOf(table);
    const jumps = rules.filter(rule => /^-A (?!DOCKER)\S+ .*-j DOCKER(?:-\S+)?$/.test(rule));
    for (const rule of jumps) run('iptables', ['-w', '-t', table, '-D', ...words(rule).slice(1)]);
    const chains = rules.filter(rule => rule.startsWith('-N DOCKER')).map(rule => words(rule)[1] ?? '');
    for (const chain of chains) run('iptables', ['-w', '-t', table, '-F', chain]);
    for (const chain of chains) run('iptables', ['-w', '-t', table, '-X', chain]);
  }
}

/**
 * Returns true if a rule names an existing bridge. A live daemon's network has its bridge; a dead one's has
 * none.
 */
function namesLiveBridge(rule: string): boolean {
  const name = / -[io] (br-[0-9a-f]{12})/.exec(rule)?.[1];
  return name !== undefined && existsSync(`/sys/class/net/${name}`);
}

function rulesOf(table: string): readonly string[] {
  return run('iptables', ['-w', '-t', table, '-S']).output.split('\n');
}

function words(rule: string): string[] {
  return rule.trim().split(/\s+/);
}

/** Removes a cgroup: one directory in each hierarchy of cgroup v1, one directory in v2. */
function removeCgroups(name: string): void {
  const roots = ['/sys/fs/cgroup', ...list('/sys/fs/cgroup').map(child => `/sys/fs/cgroup/${child}`)];
  for (const root of roots) removeCgroup(join(root, name));
}

function removeCgroup(directory: string): void {
  if (!existsSync(directory)) return;
  for (const child of list(directory)) removeCgroup(join(directory, child));
  try {
    rmdirSync(directory);
  } catch {
    // The directory was removed meanwhile, or a process in it is about to end.
  }
}

function list(directory: string): readonly string[] {
  try {
    return readdirSync(directory, { withFileTypes: true })
      .filter(entry => entry.isDirectory())
      .map(entry => entry.name);
  } catch {
    return [];
  }
}

function readOr(file: string): string {
  try {
    return readFileSync(file, 'utf8');
  } catch {
    return '';
  }
}

function kill(pid: number): void {
  try {
    process.kill(pid, 'SIGKILL');
  } catch {
    // The process has ended.
  }
}

function run(program: string, args: readonly string[]): { readonly output: string } {
  const { stdout } = spawnSync(program, args, { encoding: 'utf8', timeout: RUN_TIMEOUT_MS });
  return { output: stdout ?? '' };
}
