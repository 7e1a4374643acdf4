import type { Environment } from '../../core/environment.ts';
import type { HostPathPolicy } from '../../core/host-path.ts';
import type { Removals } from '../../lib/removals.ts';
import type { Logger } from '../../telemetry/logger.ts';
import type { DiskOptions } from './disk-watch.ts';
import type { NetworkOptions } from './network.ts';

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
