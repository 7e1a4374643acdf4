import { TestSupervisord } from '../parts/supervisor.ts';
import { describeWith } from '../probe.ts';
import { describeEscapeFiles } from '../suites/escape-files.ts';
import { SupervisorFixture } from './supervisor-fixture.ts';

describeWith(['supervisor', 'root'], 'escapes from supervised sandboxes through files', () => {
  describeEscapeFiles('a supervised sandbox', { isSeen: true }, async () => {
    const supervisord = await TestSupervisord.start();
    const fixture = new SupervisorFixture(supervisord);
    return {
      driver: fixture.driver(),
      codePath: fixture.codePath,
      spec: changes => fixture.spec(changes),
      dispose: async () => {
        await fixture.dispose();
        await supervisord.dispose();
      },
    };
  });
});
