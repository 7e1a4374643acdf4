import { FAILED_LATELY, type FailedCall, type FailedCalls } from '../../explain/failures.ts';
import type { Client } from '../shared/client.ts';
import { CliError } from '../shared/exit.ts';

/** Returns the calls of an agent or function that failed lately. Without a history there are none. */
export async function readFailedCalls(client: Client, of: Readonly<Record<string, string>>): Promise<FailedCalls> {
  const query = new URLSearchParams({ ...of, ...FAILED_LATELY, limit: String(FAILED_LATELY.limit) });
  try {
    const { calls, next_cursor: cursor } = await client.json('GET', `/api/calls?${query}`);
    return { calls: calls as readonly FailedCall[], hasMore: cursor !== null };
  } catch (error) {
    // The history may be closed to this token, and the other facts still explain the state.
    if (error instanceof CliError) return { calls: [], hasMore: false };
    throw error;
  }
}
