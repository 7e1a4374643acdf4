import { IMAGE_USER, IMAGES } from '../parts/docker-images.ts';
import { sharedDocker } from '../parts/docker-shared.ts';
import { describeWith } from '../probe.ts';
import { describeAccess } from '../suites/sandbox-access.ts';
import { DockerFixture } from './docker-fixture.ts';

describeWith(['docker'], 'with a docker daemon', () => {
  const create = async () => {
    const { host } = await sharedDocker();
    return new DockerFixture(host, IMAGES.python).underTest(IMAGE_USER);
  };
  describeAccess('ways into a container', create, '/etc/shadow');
});
