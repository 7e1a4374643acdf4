import { IMAGE_USER, IMAGES } from '../parts/docker-images.ts';
import { sharedDocker } from '../parts/docker-shared.ts';
import { describeWith } from '../probe.ts';
import { describeEscape } from '../suites/escape.ts';
import { dockerClient } from './docker-client.ts';
import { DockerFixture } from './docker-fixture.ts';

describeWith(['docker'], 'with a docker daemon', () => {
  describeEscape(
    'a container',
    {
      users: [
        ['root', ''],
        ['an ordinary user', IMAGE_USER.name],
      ],
      onHostFiles: false,
    },
    async () => {
      const { host } = await sharedDocker();
      const client = dockerClient(host);
      const fixture = new DockerFixture(host, IMAGES.python);
      return {
        driver: fixture.driver(),
        codePath: fixture.codePath,
        dataDir: fixture.dataDir,
        spec: changes => fixture.spec(changes),
        hostPid: async ({ handle }) => {
          const { State } = await client.inspect(String(handle.data.container));
          return (State as { readonly Pid: number }).Pid;
        },
        dispose: () => fixture.dispose(),
      };
    },
  );
});
