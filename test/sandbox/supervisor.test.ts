import { TestSupervisord } from '../parts/supervisor.ts';
import { describeWith } from '../probe.ts';
import { describeDriver } from '../suites/sandbox-driver.ts';
import { NATIVE_STAGES } from './driver-fixture.ts';
import { otherUser } from './process-fixture.ts';
import { SupervisorFixture } from './supervisor-fixture.ts';

describeWith(['supervisor'], 'supervisord', () => {
  describeDriver('the supervisor driver', async () => {
    const supervisord = await TestSupervisord.start();
    const under = new SupervisorFixture(supervisord).underTest(otherUser(false), supervisord);
    return { ...under, stages: NATIVE_STAGES };
  });
});
