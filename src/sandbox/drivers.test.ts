import { expect, test } from 'vitest';
import type { SandboxDriver } from './driver.ts';
import { Drivers } from './drivers.ts';

function driverOf(events: string[] = []): SandboxDriver {
  const driver: Pick<SandboxDriver, 'name' | 'probe' | 'close'> = {
    name: 'process',
    probe: async () => ({ available: false, reason: 'asked' }),
    close: async () => void events.push('closed'),
  };
  return driver as SandboxDriver;
}

test('Drivers creates a driver once, on its first use', async () => {
  let made = 0;
  const drivers = new Drivers({
    process: async () => {
      made++;
      return driverOf();
    },
  });
  expect(made).toBe(0);
  const [a, b] = await Promise.all([drivers.get('process'), drivers.get('process')]);
  expect(await drivers.get('process')).toBe(a);
  expect(b).toBe(a);
  expect(made).toBe(1);
});

test.each(['docker', 'supervisor', 'kubernetes'] as const)(
  'the driver %s is not available when the installation has no such driver',
  async name => {
    const drivers = new Drivers({});
    const reason = `this installation has no ${name} driver`;
    await expect(drivers.get(name)).rejects.toMatchObject({
      code: 'failed_precondition',
      message: `${name} is not available: ${reason}`,
    });
    expect(await drivers.probe(name)).toEqual({ available: false, reason });
  },
);

test('Drivers reports why a driver cannot be created, and retries at the next use', async () => {
  let tries = 0;
  const drivers = new Drivers({
    docker: async () => {
      if (++tries < 3) throw new Error('npm install dockerode');
      return driverOf();
    },
  });
  await expect(drivers.get('docker')).rejects.toThrow('docker is not available: npm install dockerode');
  expect(await drivers.probe('docker')).toMatchObject({ available: false });
  expect(await drivers.probe('docker')).toEqual({ available: false, reason: 'asked' });
});

test('Drivers.close closes only the drivers that were used', async () => {
  const events: string[] = [];
  const drivers = new Drivers({ process: async () => driverOf(events), docker: async () => driverOf(events) });
  await drivers.get('process');
  await drivers.close();
  expect(events).toEqual(['closed']);
});
