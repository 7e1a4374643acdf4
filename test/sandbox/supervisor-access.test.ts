import { TestSupervisord } from '../parts/supervisor.ts';
import { describeWith } from '../probe.ts';
import { describeAccess } from '../suites/sandbox-access.ts';
import { BEHAVIOURS } from './process-fixture.ts';
import { SupervisorFixture } from './supervisor-fixture.ts';

describeWith(['supervisor'], 'supervisord', () => {
  describeAccess('ways into a supervised sandbox', async () => {
    const supervisord = await TestSupervisord.start();
    const fixture = new SupervisorFixture(supervisord);
    return {
      driver: fixture.driver(),
      entries: BEHAVIOURS,
      codePath: fixture.codePath,
      spec: () => fixture.spec(),
      reopen: null,
      user: process.getuid?.() === 0 ? { name: 'daemon', uid: 1 } : null,
      dispose: async () => {
        await fixture.dispose();
        await supervisord.dispose();
      },
    };
  });
});
