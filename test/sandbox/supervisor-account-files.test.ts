import { TestSupervisord } from '../parts/supervisor.ts';
import { describeWith } from '../probe.ts';
import { describeAccountFiles } from '../suites/account-files.ts';
import { otherUser } from './process-fixture.ts';
import { SupervisorFixture } from './supervisor-fixture.ts';

describeWith(['supervisor'], 'supervisord', () => {
  describeAccountFiles('files of a supervised sandbox', async () => {
    const supervisord = await TestSupervisord.start();
    return new SupervisorFixture(supervisord).underTest(otherUser(false), supervisord);
  });
});
