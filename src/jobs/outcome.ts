import { constants } from 'node:os';
import type { JobErrorType, JobRules } from '../core/job.ts';
import { backoffMs } from '../lib/backoff.ts';
import { describeExit, type ExitResult } from '../sandbox/driver.ts';
import type { JobEnd } from '../storage/queries/jobs.ts';
import type { StopReason } from '../storage/schema.ts';

export const RUNNING_MESSAGE = 'Job is currently running.';
export const NOT_STARTED = 'Job has not started yet.';
const LAST_LINES_CHARS = 20_000;
/** Pause before the next try after a start failed for a reason that may pass. */
export const TRY_LATER_MS = 2_000;
const MAX_RETRY_DELAY_MS = 3_600_000;

/** Returns the message of a job before its start. `shortage` is the reason why it can never start. */
export function pendingMessage(shortage: string | null, hasSetup: boolean): string {
  if (shortage !== null) {
    return `${NOT_STARTED} It is waiting for resources (CPUs, GPUs, memory, custom resources) to become available: ${shortage}.`;
  }
  return hasSetup ? `${NOT_STARTED} It may be waiting for the runtime environment to be set up.` : NOT_STARTED;
}

/** Returns the end of a job from the exit of its sandbox. `lastLines` are the last lines of its output. */
export function endOf(exit: ExitResult, stopReason: StopReason, rules: JobRules, lastLines: string): JobEnd {
  const endedAtMs = exit.atMs;
  if (stopReason === 'stopped') return { ...stoppedEnd(), endedAtMs };
  const exitCode = exitCodeOf(exit);
  const failed = (errorType: JobErrorType, message: string): JobEnd => ({
    status: 'FAILED',
    message,
    errorType,
    exitCode,
    endedAtMs,
  });
  if (stopReason === 'timeout') {
    return failed(
      'JOB_ENTRYPOINT_COMMAND_ERROR',
      `Job was stopped because it ran longer than its timeout of ${rules.timeoutMs} ms.`,
    );
  }
  if (exitCode === null) {
    return failed('JOB_SUPERVISOR_ACTOR_DIED', 'Job has ended with an unknown result: its sandbox does not exist.');
  }
  if (exitCode === 0 && exit.cause === undefined) {
    return { status: 'SUCCEEDED', message: 'Job finished successfully.', errorType: '', exitCode, endedAtMs };
  }
  const how = exit.signal !== null || exit.oomKilled || exit.cause !== undefined ? ` (${describeExit(exit)})` : '';
  const tail =
    lastLines === ''
      ? '. No logs available.'
      : `, last available logs (truncated to 20,000 chars):\n${lastLines.slice(-LAST_LINES_CHARS)}`;
  return failed(
    'JOB_ENTRYPOINT_COMMAND_ERROR',
    `Job entrypoint command failed with exit code ${exitCode}${how}${tail}`,
  );
}

export function stoppedEnd(): JobEnd {
  return {
    status: 'STOPPED',
    message: 'Job was intentionally stopped.',
    errorType: '',
    exitCode: null,
    endedAtMs: Date.now(),
  };
}

export function failedEnd(errorType: JobErrorType, message: string): JobEnd {
  return { status: 'FAILED', message, errorType, exitCode: null, endedAtMs: Date.now() };
}

/** Returns the pause after the `attempt`th failure of a job, milliseconds. */
export function retryDelayMs({ retryDelayMs }: JobRules, attempt: number): number {
  return backoffMs({ firstMs: retryDelayMs, longestMs: MAX_RETRY_DELAY_MS }, attempt);
}

/** Returns the longest pause before any attempt of a job. Bounds the wait for a stored time. */
export function longestPauseMs(rules: JobRules): number {
  return Math.max(TRY_LATER_MS, retryDelayMs(rules, Math.max(1, rules.retries)));
}

/** Returns the exit code as Python reports it: negative for a signal; null when it is unknown. */
function exitCodeOf({ code, signal }: ExitResult): number | null {
  if (signal === null) return code;
  const named = constants.signals[signal as NodeJS.Signals] as number | undefined;
  const realTime = /^SIGRT(\d+)$/.exec(signal)?.[1];
  return -(named ?? Number(realTime ?? 0));
}
