import { stat } from 'node:fs/promises';
import { failedPrecondition } from '../../core/error.ts';
import { completePolicy, type HostPathPolicy } from '../../core/host-path.ts';
import type { PortMapping } from '../../core/instance.ts';
import type { SandboxSpec } from '../driver.ts';
import { hasOwnNetwork, type SandboxStateFile } from './handle.ts';
import { type NetworkOptions, networkOf, sharedNetworkSentence } from './network.ts';

export function startRequest(
  spec: SandboxSpec,
  policy: HostPathPolicy,
  networks: NetworkOptions['use'] = 'shared',
): object {
  return {
    instanceId: spec.instanceId,
    command: spec.command,
    secret: spec.secret,
    init: spec.init ?? null,
    user: spec.rootfs.user,
    hasAccounts: spec.hasAccounts ?? false,
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
    policy: spec.mounts.length > 0 ? completePolicy(policy) : null,
    requireIsolation: spec.requireIsolation,
  };
}

/** Returns the isolation layers that this spec has in the sandbox that wrote `file`. */
export function isolationOf(
  spec: SandboxSpec,
  zygote: { readonly hello: HostFacts },
  file: SandboxStateFile,
): readonly string[] {
  const { isolation } = zygote.hello;
  return isolation.filter(layer => (layer !== 'net' || isAlone(spec, file)) && file.lacks?.includes(layer) !== true);
}

/** Checks whether a sandbox's network is separate from the host's. */
export function isAlone(spec: SandboxSpec, file: SandboxStateFile): boolean {
  return hasOwnNetwork(file) || spec.network === 'none' || spec.command.kind === 'http';
}

/**
 * Checks the machine against `requireIsolation`.
 * Fails with `failed_precondition` when a layer or the sandbox's own network is missing.
 */
export function refuseWithoutIsolation(
  spec: SandboxSpec,
  zygote: { readonly hello: HostFacts },
  networks: NetworkOptions['use'],
): void {
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
    zygote.hello.privileged ? 'user_limits' : 'user',
    ...(spec.network === 'none' || spec.command.kind === 'http' ? ['net'] : []),
  ];
  const missing = wanted.filter(layer => !zygote.hello.isolation.includes(layer));
  if (missing.length > 0) {
    throw failedPrecondition(`isolation is required, and this machine does not allow: ${missing.join(', ')}`);
  }
  const { networkMissing } = zygote.hello;
  if (networks === 'own' && spec.network !== 'none' && spec.command.kind !== 'http' && networkMissing) {
    throw failedPrecondition(`isolation is required, and ${sharedNetworkSentence(networkMissing)}`);
  }
}

/** Returns the owner of each mounted directory that the sandbox may write to. */
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
  zygote: { readonly hello: HostFacts },
  uid: number,
): readonly string[] {
  const effective = zygote.hello.privileged ? uid : (process.geteuid?.() ?? uid);
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
  { hello }: { readonly hello: HostFacts },
): readonly string[] {
  if (ports.length === mappings.length) return [];
  if (network === 'none') return ['ports are not published: the sandbox has no network'];
  if (hello.networkMissing === null) {
    return ['UDP ports are not published here: the server is not root, and reaches TCP ports through the inside only'];
  }
  return [
    `ports are not published here (${hello.networkMissing}): what listens inside listens on the network of the host`,
  ];
}

/** Facts that a zygote or a supervisor shim has detected about its machine. */
export interface HostFacts {
  readonly isolation: readonly string[];
  readonly degraded: readonly string[];
  readonly privileged: boolean;
  /** The reason sandboxes have no own network; null when they have one, absent when no attempt was made. */
  readonly networkMissing?: string | null;
}
