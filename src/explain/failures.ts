import { age } from '../lib/age.ts';
import { counted, sentence } from './words.ts';

/** The fields of a failed call of `GET /api/calls` that explanations use. Viewers get no text. */
export interface FailedCall {
  readonly id: string;
  readonly error_code: string | null;
  readonly error?: string;
  readonly start_time: string;
  readonly version?: string;
}

/** Calls that failed lately, the newest first. */
export interface FailedCalls {
  readonly calls: readonly FailedCall[];
  /** True if more calls failed than `calls` has. */
  readonly hasMore: boolean;
}

/** The filters of `GET /api/calls` for calls that failed lately. */
export const FAILED_LATELY = { outcome: 'error', after: '1h', limit: 100 } as const;

/** Says how many calls failed lately, and how the last one did. */
export function failuresInWords({ calls, hasMore }: FailedCalls, nowMs: number): string {
  const [last] = calls;
  if (last === undefined) return `No call failed in the last hour.`;
  const count = `${hasMore ? 'More than ' : ''}${counted(calls.length, 'call')}`;
  const why = last.error === undefined ? `${last.error_code}` : `${last.error_code}: ${last.error}`;
  return sentence(`${count} failed in the last hour, the last one ${age(last.start_time, nowMs)} ago: ${why}`);
}
