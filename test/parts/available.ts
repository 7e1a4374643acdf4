import type { ProbeResult, SandboxDriver } from '../../src/sandbox/driver.ts';

/** On a busy machine a first zygote may take longer than a probe waits. */
const MOST_PROBES = 5;

/** What a driver that works says of itself; asked again while its reason may pass. Rejects with the last reason. */
export async function available(driver: SandboxDriver): Promise<ProbeResult & { readonly available: true }> {
  for (let probes = 1; ; probes++) {
    const probe = await driver.probe();
    if (probe.available) return probe;
    if (!probe.mayPass || probes === MOST_PROBES) throw new Error(probe.reason);
  }
}
