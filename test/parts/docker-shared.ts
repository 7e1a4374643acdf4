import { DockerDaemon, runDocker } from './docker.ts';
import { IMAGES, type ImageName } from './docker-images.ts';
import { SharedPart } from './shared-part.ts';

/** A daemon with the images, for a run that may start none: as somebody else than root. */
const GIVEN = 'ROOKERY_TEST_DOCKER_HOST';

export const DOCKER_START_MS = 180_000;

/** What a test file gets. The images of `IMAGES` are there. */
export interface SharedDocker {
  readonly host: string;
  /** Runs the docker command line client to its end. Fails with what it wrote. */
  docker(...args: readonly string[]): Promise<string>;
}

const daemons = new SharedPart('docker', async () => {
  const daemon = await DockerDaemon.start({ images: Object.keys(IMAGES) as ImageName[] });
  return { facts: { host: daemon.host }, stop: () => daemon.stop() };
});

/** The daemon of this test run, started when it is the first that asks. In `beforeAll`, with a timeout of `DOCKER_START_MS`. */
export async function sharedDocker(): Promise<SharedDocker> {
  const host = process.env[GIVEN] ?? (await daemons.ask()).host;
  return { host, docker: (...args) => runDocker({ DOCKER_HOST: host }, args) };
}

export const setup = () => daemons.setup();
export const teardown = () => daemons.teardown();
