import { IMAGE_USER, IMAGES } from '../parts/docker-images.ts';
import { sharedDocker } from '../parts/docker-shared.ts';
import { describeWith } from '../probe.ts';
import { describeAccess } from '../suites/sandbox-access.ts';
import { DockerFixture } from './docker-fixture.ts';
import { BEHAVIOURS } from './process-fixture.ts';

describeWith(['docker'], 'with a docker daemon', () => {
  const create = async () => {
    const { host } = await sharedDocker();
    const fixture = new DockerFixture(host, IMAGES.python);
    return {
      driver: fixture.driver(),
      entries: BEHAVIOURS,
      codePath: fixture.codePath,
      spec: () => fixture.spec(),
      reopen: null,
      user: IMAGE_USER,
      dispose: () => fixture.dispose(),
    };
  };
  describeAccess('ways into a container', create, '/etc/shadow');
});
