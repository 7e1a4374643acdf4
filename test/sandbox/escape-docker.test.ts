import Docker from 'dockerode';
import type { StartedSandbox } from '../../src/sandbox/driver.ts';
import { IMAGE_USER, IMAGES } from '../parts/docker-images.ts';
import { sharedDocker } from '../parts/docker-shared.ts';
import { describeWith } from '../probe.ts';
import { describeEscape } from '../suites/escape.ts';
import { DockerFixture } from './docker-fixture.ts';

describeWith(['docker'], 'with a docker daemon', () => {
  describeEscape('a docker sandbox', { users: ['', IMAGE_USER.name], onHostFiles: false }, async () => {
    const { host } = await sharedDocker();
    const fixture = new DockerFixture(host, IMAGES.python);
    const docker = new Docker({ socketPath: host.replace('unix://', '') });
    return {
      driver: fixture.driver(),
      codePath: fixture.codePath,
      dataDir: fixture.dataDir,
      spec: changes => fixture.spec(changes),
      hostPid: async ({ handle }: StartedSandbox) =>
        (await docker.getContainer(String(handle.data.container)).inspect()).State.Pid,
      dispose: () => fixture.dispose(),
    };
  });
});
