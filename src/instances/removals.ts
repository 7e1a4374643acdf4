import { backoffMs, pause } from '../lib/backoff.ts';
import { OVER, sharedController } from '../lib/linked-signal.ts';
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
  readonly #closing = sharedController();

  constructor(log: Log) {
    this.#log = log;
  }

  /** Removes a sandbox now, and retries later if that fails. Never rejects. */
  async discard(driver: SandboxDriver, handle: SandboxHandle): Promise<void> {
    if (!(await this.#remove(driver, handle))) void this.#retry(driver, handle);
  }

  close(): void {
    this.#closing.abort(OVER);
  }

  async #retry(driver: SandboxDriver, handle: SandboxHandle): Promise<void> {
    const { signal } = this.#closing;
    for (let failures = 1; ; failures++) {
      await pause(backoffMs(RETRY, failures), signal);
      if (signal.aborted || (await this.#remove(driver, handle))) return;
    }
  }

  async #remove(driver: SandboxDriver, handle: SandboxHandle): Promise<boolean> {
    try {
      await removeSandbox(driver, handle);
      return true;
    } catch (error) {
      this.#log.warn({ instanceId: handle.instanceId, err: error }, 'sandbox removal failed; retrying');
      return false;
    }
  }
}
