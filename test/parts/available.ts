import type { ProbeResult, SandboxDriver } from '../../src/sandbox/driver.ts';

/** Maximum number of probes: on a busy machine the first zygote may take longer than one probe waits. */
const MOST_PROBES = 5;

/**
 * Returns the probe of a working driver; repeats it while the reason may pass. Rejects with the last reason.
 */
export async function available(driver: SandboxDriver): Promise<ProbeResult & { readonly available: true }> {
  for (let probes = 1; ; probes++) {
    const probe = await driver.probe();
    if (probe.available) return probe;
    if (!probe.mayPass || probes === MOST_PROBES) throw new Error(probe.reason);
  }
}
