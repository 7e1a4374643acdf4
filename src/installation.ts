import { readFile, stat } from 'node:fs/promises';
import { join } from 'node:path';
import type { Config } from './config/config.ts';
import { type HostPathPolicy, resolvePolicy } from './core/host-path.ts';
import type { SandboxType } from './core/instance.ts';
import { findPath } from './lib/opened-path.ts';
import type { Removals } from './lib/removals.ts';
import { Drivers } from './sandbox/drivers.ts';
import type { Logger } from './telemetry/logger.ts';

/** Which sandboxes this installation has, as its configuration says; for the server and for `doctor`. */
export interface Installation {
  readonly drivers: Drivers;
  readonly mountPolicy: HostPathPolicy;
  /** Drivers of which an earlier server may have left sandboxes that no record tells of. */
  readonly sweptDrivers: readonly SandboxType[];
}

const DOCKER_SOCKET = '/var/run/docker.sock';
const DOCKER_SETTINGS = '/etc/docker/daemon.json';

/** Where the Docker daemon keeps everything, when it was told another place than the usual one. */
async function dockerData(): Promise<readonly string[]> {
  try {
    const place = (JSON.parse(await readFile(DOCKER_SETTINGS, 'utf8')) as Record<string, unknown>)['data-root'];
    return typeof place === 'string' && place.startsWith('/') ? [place] : [];
  } catch {
    return [];
  }
}

/** Drivers load on their first use: nothing is started here. */
export async function createInstallation(config: Config, removals: Removals, logger: Logger): Promise<Installation> {
  const mountPolicy = await resolvePolicy(
    {
      closed: [config.dataDir, ...config.ownPaths, DOCKER_SOCKET, ...(await dockerData())],
      // Who needs a token is not trusted with the whole host: the operator names what may be had.
      allow: config.mounts.allow ?? (config.auth === null ? null : []),
    },
    findPath,
  );
  const network = {
    use: config.process.network,
    range: config.process.networkRange,
    setForwarding: config.process.setForwarding,
  };
  const disk = { maxMb: config.process.diskMb };
  const drivers = new Drivers({
    process: async () => {
      const { ProcessDriver } = await import('./sandbox/process/driver.ts');
      return new ProcessDriver({
        dataDir: config.dataDir,
        mountPolicy,
        spares: config.process.spares,
        warm: config.process.warm,
        pythons: config.process.pythons,
        network,
        removals,
        disk,
        logger,
      });
    },
    docker: async () => {
      const { DockerDriver } = await import('./sandbox/docker/driver.ts');
      const { host, pullTimeoutMs, registries } = config.docker;
      return new DockerDriver({
        dataDir: config.dataDir,
        mountPolicy,
        host,
        pullTimeoutMs,
        registries: { named: registries, onlyNamed: registries !== null || config.auth !== null },
        removals,
        logger,
      });
    },
    supervisor: async () => {
      const { SupervisorDriver } = await import('./sandbox/supervisor/driver.ts');
      const { warm, pythons } = config.process;
      return new SupervisorDriver({
        dataDir: config.dataDir,
        mountPolicy,
        ...config.supervisor,
        warm,
        pythons,
        network,
        removals,
        disk,
        logger,
      });
    },
  });
  // A daemon that was never used need not be there.
  const hasUsed = (...names: readonly string[]) =>
    stat(join(config.dataDir, ...names)).then(
      () => true,
      () => false,
    );
  const sweptDrivers: SandboxType[] = ['process'];
  if (await hasUsed('run', 'docker')) sweptDrivers.push('docker');
  if (await hasUsed('run', 'supervisor')) sweptDrivers.push('supervisor');
  return { drivers, mountPolicy, sweptDrivers };
}
