import { describeProcesses } from '../suites/sandbox-processes.ts';
import { otherUser, ProcessFixture } from './process-fixture.ts';

function describeProcessTable(name: string, disable: readonly string[]): void {
  const isIsolated = !disable.includes('namespaces');
  describeProcesses(name, async () => new ProcessFixture({ disable }).underTest(otherUser(isIsolated)), isIsolated);
}

describeProcessTable('processes of a process sandbox', []);
describeProcessTable('processes of a process sandbox without namespaces, control groups and filter', [
  'namespaces',
  'cgroup',
  'seccomp',
]);
