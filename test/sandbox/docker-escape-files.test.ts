import { IMAGES } from '../parts/docker-images.ts';
import { sharedDocker } from '../parts/docker-shared.ts';
import { describeWith } from '../probe.ts';
import { describeEscapeFiles } from '../suites/escape-files.ts';
import { DockerFixture } from './docker-fixture.ts';

describeWith(['docker'], 'with a docker daemon', () => {
  describeEscapeFiles('a container', { isSeen: false }, async () => {
    const { host } = await sharedDocker();
    const fixture = new DockerFixture(host, IMAGES.python);
    return {
      driver: fixture.driver(),
      codePath: fixture.codePath,
      spec: changes => fixture.spec(changes),
      dispose: () => fixture.dispose(),
    };
  });
});
