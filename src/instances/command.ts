import { backoffMs, pause } from '../lib/backoff.ts';
import { within } from '../lib/deadline.ts';
import type { ExitResult, LogRequest, SandboxDriver, SandboxHandle } from '../sandbox/driver.ts';
import type { InstanceRef } from '../storage/instances.ts';
import type { InstanceLog } from './contract.ts';

const RETRY = { firstMs: 500, longestMs: 30_000 };
const STOP_MARGIN_MS = 30_000;
/** How long a sandbox that was just being started when a server died may take to show whether it was. */
const UNCERTAIN_MS = 2_000;

/** A sandbox in which a command runs to its end, and nothing takes calls. */
export class Command implements InstanceRef {
  readonly id: string;
  readonly epoch: number;
  readonly driver: SandboxDriver;
  readonly handle: SandboxHandle;
  readonly #log: InstanceLog;

  constructor(ref: InstanceRef, driver: SandboxDriver, handle: SandboxHandle, log: InstanceLog) {
    this.id = ref.id;
    this.epoch = ref.epoch;
    this.driver = driver;
    this.handle = handle;
    this.#log = log;
  }

  /** How it ended, once it has; asks again for as long as its driver does not say. null: `signal` aborted. */
  async exited(signal: AbortSignal): Promise<ExitResult | null> {
    for (let failures = 1; ; failures++) {
      try {
        const exit = await this.driver.wait(this.handle, signal);
        return signal.aborted ? null : exit;
      } catch (error) {
        if (signal.aborted) return null;
        this.#log.warn(
          { instanceId: this.id, err: error },
          'waiting for the end of a sandbox failed; it is tried again',
        );
        await pause(backoffMs(RETRY, failures), signal);
      }
    }
  }

  /** Asks it to end, and kills it after `graceMs`. Never rejects. */
  stop(graceMs: number): void {
    within(this.driver.stop(this.handle, graceMs), graceMs + STOP_MARGIN_MS, 'the driver did not answer in time').catch(
      error => this.#log.warn({ instanceId: this.id, err: error }, 'a sandbox could not be stopped'),
    );
  }

  logs(request: LogRequest, signal: AbortSignal): AsyncIterable<Buffer> {
    return this.driver.logs(this.handle, request, signal);
  }
}

/** Whether nothing of a command has run whose server died while it started the sandbox: it ended, and nobody knows how. */
export async function neverBegan(driver: SandboxDriver, handle: SandboxHandle, closing: AbortSignal): Promise<boolean> {
  const exit = await within(driver.wait(handle, closing), UNCERTAIN_MS, 'it runs').then(
    ended => ended,
    () => null,
  );
  closing.throwIfAborted();
  return exit !== null && exit.code === null && exit.signal === null;
}
