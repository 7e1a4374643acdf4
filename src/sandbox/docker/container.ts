import type Docker from 'dockerode';
import { LIMITS } from '../../core/limits.ts';
import { MEBIBYTE } from '../../core/units.ts';
import type { SandboxSpec } from '../driver.ts';
import { ROOT_CAPABILITIES } from './accounts.ts';
import { LABEL_ACCOUNTS, LABEL_INSTALLATION, LABEL_INSTANCE, LABEL_TENANT } from './engine.ts';
import type { CheckedMount } from './mounts.ts';
import { INSIDE_DIRECTORY } from './sandbox-directory.ts';

/** Lower bound that Docker sets for cpu shares; the upper bound is the kernel's. */
const MIN_CPU_SHARES = 2;
const MAX_CPU_SHARES = 262_144;
const SHARES_PER_CPU = 1024;
/** Memory limit that JSON still carries exactly. No machine has that much memory. */
const MAX_MEMORY_BYTES = 2 ** 52;

/** Parts of a container in addition to its spec. */
export interface ContainerPlan {
  readonly spec: SandboxSpec;
  readonly installation: string;
  /** Host directory that is mounted at /run/rookery. */
  readonly shared: string;
  readonly mounts: readonly CheckedMount[];
  /** Name of a network; `none` gives the container loopback only. */
  readonly network: string;
  /** Command line; null runs the image's own command. */
  readonly argv: readonly string[] | null;
  /** Values for `SecurityOpt` of the Engine API. */
  readonly securityOptions: readonly string[];
  /** Variables in addition to those of the spec. */
  readonly env: Readonly<Record<string, string>>;
}

export function containerName(instanceId: string): string {
  return `rookery-${instanceId}`;
}

/**
 * Paths that are hidden in a container: Docker's defaults and more files of the machine in /proc. Uid 0
 * inside may be uid 0 on the host and could read them.
 */
const MASKED_PATHS = [
  ...[
    'asound',
    'acpi',
    'interrupts',
    'kcore',
    'keys',
    'latency_stats',
    'sched_debug',
    'scsi',
    'timer_list',
    'timer_stats',
  ],
  ...['buddyinfo', 'cmdline', 'config.gz', 'iomem', 'ioports', 'kallsyms', 'key-users', 'kmsg', 'kpagecgroup'],
  ...[
    'kpagecount',
    'kpageflags',
    'modules',
    'pagetypeinfo',
    'slabinfo',
    'softirqs',
    'vmallocinfo',
    'vmstat',
    'zoneinfo',
  ],
]
  .map(name => `/proc/${name}`)
  .concat('/sys/firmware', '/sys/devices/virtual/powercap');

/** Returns the options with which the Engine creates the container. */
export function containerOptions(plan: ContainerPlan): Docker.ContainerCreateOptions {
  const { spec, installation, network } = plan;
  const hasAccounts = spec.hasAccounts === true;
  const memoryBytes = Math.min(spec.memoryMb * MEBIBYTE, MAX_MEMORY_BYTES);
  return {
    name: containerName(spec.instanceId),
    Image: spec.rootfs.imageUrl,
    ...(plan.argv === null ? {} : { Entrypoint: [...plan.argv], Cmd: [] }),
    // An empty user means root, even if the image names another user.
    User: hasAccounts || spec.rootfs.user === '' ? '0' : spec.rootfs.user,
    // The image's own command starts in the image's own directory, because a code path may be a mere label.
    // If the caller has mounted that path, the command starts there.
    ...(plan.argv === null && !isMounted(spec, spec.workingDir) ? {} : { WorkingDir: spec.workingDir }),
    Env: Object.entries({ ...spec.env, ...plan.env }).map(([name, value]) => `${name}=${value}`),
    Labels: {
      [LABEL_INSTALLATION]: installation,
      [LABEL_TENANT]: spec.tenant,
      [LABEL_INSTANCE]: spec.instanceId,
      ...(hasAccounts && { [LABEL_ACCOUNTS]: 'true' }),
    },
    ExposedPorts: Object.fromEntries(portsOf(spec).map(port => [port, {}])),
    // A health check of the image would use the instance's cpu and memory.
    Healthcheck: { Test: ['NONE'] },
    HostConfig: {
      // The first process of a container with accounts is an init itself.
      Init: !hasAccounts,
      NetworkMode: network,
      Mounts: [
        bind(plan.shared, INSIDE_DIRECTORY, false),
        ...plan.mounts.map(each => bind(each.source, each.target, each.readonly)),
      ],
      PortBindings: Object.fromEntries(portsOf(spec).map(port => [port, [{ HostIp: '127.0.0.1', HostPort: '' }]])),
      CpuShares: Math.min(
        MAX_CPU_SHARES,
        Math.max(MIN_CPU_SHARES, Math.round((spec.cpuMillis * SHARES_PER_CPU) / 1000)),
      ),
      Memory: memoryBytes,
      MemorySwap: memoryBytes,
      // The init process of the container takes one process in addition.
      PidsLimit: spec.maxProcesses + 1,
      Ulimits: [
        { Name: 'nofile', Soft: spec.maxOpenFiles, Hard: spec.maxOpenFiles },
        { Name: 'core', Soft: 0, Hard: 0 },
      ],
      CapDrop: ['ALL'],
      ...(hasAccounts && { CapAdd: ROOT_CAPABILITIES }),
      SecurityOpt: [...plan.securityOptions],
      IpcMode: 'private',
      // Files in /dev/shm count as memory, so the memory limit bounds them, as in a process sandbox.
      ShmSize: memoryBytes,
      MaskedPaths: MASKED_PATHS,
      RestartPolicy: { Name: 'no' },
      LogConfig: {
        Type: 'json-file',
        Config: { 'max-size': String(LIMITS.logFileBytes), 'max-file': String(LIMITS.logFiles) },
      },
    },
  };
}

function isMounted({ mounts }: SandboxSpec, directory: string): boolean {
  return mounts.some(({ target }) => `${directory}/`.startsWith(`${target.replace(/\/+$/, '')}/`));
}

function portsOf(spec: SandboxSpec): readonly string[] {
  return spec.ports.map(({ port, protocol }) => `${port}/${protocol}`);
}

function bind(source: string, target: string, readonly: boolean): Docker.MountSettings {
  // Later mounts below a source do not appear inside, nor do mounts inside appear on the host. Existing
  // mounts below a source would stay writable in a read-only mount, so leave them out.
  const options = { Propagation: 'rprivate' as const, NonRecursive: readonly };
  return { Type: 'bind', Source: source, Target: target, ReadOnly: readonly, BindOptions: options };
}
