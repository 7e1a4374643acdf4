import { describeDriver } from '../suites/sandbox-driver.ts';
import { BEHAVIOURS, ProcessFixture } from './process-fixture.ts';

function describeProcessDriver(name: string, disable: readonly string[]): void {
  describeDriver(name, async () => {
    const fixture = new ProcessFixture({ disable });
    // An ordinary user can be anybody in a user namespace of its own, and nobody else without one.
    const canSwitch = process.getuid?.() === 0 || !disable.includes('namespaces');
    return {
      driver: fixture.driver(),
      entries: BEHAVIOURS,
      codePath: fixture.codePath,
      spec: () => fixture.spec(),
      reopen: () => fixture.driver(),
      user: canSwitch ? { name: 'daemon', uid: 1 } : null,
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
