import { TestSupervisord } from '../parts/supervisor.ts';
import { describeWith } from '../probe.ts';
import { describeProcesses } from '../suites/sandbox-processes.ts';
import { otherUser } from './process-fixture.ts';
import { SupervisorFixture } from './supervisor-fixture.ts';

describeWith(['supervisor'], 'supervisord', () => {
  const create = async () => {
    const supervisord = await TestSupervisord.start();
    return new SupervisorFixture(supervisord).underTest(otherUser(false), supervisord);
  };
  describeProcesses('processes of a supervised sandbox', create, true);
});
