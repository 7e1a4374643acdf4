import { TestSupervisord } from '../parts/supervisor.ts';
import { describeWith } from '../probe.ts';
import { describeEscape } from '../suites/escape.ts';
import { SupervisorFixture } from './supervisor-fixture.ts';

describeWith(['supervisor', 'root'], 'escapes from supervised sandboxes', () => {
  describeEscape(
    'a supervised sandbox',
    {
      users: [
        ['root', ''],
        ['an ordinary user', 'daemon'],
      ],
      onHostFiles: true,
    },
    async () => {
      const supervisord = await TestSupervisord.start();
      const fixture = new SupervisorFixture(supervisord);
      return {
        driver: fixture.driver(),
        codePath: fixture.codePath,
        dataDir: fixture.dataDir,
        spec: changes => fixture.spec(changes),
        hostPid: ({ handle }) => handle.data.pid as number,
        dispose: async () => {
          await fixture.dispose();
          await supervisord.dispose();
        },
      };
    },
  );
});
