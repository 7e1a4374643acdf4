import { describeDriver } from '../suites/sandbox-driver.ts';
import { BEHAVIOURS, ProcessFixture } from './process-fixture.ts';

function describeProcessDriver(name: string, disable: readonly string[]): void {
  describeDriver(name, async () => {
    const fixture = new ProcessFixture({ disable });
    const isRoot = process.getuid?.() === 0;
    return {
      driver: fixture.driver(),
      entries: BEHAVIOURS,
      codePath: fixture.codePath,
      spec: () => fixture.spec(),
      reopen: () => fixture.driver(),
      user: isRoot ? { name: 'nobody', uid: 65534 } : null,
      dispose: () => fixture.dispose(),
    };
  });
}

describeProcessDriver('the process driver', []);
describeProcessDriver('the process driver without namespaces', ['namespaces']);
describeProcessDriver('the process driver without namespaces, control groups and filter', [
  'namespaces',
  'cgroup',
  'seccomp',
]);
