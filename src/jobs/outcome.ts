import { constants } from 'node:os';
import type { JobErrorType, JobRules } from '../core/job.ts';
import { backoffMs } from '../lib/backoff.ts';
import { describeExit, type ExitResult } from '../sandbox/driver.ts';
import type { JobEnd, StopReason } from '../storage/jobs.ts';

export const RUNNING_MESSAGE = 'Job is currently running.';
export const NOT_STARTED = 'Job has not started yet.';
const LAST_LINES_CHARS = 20_000;
const MAX_RETRY_DELAY_MS = 3_600_000;

/** The message of a job before it has started. `shortage`: why it never will. */
export function pendingMessage(shortage: string | null, hasSetup: boolean): string {
  if (shortage !== null) {
    return `${NOT_STARTED} It is waiting for resources (CPUs, GPUs, memory, custom resources) to become available: ${shortage}.`;
  }
  return hasSetup ? `${NOT_STARTED} It may be waiting for the runtime environment to be set up.` : NOT_STARTED;
}

/** How a job ended, from how its sandbox did. `lastLines` are the last ones that it wrote. */
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
    return failed('JOB_SUPERVISOR_ACTOR_DIED', 'Job has ended, and how is not known: its sandbox is gone.');
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

/** How long after its `attempt`th failure a job waits. */
export function retryDelayMs({ retryDelayMs }: JobRules, attempt: number): number {
  return backoffMs({ firstMs: retryDelayMs, longestMs: MAX_RETRY_DELAY_MS }, attempt);
}

/** As Python tells it: a signal is negative. null when nothing is known. */
function exitCodeOf({ code, signal }: ExitResult): number | null {
  if (signal === null) return code;
  const named = constants.signals[signal as NodeJS.Signals] as number | undefined;
  const realTime = /^SIGRT(\d+)$/.exec(signal)?.[1];
  return -(named ?? Number(realTime ?? 0));
}
