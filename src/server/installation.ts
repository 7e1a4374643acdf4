import { stat } from 'node:fs/promises';
import { join } from 'node:path';
import type { Config } from '../config/config.ts';
import type { Environment } from '../core/environment.ts';
import { type HostPathPolicy, resolvePolicy } from '../core/host-path.ts';
import type { SandboxType } from '../core/instance.ts';
import { DRIVER_NAMES } from '../core/sandbox-types.ts';
import { findPath } from '../lib/opened-path.ts';
import type { Removals } from '../lib/removals.ts';
import { DRIVERS } from '../sandbox/definitions.ts';
import type { DriverDefinition } from '../sandbox/driver-definition.ts';
import { Drivers } from '../sandbox/drivers.ts';
import type { Logger } from '../telemetry/logger.ts';
import { VERSION } from '../version.ts';

/** Sandboxes that the configuration selects; for the server and for `doctor`. */
export interface Installation {
  readonly drivers: Drivers;
  readonly mountPolicy: HostPathPolicy;
  /** Drivers of which an earlier server may have left sandboxes without a record. */
  readonly sweptDrivers: readonly SandboxType[];
}

interface Surroundings {
  readonly environment: Environment;
  readonly removals: Removals;
  readonly logger: Logger;
  /** Identity of this node. Absent: drivers are only probed. */
  readonly identity?: { readonly nodeId: string; readonly installationId: string };
}

/** Creates the installation. Starts nothing: drivers load on their first use. */
export async function createInstallation(
  config: Config,
  { environment, removals, logger, identity }: Surroundings,
): Promise<Installation> {
  const { dataDir } = config;
  const hasAuth = config.auth !== null;
  const definitions: readonly DriverDefinition[] = Object.values(DRIVERS);
  const closed = await Promise.all(definitions.map(definition => definition.closedPaths?.() ?? []));
  const mountPolicy = await resolvePolicy(
    {
      closed: [dataDir, ...config.ownPaths, ...closed.flat()],
      // Clients with tokens are not trusted with the whole host, so the operator must name the paths.
      allow: config.mounts.allow ?? (hasAuth ? [] : null),
    },
    findPath,
  );
  const context = {
    dataDir,
    nodeId: identity?.nodeId ?? '',
    installationId: identity?.installationId ?? '',
    version: VERSION,
    mountPolicy,
    environment,
    hasAuth,
    onlyProbed: identity === undefined,
    removals,
    logger,
    settings: config,
  };
  const loaders = DRIVER_NAMES.map(type => [type, () => DRIVERS[type].create(context)]);
  // The daemon of a driver that was never used may be missing. Jobs run in process sandboxes, whatever agents
  // run in.
  const used = await Promise.all(
    DRIVER_NAMES.map(async type => (type === 'process' || (await isThere(join(dataDir, 'run', type))) ? [type] : [])),
  );
  return { drivers: new Drivers(Object.fromEntries(loaders)), mountPolicy, sweptDrivers: used.flat() };
}

function isThere(path: string): Promise<boolean> {
  return stat(path).then(
    () => true,
    () => false,
  );
}
