import { randomUUID } from 'node:crypto';
import { FakeDriver } from '../fakes/fake-driver.ts';
import { describeAccess } from '../suites/sandbox-access.ts';
import { type DriverUnderTest, describeDriver } from '../suites/sandbox-driver.ts';

async function create(): Promise<DriverUnderTest> {
  const driver = new FakeDriver();
  driver.handlers.set('echo', event => event);
  driver.handlers.set('count', (_event, { state }) => {
    const next = ((state.get('count') as number | undefined) ?? 0) + 1;
    state.set('count', next);
    return next;
  });
  driver.handlers.set('exit', (event, context) => context.exit((event as { code: number }).code));
  driver.handlers.set('print', (event, context) => {
    const { from, to } = event as { from: number; to: number };
    for (let number = from; number < to; number++) context.print(`line ${number}`);
    return to - from;
  });
  return {
    driver,
    entries: { echo: 'echo', count: 'count', exit: 'exit', printLines: 'print' },
    codePath: '',
    spec: () => ({
      instanceId: randomUUID(),
      tenant: 'default',
      command: { kind: 'python', version: '3.11' },
      secret: randomUUID(),
      rootfs: { type: 'host', imageUrl: 'test', user: '' },
      env: { PATH: process.env.PATH ?? '' },
      workingDir: '',
      mounts: [],
      ports: [],
      cpuMillis: 1000,
      memoryMb: 128,
      maxProcesses: 256,
      maxOpenFiles: 4096,
      network: 'host',
      requireIsolation: false,
    }),
    reopen: null,
    user: null,
    dispose: () => driver.dispose(),
  };
}

describeDriver('the fake driver', create);
describeAccess('ways into a fake sandbox', create);
