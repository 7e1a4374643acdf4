import type { Environment } from '../core/environment.ts';
import type { HostPathPolicy } from '../core/host-path.ts';
import type { Setting } from '../core/setting.ts';
import type { Removals } from '../lib/removals.ts';
import type { Logger } from '../telemetry/logger.ts';
import type { SandboxDriver } from './driver.ts';

/**
 * The part of a driver that the rest of the program uses, in addition to its facts in
 * `core/sandbox-types.ts`.
 */
export interface DriverDefinition {
  /** The driver's settings by short name: `host` of the driver `docker` is the setting `docker.host`. */
  readonly settings: Readonly<Record<string, Setting<unknown>>>;
  /**
   * Returns paths of this host that no client may name, because access to them gives root rights, or nearly.
   */
  readonly closedPaths?: () => Promise<readonly string[]>;
  /** Creates the driver on its first use, and imports its heavy libraries then. */
  create(context: DriverContext<never>): Promise<SandboxDriver>;
}

export interface DriverContext<Settings> {
  /** The data directory. A driver keeps files for a later server in `run/<driver name>` below it. */
  readonly dataDir: string;
  /** The id of this node among the service's replicas; `''` when only `probe` will be called. */
  readonly nodeId: string;
  /** The id that all replicas over one database share; `''` when only `probe` will be called. */
  readonly installationId: string;
  /** Version of this program. */
  readonly version: string;
  /** Paths that may not be mounted. The driver checks them again when it mounts. */
  readonly mountPolicy: HostPathPolicy;
  /** The server's environment, which no sandbox sees. */
  readonly environment: Environment;
  /**
   * True when clients need a token. Such clients are not trusted with everything that this machine reaches.
   */
  readonly hasAuth: boolean;
  /** True when only `probe` will be called: the driver then keeps nothing ready. */
  readonly onlyProbed: boolean;
  readonly removals: Removals;
  readonly logger: Logger;
  /** Settings of all drivers, by driver name. */
  readonly settings: Settings;
}
