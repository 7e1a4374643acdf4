import { describeAccess } from '../suites/sandbox-access.ts';
import { BEHAVIOURS, ProcessFixture } from './process-fixture.ts';

function describeProcessAccess(name: string, disable: readonly string[]): void {
  describeAccess(name, async () => {
    const fixture = new ProcessFixture({ disable });
    const canSwitch = process.getuid?.() === 0 || !disable.includes('namespaces');
    return {
      driver: fixture.driver(),
      entries: BEHAVIOURS,
      codePath: fixture.codePath,
      spec: () => fixture.spec(),
      reopen: null,
      user: canSwitch ? { name: 'daemon', uid: 1 } : null,
      dispose: () => fixture.dispose(),
    };
  });
}

describeProcessAccess('ways into a process sandbox', []);
describeProcessAccess('ways into a process sandbox without namespaces, control groups and filter', [
  'namespaces',
  'cgroup',
  'seccomp',
]);
