import { backoffMs } from '../lib/backoff.ts';
import { within } from '../lib/deadline.ts';
import type { SandboxDriver, SandboxHandle } from '../sandbox/driver.ts';
import type { InstanceLog } from './contract.ts';

/** How long one removal may take before it counts as failed. */
const REMOVE_MS = 30_000;
const RETRY = { firstMs: 500, longestMs: 60_000 };

/**
 * Sandboxes that belong to nobody any more and must go. A removal that fails is tried again until it succeeds; a server
 * that ends before that finds them again as orphans.
 */
export class Removals {
  readonly #log: InstanceLog;
  readonly #timers = new Set<NodeJS.Timeout>();
  #isClosed = false;

  constructor(log: InstanceLog) {
    this.#log = log;
  }

  /** Removals that failed and will be tried again. */
  get pending(): number {
    return this.#timers.size;
  }

  /** Removes it now, or later when that fails. Never rejects. */
  async discard(driver: SandboxDriver, handle: SandboxHandle, failures = 1): Promise<void> {
    try {
      await within(driver.remove(handle), REMOVE_MS, 'the driver did not answer in time');
    } catch (error) {
      this.#log.warn(
        { instanceId: handle.instanceId, err: error },
        'a sandbox could not be removed; it is tried again',
      );
      if (this.#isClosed) return;
      const timer = setTimeout(
        () => {
          this.#timers.delete(timer);
          void this.discard(driver, handle, failures + 1);
        },
        backoffMs(RETRY, failures),
      ).unref();
      this.#timers.add(timer);
    }
  }

  close(): void {
    this.#isClosed = true;
    for (const timer of this.#timers) clearTimeout(timer);
    this.#timers.clear();
  }
}
