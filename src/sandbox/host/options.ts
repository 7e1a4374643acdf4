import type { Environment } from '../../core/environment.ts';
import type { HostPathPolicy } from '../../core/host-path.ts';
import type { Removals } from '../../lib/removals.ts';
import type { Logger } from '../../telemetry/logger.ts';
import type { DiskOptions } from './disk-watch.ts';
import type { NetworkOptions } from './network.ts';

/** What every driver is given whose sandboxes are forks of the host's own Python. */
export interface PythonHostOptions {
  /** The server's data directory (resolved): sockets, logs and state of sandboxes are in `run` below it. */
  readonly dataDir: string;
  /** What may not be mounted, checked again when it is. */
  readonly mountPolicy: HostPathPolicy;
  readonly removals: Removals;
  /** Not bounded when absent. */
  readonly disk?: DiskOptions;
  readonly logger: Logger;
  /** Sandboxes without code that are kept ready per interpreter in use. */
  readonly spares?: number;
  /** That of the server: where interpreters are looked for. */
  readonly environment: Environment;
  /** A Python version (`3.11`) → the path of its interpreter. */
  readonly pythons?: Readonly<Record<string, string>>;
  /** Versions of which `warm` makes sandboxes without code before the first start. */
  readonly warm?: readonly string[];
  /** Layers of isolation to do without (`mount`, `cgroup.cpu`, …; `namespaces`, `cgroup`: all of that kind). */
  readonly disable?: readonly string[];
  /** The host's network, but for sandboxes that cannot share it, when absent. */
  readonly network?: NetworkOptions;
  /** The directory of `rookery_zygote` and `rookery_runtime`; this installation's when absent. */
  readonly pythonDir?: string;
}
