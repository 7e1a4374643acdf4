import { IMAGE_USER, IMAGES } from '../parts/docker-images.ts';
import { sharedDocker } from '../parts/docker-shared.ts';
import { describeWith } from '../probe.ts';
import { describeAccountFiles } from '../suites/account-files.ts';
import { DockerFixture } from './docker-fixture.ts';

describeWith(['docker'], 'with a docker daemon', () => {
  describeAccountFiles('files of a container', async () => {
    const { host } = await sharedDocker();
    return new DockerFixture(host, IMAGES.python).underTest(IMAGE_USER);
  });
});
