import { failedPrecondition, unavailable } from '../core/error.ts';
import type { SandboxDriver } from '../sandbox/driver.ts';
import { reach, SILENCE_MS } from './adopt.ts';
import { inspectSandbox } from './driver-calls.ts';
import { instanceNotFound } from './refusals.ts';
import type { InstanceRecord } from './rows.ts';
import type { InstanceRunner, RunnerParts } from './runner.ts';

type Parts = Pick<RunnerParts, 'drivers' | 'adoption' | 'closing' | 'log' | 'reconcileSoon'>;

/** A driver that can pause. */
type PausingDriver = SandboxDriver & Required<Pick<SandboxDriver, 'pause' | 'resume'>>;

/** Returns the driver. Fails with `failed_precondition` if its sandboxes cannot be paused. */
export function assertPauses(driver: SandboxDriver): PausingDriver {
  if (driver.pause === undefined || driver.resume === undefined)
    throw failedPrecondition(`sandboxes of type ${driver.name} cannot be paused`);
  return driver as PausingDriver;
}

/**
 * Pauses a locked RUNNING instance. The record changes first: if the service dies, the next one completes the
 * pause. Fails with the driver's error after continuing the sandbox, or with `not_found` if the record has
 * changed.
 */
export async function pauseInstance(
  runner: InstanceRunner,
  record: InstanceRecord,
  pausedAtMs: number,
  parts: Parts,
): Promise<void> {
  const driver = assertPauses(await parts.drivers(record.sandboxType));
  const { handle } = record;
  if (handle === null || !(await runner.writer.move(record, 'paused', { pausedAtMs })))
    throw instanceNotFound(record.id);
  runner.removeLive()?.detach(`instance ${record.id} is paused`);
  try {
    await driver.pause(handle);
  } catch (error) {
    await resumeInstance(runner, { ...record, status: 'PAUSED' }, record.expiresAtMs, parts).catch(failed => {
      parts.log.warn({ instanceId: record.id, err: failed }, 'instance stays paused after its pause failed');
      parts.reconcileSoon();
    });
    throw error;
  }
}

/**
 * Continues a locked PAUSED instance, which is live afterwards. Until the record changes, the next service
 * would pause it again. Fails with `unavailable` if the runtime has ended; the instance is FAILED then.
 */
export async function resumeInstance(
  runner: InstanceRunner,
  record: InstanceRecord,
  expiresAtMs: number,
  parts: Parts,
): Promise<void> {
  const driver = assertPauses(await parts.drivers(record.sandboxType));
  const { handle, secret, sandbox } = record;
  if (handle === null) throw instanceNotFound(record.id);
  await driver.resume(handle);
  const hasPorts = sandbox.portMappings.length > 0;
  const silenceMs = parts.adoption?.silenceMs ?? SILENCE_MS;
  const reached = await reach(driver, { handle, secret, hasPorts }, silenceMs, parts.closing);
  if ('dead' in reached) {
    await runner.died(record, reached);
    throw unavailable(reached.dead);
  }
  try {
    const patch = { pausedAtMs: 0, expiresAtMs };
    if (!(await runner.writer.move(record, 'resumed', patch))) throw instanceNotFound(record.id);
    runner.found({ ...record, ...patch, status: 'RUNNING' }, driver, handle, reached.channel);
  } catch (error) {
    reached.channel.close();
    parts.reconcileSoon();
    throw error;
  }
}

/**
 * Completes the pause of a PAUSED instance that an earlier server recorded, and marks a dead one. Pausing
 * again has no effect.
 */
export async function keepPaused(runner: InstanceRunner, record: InstanceRecord, driver: SandboxDriver): Promise<void> {
  const { handle } = record;
  if (handle === null) return;
  const state = await inspectSandbox(driver, handle);
  if (state.state === 'exited' || state.state === 'gone') {
    await runner.died(record, { dead: 'instance exited: its sandbox ended while it was paused' });
  } else if (state.state === 'running') await assertPauses(driver).pause(handle);
}
