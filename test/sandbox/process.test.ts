import { describeDriver } from '../suites/sandbox-driver.ts';
import { NATIVE_STAGES } from './driver-fixture.ts';
import { otherUser, ProcessFixture } from './process-fixture.ts';

function describeProcessDriver(name: string, disable: readonly string[]): void {
  describeDriver(name, async () => {
    const under = new ProcessFixture({ disable }).underTest(otherUser(!disable.includes('namespaces')));
    return { ...under, stages: NATIVE_STAGES };
  });
}

describeProcessDriver('the process driver', []);
describeProcessDriver('the process driver without namespaces', ['namespaces']);
describeProcessDriver('the process driver without namespaces, control groups and filter', [
  'namespaces',
  'cgroup',
  'seccomp',
]);
