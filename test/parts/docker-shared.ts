import { DockerDaemon, runDocker } from './docker.ts';
import { IMAGES, type ImageName } from './docker-images.ts';
import { SharedPart } from './shared-part.ts';

/**
 * Environment variable with a daemon that has the images, for runs that cannot start a daemon without root.
 */
const GIVEN = 'ROOKERY_TEST_DOCKER_HOST';

export const DOCKER_START_MS = 180_000;

/** A daemon for a test file, which has the images of `IMAGES`. */
export interface SharedDocker {
  readonly host: string;
  /** Runs the docker command line client until it exits; returns stdout. Fails with its output. */
  docker(...args: readonly string[]): Promise<string>;
}

const daemons = new SharedPart('docker', async () => {
  const daemon = await DockerDaemon.start({ images: Object.keys(IMAGES) as ImageName[] });
  return { facts: { host: daemon.host }, stop: () => daemon.stop() };
});

/**
 * Returns the daemon of this test run; the first call starts it. Call it in `beforeAll` with the timeout
 * `DOCKER_START_MS`.
 */
export async function sharedDocker(): Promise<SharedDocker> {
  const host = process.env[GIVEN] ?? (await daemons.ask()).host;
  return { host, docker: (...args) => runDocker({ DOCKER_HOST: host }, args) };
}

export const setup = () => daemons.setup();
export const teardown = () => daemons.teardown();
