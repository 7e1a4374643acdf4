import { stat } from 'node:fs/promises';
import { failedPrecondition } from '../../core/error.ts';
import type { HostPathPolicy } from '../../core/host-path.ts';
import type { PortMapping } from '../../core/instance.ts';
import type { SandboxSpec } from '../driver.ts';
import type { Launcher } from './launchers.ts';
import { type NetworkOptions, networkOf } from './network.ts';

export function startRequest(
  spec: SandboxSpec,
  policy: HostPathPolicy,
  networks: NetworkOptions['use'] = 'shared',
): object {
  return {
    instanceId: spec.instanceId,
    command: spec.command,
    secret: spec.secret,
    user: spec.rootfs.user,
    env: spec.env,
    workingDir: spec.workingDir,
    mounts: spec.mounts,
    platformMounts: spec.platformMounts ?? [],
    survivesCaller: spec.survivesCaller ?? false,
    cpuMillis: spec.cpuMillis,
    memoryMb: spec.memoryMb,
    maxProcesses: spec.maxProcesses,
    maxOpenFiles: spec.maxOpenFiles,
    network: networkOf(spec, networks),
    policy,
  };
}

/** The layers that hold for this spec. `address` is the one that it has in a network of its own. */
export function isolationOf(
  spec: SandboxSpec,
  launcher: Pick<Launcher, 'hello'>,
  address: string | null = null,
): readonly string[] {
  const isAlone = address !== null || spec.network === 'none' || spec.command.kind === 'http';
  return launcher.hello.isolation.filter(layer => layer !== 'net' || isAlone);
}

export function refuseWithoutIsolation(spec: SandboxSpec, launcher: Pick<Launcher, 'hello'>): void {
  if (!spec.requireIsolation) return;
  const wanted = [
    'mount',
    'pid',
    'ipc',
    'uts',
    'seccomp',
    'no_new_privs',
    'capabilities',
    'cgroup.memory',
    'cgroup.cpu',
    'cgroup.pids',
    ...(launcher.hello.privileged ? [] : ['user']),
    ...(spec.network === 'none' || spec.command.kind === 'http' ? ['net'] : []),
  ];
  const missing = wanted.filter(layer => !launcher.hello.isolation.includes(layer));
  if (missing.length === 0) return;
  throw failedPrecondition(`isolation is required, and this machine does not allow: ${missing.join(', ')}`);
}

/** The owner of each directory that the sandbox may write to. */
export async function sourceOwners(
  spec: SandboxSpec,
): Promise<readonly { source: string; uid: number; isOpen: boolean }[]> {
  const writable = spec.mounts.filter(mount => !mount.readonly);
  const owners = await Promise.all(
    writable.map(async ({ source }) => {
      try {
        const { uid, mode } = await stat(source);
        return { source, uid, isOpen: (mode & 0o002) !== 0 };
      } catch {
        return null;
      }
    }),
  );
  return owners.filter(owner => owner !== null);
}

export function ownerWarnings(
  owners: Awaited<ReturnType<typeof sourceOwners>>,
  spec: SandboxSpec,
  launcher: Pick<Launcher, 'hello'>,
  uid: number,
): readonly string[] {
  const effective = launcher.hello.privileged ? uid : (process.geteuid?.() ?? uid);
  const user = spec.rootfs.user === '' ? 'root' : spec.rootfs.user;
  return owners
    .filter(owner => owner.uid !== effective && !owner.isOpen)
    .map(
      owner =>
        `${owner.source} belongs to uid ${owner.uid} and ${user} has uid ${effective} on this host: writing to it may be denied`,
    );
}

export function portWarnings(
  { network, ports }: SandboxSpec,
  mappings: readonly PortMapping[],
  { hello }: Pick<Launcher, 'hello'>,
): readonly string[] {
  if (ports.length === 0 || mappings.length > 0) return [];
  if (network === 'none') return ['ports are not published: the sandbox has no network'];
  return [
    `ports are not published here (${hello.networkMissing}): what listens inside listens on the network of the host`,
  ];
}
