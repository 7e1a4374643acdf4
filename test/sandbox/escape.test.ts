import { describeEscape } from '../suites/escape.ts';
import { ProcessFixture } from './process-fixture.ts';

describeEscape(
  'a process sandbox',
  {
    users: [
      ['root', ''],
      ['an ordinary user', 'daemon'],
    ],
    onHostFiles: true,
  },
  async () => {
    const fixture = new ProcessFixture();
    return {
      driver: fixture.driver(),
      codePath: fixture.codePath,
      dataDir: fixture.dataDir,
      spec: changes => fixture.spec(changes),
      hostPid: ({ handle }) => handle.data.pid as number,
      dispose: () => fixture.dispose(),
    };
  },
);
