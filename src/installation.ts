import { realpath } from 'node:fs/promises';
import type { Config } from './config/config.ts';
import { type MountPolicy, resolveMountPolicy } from './core/mount.ts';
import { Drivers } from './sandbox/drivers.ts';
import type { Logger } from './telemetry/logger.ts';

/** Which sandboxes this installation has, as its configuration says; for the server and for `doctor`. */
export interface Installation {
  readonly drivers: Drivers;
  readonly mountPolicy: MountPolicy;
}

const DOCKER_SOCKET = '/var/run/docker.sock';

/** Drivers load on their first use: nothing is started here. */
export async function createInstallation(config: Config, logger: Logger): Promise<Installation> {
  const mountPolicy = await resolveMountPolicy({ dataDir: config.dataDir, dockerSocket: DOCKER_SOCKET }, path =>
    realpath(path).catch(() => null),
  );
  const drivers = new Drivers({
    process: async () => {
      const { ProcessDriver } = await import('./sandbox/process/driver.ts');
      return new ProcessDriver({
        dataDir: config.dataDir,
        mountPolicy,
        spares: config.process.spares,
        warm: config.process.warm,
        pythons: config.process.pythons,
        logger,
      });
    },
    docker: async () => {
      const { DockerDriver } = await import('./sandbox/docker/driver.ts');
      const { host, pullTimeoutMs } = config.docker;
      return new DockerDriver({ dataDir: config.dataDir, mountPolicy, host, pullTimeoutMs, logger });
    },
  });
  return { drivers, mountPolicy };
}
