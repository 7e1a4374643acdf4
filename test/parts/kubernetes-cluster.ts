import { execFile, spawn, spawnSync } from 'node:child_process';
import {
  existsSync,
  lstatSync,
  mkdtempSync,
  openSync,
  readdirSync,
  readFileSync,
  rmSync,
  writeFileSync,
} from 'node:fs';
import { rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { promisify } from 'node:util';
import { ROOT } from '../../scripts/command.ts';
import { whyNoDocker } from './docker.ts';
import { isAlive, killProcesses, removeResidue } from './docker-residue.ts';
import { KEPT_DIR } from './kept.ts';
import { withMachineLock } from './machine-lock.ts';

const execute = promisify(execFile);

/** Directory of the programs that start and end a one-node cluster, if this machine has them. */
const PROGRAMS = join(ROOT, '../shared/kube');
/** Binary that `up` compiles, kept between runs. */
const BINARY = join(KEPT_DIR, 'kube-test-bin/kube');
/** Default directory in which `up` starts a cluster. */
const USUAL_DIRECTORY = join(KEPT_DIR, 'kube-test');
/** File that names the directory of the tests' cluster; it remains after a killed run. */
const STARTED = join(KEPT_DIR, 'rookery-test-kubernetes.json');
/** Timeout for compiling and starting on a busy machine. */
export const CLUSTER_START_MS = 1_500_000;
const DOWN_TIMEOUT_MS = 60_000;
const ENDING_MS = 20_000;
const PROBE_TIMEOUT_MS = 10_000;
const LOCK_TIMEOUT_MS = 600_000;
const LOG_TAIL_CHARS = 2_000;

/** Programs that `up` needs, with their Debian packages. Tests install nothing. */
const NEEDED: readonly (readonly [program: string, inPackage: string])[] = [
  ['etcd', 'etcd-server'],
  ['containerd', 'containerd'],
  ['conntrack', 'conntrack'],
  ['socat', 'socat'],
  ['ip', 'iproute2'],
  ['openssl', 'openssl'],
  ['iptables', 'iptables'],
  ['/usr/lib/cni/bridge', 'containernetworking-plugins'],
  ['kubectl', 'kubernetes-client'],
  ['curl', 'curl'],
  ['gcc', 'gcc'],
];

/** Directories that kubelet, containerd and their plugins use regardless of their own settings. */
const SHARED_DIRECTORIES = [
  '/run/containerd/s',
  '/run/netns',
  '/var/lib/cni',
  '/var/lib/cni/networks',
  '/var/lib/cni/results',
  '/var/lib/kubelet',
  '/var/log/containers',
  '/var/log/pods',
];
const KUBELET_CHAIN = /^-[NA] .*KUBE-/;
const TABLES = ['mangle', 'filter', 'nat'];

/** Returns the kubeconfig from `KUBECONFIG`, or null. The cluster of a given file is used without a check. */
export function givenKubeconfig(): string | null {
  const given = process.env.KUBECONFIG;
  return given === undefined || given === '' ? null : given;
}

/** Returns why no test can have a cluster, as a sentence, or null when each can. */
export function whyNoKubernetes(): string | null {
  const given = givenKubeconfig();
  if (given !== null) return existsSync(given) ? null : `KUBECONFIG names ${given}, which is no file`;
  return runningCluster() === null ? (whyNoCluster() ?? whyNoDocker()) : null;
}

/** Returns why no test can stop and start components of the cluster, or null when each can. */
export function whyNoComponents(): string | null {
  const given = givenKubeconfig();
  const isElsewhere = given !== null && !existsSync(join(dirname(given), 'pids'));
  return whyNoKubernetes() ?? (isElsewhere ? 'the components of the cluster of KUBECONFIG are not known' : null);
}

function whyNoCluster(): string | null {
  if (!existsSync(join(PROGRAMS, 'up'))) return 'KUBECONFIG is not set, and no program is here that starts a cluster';
  if (process.getuid?.() !== 0) return 'a cluster can only be started as root';
  const needed = existsSync(BINARY) ? NEEDED : [...NEEDED, ['go', 'golang-go'] as const];
  for (const [program, inPackage] of needed) {
    const { status } = spawnSync('sh', ['-c', `command -v ${program}`], { stdio: 'ignore' });
    if (status !== 0) return `${program} is not installed (apt-get install ${inPackage})`;
  }
  return null;
}

/** Returns the default directory when a cluster that was started there answers, otherwise null. */
export function runningCluster(): string | null {
  const kubeconfig = join(USUAL_DIRECTORY, 'kubeconfig');
  if (!existsSync(kubeconfig)) return null;
  const { status } = spawnSync('kubectl', ['--kubeconfig', kubeconfig, 'version', '--request-timeout=5s'], {
    stdio: 'ignore',
    timeout: PROBE_TIMEOUT_MS,
  });
  return status === 0 ? USUAL_DIRECTORY : null;
}

interface Started {
  readonly directory: string;
  /** Content of `SHARED_DIRECTORIES` before the start. */
  readonly before: Readonly<Record<string, readonly string[]>>;
}

/**
 * Starts a real one-node cluster. Its ports and interfaces are fixed, so a machine has one at a time and
 * other runs wait. `stop` leaves no residue, and the next start ends the residue of a killed run.
 */
export async function startCluster(dockerHost: string): Promise<{ directory: string; stop(): Promise<void> }> {
  let end = (): void => undefined;
  const ended = new Promise<void>(resolve => {
    end = resolve;
  });
  return await new Promise((resolve, reject) => {
    const life = withMachineLock('kubernetes', LOCK_TIMEOUT_MS, () =>
      live(dockerHost, directory => {
        resolve({
          directory,
          stop: () => {
            end();
            return life;
          },
        });
        return ended;
      }),
    );
    life.catch(reject);
  });
}

async function live(dockerHost: string, untilEnd: (directory: string) => Promise<void>): Promise<void> {
  if (existsSync(STARTED)) await remove(JSON.parse(readFileSync(STARTED, 'utf8')) as Started);
  const directory = mkdtempSync(join(tmpdir(), 'kube-'));
  const state = { directory, before: Object.fromEntries(SHARED_DIRECTORIES.map(path => [path, list(path)])) };
  writeFileSync(STARTED, JSON.stringify(state));
  try {
    await up(directory, dockerHost);
    await untilEnd(directory);
  } finally {
    await remove(state);
  }
}

/** Starts the cluster without pipes, since the components that continue to run would keep them open. */
async function up(directory: string, dockerHost: string): Promise<void> {
  shareNetworkNamespaces();
  const log = join(directory, 'up.log');
  const output = openSync(log, 'a');
  const child = spawn(join(PROGRAMS, 'up'), [directory], {
    stdio: ['ignore', output, output],
    env: { ...process.env, KUBE: BINARY, DOCKER_HOST: dockerHost, DOCKER_CONTEXT: '' },
    timeout: CLUSTER_START_MS,
  });
  const code = await new Promise<number | null>((resolve, reject) => child.once('error', reject).once('exit', resolve));
  if (code === 0) return;
  throw new Error(`the cluster did not start: ${readFileSync(log, 'utf8').slice(-LOG_TAIL_CHARS)}`);
}

/**
 * Mounts the directory of `ip netns` before pods exist. The first `ip netns add` makes this mount. Next to a
 * running pod it would hide that pod's network, and no pod could end any more.
 */
function shareNetworkNamespaces(): void {
  const name = `rookery-test-${process.pid}`;
  for (const action of ['add', 'delete']) spawnSync('ip', ['netns', action, name], { stdio: 'ignore' });
}

async function remove({ directory, before }: Started): Promise<void> {
  const pids = pidsOf(directory);
  await execute(join(PROGRAMS, 'down'), [directory], { timeout: DOWN_TIMEOUT_MS }).catch(() => undefined);
  // The program `down` does not wait for the processes.
  const giveUpAt = Date.now() + ENDING_MS;
  while (pids.some(isAlive) && Date.now() < giveUpAt) await new Promise(resolve => setTimeout(resolve, 50));
  await killProcesses(pids);
  const residue = { directory, bridge: 'cni0', cgroup: 'kubepods', addresses: '10.244.' };
  await withMachineLock('docker-residue', LOCK_TIMEOUT_MS, () => removeResidue(residue));
  removeChains();
  for (const path of SHARED_DIRECTORIES) {
    for (const name of list(path).filter(name => !before[path]?.includes(name))) {
      const made = join(path, name);
      spawnSync('umount', ['-l', made], { stdio: 'ignore' });
      rmSync(made, { recursive: true, force: true });
    }
  }
  await rm(directory, { recursive: true, force: true, maxRetries: 5 });
  rmSync(STARTED, { force: true });
}

/** Returns the pids of `up` that still belong to its processes, since a pid may be reused. */
function pidsOf(directory: string): readonly number[] {
  const file = join(directory, 'pids');
  if (!existsSync(file)) return [];
  const pids = readFileSync(file, 'utf8')
    .split('\n')
    .map(line => Number(line.split(' ')[0]))
    .filter(pid => pid > 0);
  return pids.filter(pid => {
    try {
      return readFileSync(`/proc/${pid}/environ`, 'utf8').split('\0').includes(`PWD=${directory}`);
    } catch {
      return false;
    }
  });
}

/** Removes the packet filter rules that outlive kubelet. */
function removeChains(): void {
  for (const table of TABLES) {
    const { stdout } = spawnSync('iptables', ['-w', '-t', table, '-S'], {
      encoding: 'utf8',
      timeout: PROBE_TIMEOUT_MS,
    });
    const rules = (stdout ?? '').split('\n').filter(rule => KUBELET_CHAIN.test(rule));
    for (const rule of rules.filter(rule => rule.startsWith('-A ') && !rule.startsWith('-A KUBE-'))) {
      spawnSync('sh', ['-c', `iptables -w -t ${table} ${rule.replace('-A', '-D')}`], { stdio: 'ignore' });
    }
    const chains = rules.filter(rule => rule.startsWith('-N ')).map(rule => rule.split(' ')[1] ?? '');
    for (const flag of ['-F', '-X']) {
      for (const chain of chains) spawnSync('iptables', ['-w', '-t', table, flag, chain], { stdio: 'ignore' });
    }
  }
}

function list(path: string): readonly string[] {
  return lstatSync(path, { throwIfNoEntry: false })?.isDirectory() ? readdirSync(path) : [];
}
