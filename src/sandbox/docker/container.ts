import type Docker from 'dockerode';
import { LIMITS } from '../../core/limits.ts';
import type { SandboxSpec } from '../driver.ts';
import { INSIDE_DIRECTORY } from './directory.ts';
import { LABEL_INSTALLATION, LABEL_INSTANCE, LABEL_TENANT } from './labels.ts';
import type { CheckedMount } from './mounts.ts';

/** Docker's own bounds of cpu shares (2) and those of the kernel. */
const MIN_CPU_SHARES = 2;
const MAX_CPU_SHARES = 262_144;
const SHARES_PER_CPU = 1024;
const MEBIBYTE = 1024 * 1024;
/** The largest number that JSON carries exactly; no machine has so much memory. */
const MAX_MEMORY_BYTES = 2 ** 52;

/** The parts of a container beside its spec. */
export interface ContainerPlan {
  readonly spec: SandboxSpec;
  readonly installation: string;
  /** Host directory that is shared at /run/rookery. */
  readonly shared: string;
  readonly mounts: readonly CheckedMount[];
  /** Name of a network, `none` for loopback only. */
  readonly network: string;
  /** null: the image's own command. */
  readonly argv: readonly string[] | null;
  /** `SecurityOpt` of the Engine. */
  readonly securityOptions: readonly string[];
  /** Beside the spec's. */
  readonly env: Readonly<Record<string, string>>;
}

export function containerName(instanceId: string): string {
  return `rookery-${instanceId}`;
}

/** The container as the Engine is asked to make it. */
export function containerOptions(plan: ContainerPlan): Docker.ContainerCreateOptions {
  const { spec, installation, network } = plan;
  const memoryBytes = Math.min(spec.memoryMb * MEBIBYTE, MAX_MEMORY_BYTES);
  return {
    name: containerName(spec.instanceId),
    Image: spec.rootfs.imageUrl,
    ...(plan.argv === null ? {} : { Entrypoint: [...plan.argv], Cmd: [] }),
    // None is root, whatever user the image names.
    User: spec.rootfs.user === '' ? '0' : spec.rootfs.user,
    // The image's own command begins in the image's own directory, unless the caller has mounted another one: a code path may be a mere label.
    ...(plan.argv === null && !isMounted(spec, spec.workingDir) ? {} : { WorkingDir: spec.workingDir }),
    Env: Object.entries({ ...spec.env, ...plan.env }).map(([name, value]) => `${name}=${value}`),
    Labels: {
      [LABEL_INSTALLATION]: installation,
      [LABEL_TENANT]: spec.tenant,
      [LABEL_INSTANCE]: spec.instanceId,
    },
    ExposedPorts: Object.fromEntries(portsOf(spec).map(port => [port, {}])),
    // A check that the image brings would run beside the instance, at its cost.
    Healthcheck: { Test: ['NONE'] },
    HostConfig: {
      Init: true,
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
      // Its init is one more.
      PidsLimit: spec.maxProcesses + 1,
      Ulimits: [
        { Name: 'nofile', Soft: spec.maxOpenFiles, Hard: spec.maxOpenFiles },
        { Name: 'core', Soft: 0, Hard: 0 },
      ],
      CapDrop: ['ALL'],
      SecurityOpt: [...plan.securityOptions],
      IpcMode: 'private',
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
  // What is mounted below a source later does not appear inside, nor the other way round. What is mounted below it already would stay
  // writable in a read-only one.
  const options = { Propagation: 'rprivate' as const, NonRecursive: readonly };
  return { Type: 'bind', Source: source, Target: target, ReadOnly: readonly, BindOptions: options };
}
