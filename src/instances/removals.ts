import { backoffMs } from '../lib/backoff.ts';
import type { Log } from '../lib/log.ts';
import type { SandboxDriver, SandboxHandle } from '../sandbox/driver.ts';
import { removeSandbox } from './driver-calls.ts';

const RETRY = { firstMs: 500, longestMs: 60_000 };

/**
 * Removes sandboxes that no instance owns. A removal that fails is retried until it succeeds. If the server
 * ends first, the next server finds the sandboxes as orphans.
 */
export class Removals {
  readonly #log: Log;
  readonly #timers = new Set<NodeJS.Timeout>();
  #isClosed = false;

  constructor(log: Log) {
    this.#log = log;
  }

  /** Returns the number of failed removals that are to be retried. */
  get pending(): number {
    return this.#timers.size;
  }

  /** Removes a sandbox now, and retries later if that fails. Never rejects. */
  async discard(driver: SandboxDriver, handle: SandboxHandle, failures = 1): Promise<void> {
    try {
      await removeSandbox(driver, handle);
    } catch (error) {
      this.#log.warn({ instanceId: handle.instanceId, err: error }, 'sandbox removal failed; retrying');
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
