import { IMAGE_USER, IMAGES } from '../parts/docker-images.ts';
import { sharedDocker } from '../parts/docker-shared.ts';
import { describeWith } from '../probe.ts';
import { describeDriver } from '../suites/sandbox-driver.ts';
import { DockerFixture } from './docker-fixture.ts';

describeWith(['docker'], 'with a docker daemon', () => {
  describeDriver('the docker driver', async () => {
    const { host } = await sharedDocker();
    return new DockerFixture(host, IMAGES.python).underTest(IMAGE_USER);
  });
});
