import { TestSupervisord } from '../parts/supervisor.ts';
import { describeWith } from '../probe.ts';
import { describeAccess } from '../suites/sandbox-access.ts';
import { otherUser } from './process-fixture.ts';
import { SupervisorFixture } from './supervisor-fixture.ts';

describeWith(['supervisor'], 'supervisord', () => {
  describeAccess('ways into a supervised sandbox', async () => {
    const supervisord = await TestSupervisord.start();
    return new SupervisorFixture(supervisord).underTest(otherUser(false), supervisord);
  });
});
