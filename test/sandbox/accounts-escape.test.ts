import { describeWith } from '../probe.ts';
import { describeEscape } from '../suites/escape.ts';
import { ProcessFixture } from './process-fixture.ts';

// One account more than the user needs a service as root.
describeWith(['root', 'namespaces'], 'accounts', () => {
  describeEscape(
    'a process sandbox with accounts',
    {
      users: [
        ['root', 'root'],
        ['an ordinary user', 'user'],
      ],
      onHostFiles: true,
      hasAccounts: true,
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
});
