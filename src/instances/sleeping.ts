import { NO_SANDBOX } from '../core/instance.ts';
import type { SandboxDriver, SandboxHandle } from '../sandbox/driver.ts';
import { removeSandbox, stopSandbox } from './driver-calls.ts';
import { instanceNotFound } from './refusals.ts';
import type { InstanceRecord } from './rows.ts';
import type { InstanceRunner, RunnerParts } from './runner.ts';

type Parts = Pick<RunnerParts, 'drivers' | 'log' | 'reconcileSoon'>;

export interface Sleep {
  readonly sleptAtMs: number;
  /** Called in the same tick in which the instance stops taking calls. An exception leaves it awake. */
  readonly assertIdle: () => void;
  /** Called when the sandbox is stopped and before it is removed. Must not reject. */
  readonly stopped: (driver: SandboxDriver, handle: SandboxHandle) => Promise<void>;
}

/**
 * Puts a locked RUNNING or PAUSED instance to sleep and removes its sandbox, without pre_stop. The record
 * changes first: if the service dies, the next one removes the sandbox. Later calls find no live instance.
 * Fails with `not_found` if the record has changed; a sandbox that the record still names continues then.
 */
export async function putToSleep(
  runner: InstanceRunner,
  record: InstanceRecord,
  { sleptAtMs, assertIdle, stopped }: Sleep,
  parts: Parts,
): Promise<void> {
  const { handle } = record;
  const driver = await parts.drivers(record.sandboxType);
  await runner.live?.saving;
  assertIdle();
  const live = runner.removeLive();
  try {
    const patch = { pausedAtMs: sleptAtMs, restartsInRow: 0, sandbox: NO_SANDBOX };
    const isWritten = await runner.writer.move(record, 'slept', patch);
    if (!isWritten) throw instanceNotFound(record.id);
  } catch (error) {
    // The sandbox continues; the next call or reconciler pass adopts it, unless the record has changed.
    live?.detach(`instance ${record.id} could not be put to sleep`);
    parts.reconcileSoon();
    throw error;
  }
  try {
    if (live !== undefined) await live.terminate(0, 'it sleeps');
    else if (handle !== null) await stopSandbox(driver, handle, 0);
    if (handle !== null) {
      await stopped(driver, handle);
      await removeSandbox(driver, handle);
    }
    await runner.writer.move(record, 'emptied', { handle: null });
  } catch (error) {
    // The agent sleeps. The next wake or reconciler pass removes the rest of its sandbox.
    parts.log.warn({ instanceId: record.id, err: error }, 'removal of sleeping instance failed; retrying');
    parts.reconcileSoon();
    throw error;
  } finally {
    runner.writer.forget();
  }
}
