import { SERVICE_CODES } from '../core/codes.ts';
import { failedPrecondition, resourceExhausted, type ServiceError, unavailable } from '../core/error.ts';
import type { GroupKey } from './policy.ts';

const QUEUE_FULL = {
  maximum: { number: SERVICE_CODES.queueFull.code, why: 'all instances are busy' },
  machine: { number: SERVICE_CODES.machineFull.code, why: 'the machine has no room for another instance' },
  starting: { number: SERVICE_CODES.queueFull.code, why: 'further instances are starting' },
} as const;

/** Returns the error of a call that finds a full queue, with the reason. */
export function queueFull(cause: keyof typeof QUEUE_FULL, waiting: number): ServiceError {
  const { number, why } = QUEUE_FULL[cause];
  return resourceExhausted(`${why} and ${waiting} calls are waiting already`, { number, retryAfterSeconds: 1 });
}

/** Returns the error of a call that waits for a label whose reservation was deleted. */
export function reservationGone(label: string): ServiceError {
  return failedPrecondition(`the reservation of the label ${label} was deleted while the call waited for it`, {
    number: SERVICE_CODES.unknownLabel.code,
  });
}

export function noneMayRun(label: string): ServiceError {
  const whose = label === '' ? 'of this function without a label' : `of the label ${label}`;
  return resourceExhausted(`no instance ${whose} may run: the maximum is 0`, {
    number: SERVICE_CODES.queueFull.code,
    retryAfterSeconds: 60,
  });
}

export function waitedTooLong(waitMs: number, lastFailure: Error | undefined): Error {
  const why = lastFailure ? `; the last start failed: ${lastFailure.message}` : '';
  return unavailable(`no instance was free within ${waitMs / 1000} s${why}`, {
    number: SERVICE_CODES.waitedTooLong.code,
    retryAfterSeconds: 1,
  });
}

/** Returns the error of a call whose instance can never run here. Waiting would not help. */
export function largerThanMachine({ cpuMillis, memoryMb }: GroupKey): ServiceError {
  return failedPrecondition(`an instance with cpu ${cpuMillis} and memory ${memoryMb} is larger than the machine`, {
    number: SERVICE_CODES.machineFull.code,
    retryAfterSeconds: 60,
  });
}

export function callerLeft(): ServiceError {
  return unavailable('the caller went away');
}
