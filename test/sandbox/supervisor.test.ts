import { TestSupervisord } from '../parts/supervisor.ts';
import { describeWith } from '../probe.ts';
import { describeDriver } from '../suites/sandbox-driver.ts';
import { BEHAVIOURS } from './process-fixture.ts';
import { SupervisorFixture } from './supervisor-fixture.ts';

describeWith(['supervisor'], 'supervisord', () => {
  describeDriver('the supervisor driver', async () => {
    const supervisord = await TestSupervisord.start();
    const fixture = new SupervisorFixture(supervisord);
    return {
      driver: fixture.driver(),
      entries: BEHAVIOURS,
      codePath: fixture.codePath,
      spec: () => fixture.spec(),
      reopen: () => fixture.driver(),
      // Whoever runs supervisord as root can be anybody.
      user: process.getuid?.() === 0 ? { name: 'daemon', uid: 1 } : null,
      dispose: async () => {
        await fixture.dispose();
        await supervisord.dispose();
      },
    };
  });
});
