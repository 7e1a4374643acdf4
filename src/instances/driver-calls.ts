import { within } from '../lib/deadline.ts';
import type { ListedSandbox, SandboxDriver, SandboxHandle, SandboxState } from '../sandbox/driver.ts';

/** Bounds of driver calls in milliseconds. A call that takes longer fails with `deadline_exceeded`. */
const ANSWER_MS = 5_000;
const KILL_MS = 15_000;
const REMOVE_MS = 30_000;

export function listSandboxes(driver: SandboxDriver): Promise<readonly ListedSandbox[]> {
  return within(driver.list(), ANSWER_MS, `${driver.name} did not answer in time`);
}

export function inspectSandbox(driver: SandboxDriver, handle: SandboxHandle): Promise<SandboxState> {
  return within(driver.inspect(handle), ANSWER_MS, `${driver.name} did not answer in time`);
}

/** Stops a sandbox, which may end by itself for `graceMs` and is killed then. */
export function stopSandbox(driver: SandboxDriver, handle: SandboxHandle, graceMs: number): Promise<void> {
  return stopsInTime(driver.stop(handle, graceMs), driver, graceMs);
}

/** Bounds a stop that another part started. */
export function stopsInTime(stopping: Promise<void>, driver: SandboxDriver, graceMs: number): Promise<void> {
  return within(stopping, graceMs + KILL_MS, `${driver.name} did not stop the sandbox in time`);
}

/** Removes the rest of a sandbox. `cleared` is passed to `SandboxDriver.remove`. */
export function removeSandbox(driver: SandboxDriver, handle: SandboxHandle, cleared?: () => void): Promise<void> {
  return within(driver.remove(handle, cleared), REMOVE_MS, `${driver.name} did not remove the sandbox in time`);
}
