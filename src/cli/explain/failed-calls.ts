import type { Call } from '../call/records.ts';
import type { Client } from '../shared/client.ts';
import { CliError } from '../shared/exit.ts';
import { age } from '../shared/print.ts';
import { counted, sentence } from './explanation.ts';

/** Calls that failed lately, the newest first. */
export interface FailedCalls {
  readonly calls: readonly Call[];
  /** True if more calls failed than `calls` has. */
  readonly hasMore: boolean;
}

/** The time in which a failed call counts as recent, as the service reads it and in words. */
const LATELY = { after: '1h', words: 'hour' };
const LIMIT = 100;

/** Returns the calls of an agent or function that failed lately. Without a history there are none. */
export async function readFailedCalls(client: Client, of: Readonly<Record<string, string>>): Promise<FailedCalls> {
  const query = new URLSearchParams({ ...of, outcome: 'error', after: LATELY.after, limit: String(LIMIT) });
  try {
    const { calls, next_cursor: cursor } = await client.json('GET', `/api/calls?${query}`);
    return { calls: calls as readonly Call[], hasMore: cursor !== null };
  } catch (error) {
    // The history may be closed to this token, and the other facts still explain the state.
    if (error instanceof CliError) return { calls: [], hasMore: false };
    throw error;
  }
}

/** Says how many calls failed lately, and how the last one did. */
export function failuresInWords({ calls, hasMore }: FailedCalls, nowMs: number): string {
  const [last] = calls;
  if (last === undefined) return `No call failed in the last ${LATELY.words}.`;
  const count = `${hasMore ? 'More than ' : ''}${counted(calls.length, 'call')}`;
  const why = last.error === undefined ? `${last.error_code}` : `${last.error_code}: ${last.error}`;
  return sentence(
    `${count} failed in the last ${LATELY.words}, the last one ${age(last.start_time, nowMs)} ago: ${why}`,
  );
}
