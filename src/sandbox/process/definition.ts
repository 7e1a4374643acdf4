import type { SandboxDriver } from '../driver.ts';
import type { DriverContext, DriverDefinition } from '../driver-definition.ts';
import { HOST_SETTINGS, type HostSettings, hostOptions } from '../host/settings.ts';

/** Settings of the process driver, and the function that creates it. */
export const PROCESS = {
  settings: HOST_SETTINGS,
  async create(context: DriverContext<HostSettings>): Promise<SandboxDriver> {
    const { ProcessDriver } = await import('./driver.ts');
    return new ProcessDriver(hostOptions(context));
  },
} as const satisfies DriverDefinition;
