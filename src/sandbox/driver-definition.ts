import type { Environment } from '../core/environment.ts';
import type { HostPathPolicy } from '../core/host-path.ts';
import type { Setting } from '../core/setting.ts';
import type { Removals } from '../lib/removals.ts';
import type { Logger } from '../telemetry/logger.ts';
import type { SandboxDriver } from './driver.ts';

/** All that the rest of the program knows of a driver: `definition.ts` of its folder, a row of `core/sandbox-types.ts`. */
export interface DriverDefinition {
  /** What its sandboxes run on: the files of this host, or an image, which a request then names. */
  readonly rootfs: 'host' | 'image';
  /**
   * They are on machines of a cluster: mounts are of those, code of this host is handed in, there may be pools to take one from, and another
   * replica takes them over when the machine of the service is lost.
   */
  readonly isCluster?: true;
  /** `host` of the driver `docker` is the setting `docker.host`. */
  readonly settings: Readonly<Record<string, Setting<unknown>>>;
  /** Paths of this host that no caller may name: access to them makes root, or nearly. */
  readonly closedPaths?: () => Promise<readonly string[]>;
  /** Makes the driver, on its first use: heavy libraries are imported here. null: requests may name it, and this installation has none. */
  readonly create: ((context: DriverContext<never>) => Promise<SandboxDriver>) | null;
}

export interface DriverContext<Settings> {
  /** Files that the driver leaves for a later server are in `run/<its name>` below it. */
  readonly dataDir: string;
  /** This node among the replicas of the service; `''` when nothing but `probe` will be asked. */
  readonly nodeId: string;
  /** Of all replicas over one database together; `''` when nothing but `probe` will be asked. */
  readonly installationId: string;
  /** Of this program. */
  readonly version: string;
  /** Paths that may not be mounted, checked again at the mount. */
  readonly mountPolicy: HostPathPolicy;
  /** That of the server: no sandbox sees it. */
  readonly environment: Environment;
  /** Callers need a token: they are not trusted with everything that this machine reaches. */
  readonly hasAuth: boolean;
  /** Nothing but `probe` will be asked of it: nothing is kept ready. */
  readonly onlyProbed: boolean;
  readonly removals: Removals;
  readonly logger: Logger;
  /** Those of all drivers, by the driver's name. */
  readonly settings: Settings;
}
