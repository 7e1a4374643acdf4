import { afterAll, expect, test } from 'vitest';
import { available } from '../parts/available.ts';
import { describeWith } from '../probe.ts';
import { ProcessFixture } from './process-fixture.ts';

const WAIT_MS = 30_000;

// `ordinary-user.test.ts` runs this file where the tests run as root.
describeWith(['ordinary-user'], 'a sandbox with accounts of a service without root', () => {
  const fixture = new ProcessFixture();
  afterAll(() => fixture.dispose());

  test('both accounts have the one id of the sandbox and write everywhere inside', async ({ skip }) => {
    const driver = fixture.driver();
    const { capabilities } = await available(driver);
    if (!capabilities.isolation.includes('mount')) skip('this machine forbids user namespaces');
    const env = { PATH: '/usr/local/bin:/usr/bin:/bin', HOME: '/home/user' };
    const command = { kind: 'exec', argv: [] } as const;
    const spec = { ...fixture.spec(), hasAccounts: true, command, workingDir: '/home/user', env };
    const { handle } = await driver.start(spec, AbortSignal.timeout(WAIT_MS));
    const script = 'id -un; echo x > ~/a; mkdir -p /workspace /root/d; echo x > /etc/x; touch /usr/x';
    for (const user of ['', 'user', 'root']) {
      const request = { workingDir: '', env: {}, stdin: '', timeoutMs: WAIT_MS, maxOutputBytes: 10_000 };
      const argv = ['bash', '-l', '-c', script];
      const { stdout, stderr } = await driver.exec(handle, { ...request, argv, user }, AbortSignal.timeout(WAIT_MS));
      expect(stdout).toBe('user\n');
      expect(stderr).toMatch(/^touch: [^\n]*\/usr\/x[^\n]*\n$/);
    }
  });
});
