import type { Environment } from '../../core/environment.ts';
import type { HostPathPolicy } from '../../core/host-path.ts';
import { boolean, choice, integer, type SettingValues, text, textMap, texts } from '../../core/setting.ts';
import type { Removals } from '../../lib/removals.ts';
import type { Logger } from '../../telemetry/logger.ts';
import type { DriverContext } from '../driver-definition.ts';
import type { DiskOptions } from './disk-watch.ts';
import type { NetworkOptions } from './network.ts';

/** `process.…`: settings of every sandbox on the files of this host, with zygotes or under supervisord. */
export const HOST_SETTINGS = {
  spares: integer({
    default: 4,
    min: 0,
    max: 256,
    unit: 'processes',
    doc: 'How many sandboxes without code are kept ready for each Python interpreter in use, so that a create takes milliseconds.',
    example: '16',
  }),
  warm: texts({
    default: [],
    pattern: /^3\.\d{1,2}$/,
    shape: 'Python versions such as "3.11" (in quotes)',
    doc: 'Python versions whose zygote starts with the service instead of at the first create.',
    example: '["3.11"]',
  }),
  zygotePerTenant: boolean({
    default: false,
    doc: 'Whether each tenant has its own zygotes, so that tenants do not share address layout and hash seed. Each zygote takes memory and keeps `process.spares` sandboxes ready.',
    example: 'true',
  }),
  pythons: textMap({
    default: {},
    keyPattern: /^3\.\d{1,2}$/,
    shape: 'a map from a Python version such as "3.11" (in quotes) to the path of its interpreter',
    doc: 'Interpreters by version, in addition to those on the PATH, in well-known places and from pyenv.',
    example: '{"3.13": /opt/python3.13/bin/python3.13}',
  }),
  network: choice(['own', 'shared'], {
    default: 'own',
    doc: 'Whether each process sandbox has its own network (`own`) or the host’s (`shared`). Own networks need root with `nft` or `iptables`, or `pasta` or `slirp4netns` without root. Code of runtime `http` and agents with ports always have their own where possible.',
    example: 'shared',
  }),
  networkRange: text({
    default: '10.213.0.0/16',
    pattern: /^((25[0-5]|2[0-4]\d|1?\d?\d)\.){3}0\/(8|9|1\d|2[0-4])$/,
    shape: 'an IPv4 network such as 10.213.0.0/16, /8 to /24',
    doc: 'The address range of process sandboxes with their own network. The host may reach nothing else in it; several servers may share it.',
    example: '192.168.128.0/18',
  }),
  setForwarding: boolean({
    default: true,
    doc: 'Whether the service may enable `net.ipv4.ip_forward`: without it sandbox networks reach nothing outside.',
    example: 'false',
  }),
  diskMb: integer({
    default: 20_480,
    min: 0,
    max: 1_073_741_824,
    unit: 'MB',
    doc: 'The disk limit of one sandbox: job files, builds, copies of code, files beside a program’s socket. Measured every 10 s; the service ends a sandbox that exceeds it. Mounts and files in memory do not count. 0: no limit.',
    example: '2048',
  }),
} as const;

export interface HostSettings {
  readonly process: SettingValues<typeof HOST_SETTINGS>;
}

/** Returns the options of a driver for sandboxes on the files of the host. */
export function hostOptions({ settings, onlyProbed, ...context }: DriverContext<HostSettings>) {
  const { spares, warm, zygotePerTenant, pythons, network, networkRange, setForwarding, diskMb } = settings.process;
  return {
    ...context,
    spares: onlyProbed ? 0 : spares,
    warm: onlyProbed ? [] : warm,
    zygotePerTenant,
    pythons,
    network: { use: network, range: networkRange, setForwarding },
    disk: { maxMb: diskMb },
  };
}

/** Options of each driver whose sandboxes are forks of the host's own Python. */
export interface PythonHostOptions {
  /** The server's data directory (resolved). Sockets, logs and state of sandboxes are in `run` below it. */
  readonly dataDir: string;
  /** Paths that may not be mounted; checked again at the mount. */
  readonly mountPolicy: HostPathPolicy;
  readonly removals: Removals;
  /** Disk limit; absent: no limit. */
  readonly disk?: DiskOptions;
  readonly logger: Logger;
  /** Number of sandboxes without code that are kept ready per interpreter in use. */
  readonly spares?: number;
  /** True when sandboxes of different tenants are forked from different zygotes; false when absent. */
  readonly zygotePerTenant?: boolean;
  /** The server's environment, which says where to search for interpreters. */
  readonly environment: Environment;
  /** Paths of interpreters by Python version (`3.11`). */
  readonly pythons?: Readonly<Record<string, string>>;
  /** Versions for which `warm` makes sandboxes without code before the first start. */
  readonly warm?: readonly string[];
  /** Layers of isolation to disable (`mount`, `cgroup.cpu`, …; `namespaces`, `cgroup`: all of that kind). */
  readonly disable?: readonly string[];
  /** The networks. Absent: the host's network, except for sandboxes that cannot share it. */
  readonly network?: NetworkOptions;
  /** The directory of `rookery_zygote` and `rookery_runtime`; absent: this installation's. */
  readonly pythonDir?: string;
}
