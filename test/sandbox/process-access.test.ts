import { describeAccess } from '../suites/sandbox-access.ts';
import { otherUser, ProcessFixture } from './process-fixture.ts';

function describeProcessAccess(name: string, disable: readonly string[]): void {
  describeAccess(name, async () => {
    return new ProcessFixture({ disable }).underTest(otherUser(!disable.includes('namespaces')));
  });
}

describeProcessAccess('ways into a process sandbox', []);
describeProcessAccess('ways into a process sandbox without namespaces, control groups and filter', [
  'namespaces',
  'cgroup',
  'seccomp',
]);
