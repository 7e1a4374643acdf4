import { retry } from '../lib/backoff.ts';
import { within } from '../lib/deadline.ts';
import type { Log } from '../lib/log.ts';
import type { ExitResult, LogRequest, SandboxDriver, SandboxHandle } from '../sandbox/driver.ts';
import type { InstanceRef } from '../storage/queries/instances.ts';
import { stopSandbox } from './driver-calls.ts';

const RETRY = { firstMs: 500, longestMs: 30_000 };
/**
 * Wait for the exit of a sandbox whose start a dying server interrupted. A sandbox that runs longer has
 * begun.
 */
const UNCERTAIN_MS = 2_000;

/** Sandbox that runs a command to its end and takes no calls. */
export class Command implements InstanceRef {
  readonly id: string;
  readonly epoch: number;
  readonly driver: SandboxDriver;
  readonly handle: SandboxHandle;
  readonly #log: Log;

  constructor(ref: InstanceRef, driver: SandboxDriver, handle: SandboxHandle, log: Log) {
    this.id = ref.id;
    this.epoch = ref.epoch;
    this.driver = driver;
    this.handle = handle;
    this.#log = log;
  }

  /**
   * Waits for the exit of the sandbox and returns it. Retries while the driver does not answer. null:
   * `signal` aborted.
   */
  async exited(signal: AbortSignal): Promise<ExitResult | null> {
    const exited = async () => {
      if (signal.aborted) return null;
      const exit = await this.driver.wait(this.handle, signal).catch((error: unknown) => {
        if (signal.aborted) return null;
        throw error;
      });
      return signal.aborted ? null : exit;
    };
    return await retry(exited, RETRY, signal, error =>
      this.#log.warn({ instanceId: this.id, err: error }, 'wait for sandbox exit failed; retrying'),
    );
  }

  /** Asks the sandbox to end, and kills it after `graceMs`. Never rejects. */
  stop(graceMs: number): void {
    stopSandbox(this.driver, this.handle, graceMs).catch(error =>
      this.#log.warn({ instanceId: this.id, err: error }, 'sandbox stop failed'),
    );
  }

  logs(request: LogRequest, signal: AbortSignal): AsyncIterable<Buffer> {
    return this.driver.logs(this.handle, request, signal);
  }
}

/**
 * Returns true if no part of the command ran. The sandbox, whose server died while starting it, has then
 * ended without an exit code and without a signal.
 */
export async function neverBegan(driver: SandboxDriver, handle: SandboxHandle, closing: AbortSignal): Promise<boolean> {
  const exit = await within(driver.wait(handle, closing), UNCERTAIN_MS, 'it runs').then(
    ended => ended,
    () => null,
  );
  closing.throwIfAborted();
  return exit !== null && exit.code === null && exit.signal === null;
}
